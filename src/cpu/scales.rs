//! Reading and moving block scales.

use std::ops::Range;

use rayon::prelude::*;

use crate::digits::{Axis, Digit};
use crate::element::scale_decode;
use crate::format::ScaleType;
use crate::layout::{Extent, Fit, Layout};

/// What quantisers write first, and what stands in where only the vendor's library knows a layout
/// that never leaves its kernel.
pub(crate) static ROW_MAJOR: Layout = Layout {
    name: "row-major",
    digits: &[Digit::new(Axis::Row, 1, None), Digit::new(Axis::Col, 1, None)],
    fit: Fit::Pad(Extent { rows: 1, cols: 1 }),
    scales: &[ScaleType::E8m0, ScaleType::E4m3, ScaleType::F32, ScaleType::Bf16, ScaleType::F16],
    aliases: &[],
    offset: |row, col, physical| row * physical.cols + col,
    locate: |offset, physical| (offset / physical.cols, offset % physical.cols),
};

/// The scales of one matrix as they are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScaleView<'a> {
    pub(crate) layout: &'static Layout,
    pub(crate) physical: Extent,
    pub(crate) scale: ScaleType,
    /// Scales before the first one of this matrix.
    pub(crate) base: usize,
    pub(crate) bytes: &'a [u8],
}

impl ScaleView<'_> {
    /// Where the scale of (`row`, `col`) is stored, in scales.
    pub(crate) fn offset(&self, row: usize, col: usize) -> usize {
        self.base + (self.layout.offset)(row, col, self.physical)
    }

    /// The value of the scale of (`row`, `col`).
    pub(crate) fn get(&self, row: usize, col: usize) -> f32 {
        scale_decode(self.scale, &self.bytes[self.offset(row, col) * self.scale.bytes()..])
    }
}

/// Copies the scales of a box of `logical` size from where `from` says to where `to` says. Offsets
/// count scales of `scale`; what no scale goes to is left as it is.
pub(crate) fn copy_scales(
    logical: Extent,
    scale: ScaleType,
    source: &[u8],
    from: impl Fn(usize, usize) -> usize,
    target: &mut [u8],
    to: impl Fn(usize, usize) -> usize,
) {
    let size = scale.bytes();
    for row in 0..logical.rows {
        for col in 0..logical.cols {
            let (from, to) = (from(row, col) * size, to(row, col) * size);
            target[to..to + size].copy_from_slice(&source[from..from + size]);
        }
    }
}

/// A box of scales in a layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScaleBox<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) physical: Extent,
}

/// A box cut by the outermost digit of its layout: each part is a range of rows or of columns.
struct Parts {
    count: usize,
    axis: Axis,
    /// Rows or columns of a part.
    span: usize,
}

impl Parts {
    fn of(scales: ScaleBox<'_>) -> Self {
        let Extent { rows, cols } = scales.physical;
        match scales.layout.digits.first() {
            Some(Digit { axis: Axis::Row, divisor: span, radix: None }) => {
                Self { count: rows / span, axis: Axis::Row, span: *span }
            }
            Some(Digit { axis: Axis::Col, divisor: span, radix: None }) => {
                Self { count: cols / span, axis: Axis::Col, span: *span }
            }
            // The digit is not the last of its axis, so that it holds no range of it.
            _ => Self { count: 1, axis: Axis::Row, span: rows },
        }
    }

    /// The rows and columns of part `index`, padding not counted.
    fn ranges(&self, index: usize, logical: Extent) -> (Range<usize>, Range<usize>) {
        let of = |size: usize| (index * self.span).min(size)..((index + 1) * self.span).min(size);
        match self.axis {
            Axis::Col => (0..logical.rows, of(logical.cols)),
            Axis::Row | Axis::Half => (of(logical.rows), 0..logical.cols),
        }
    }
}

/// Where scales are, in bytes. A digit is taken from one axis, so an offset is what the row says plus
/// what the column says.
struct Offsets {
    rows: Vec<usize>,
    cols: Vec<usize>,
}

impl Offsets {
    fn new(scales: ScaleBox<'_>, logical: Extent, size: usize) -> Self {
        let at = |row, col| (scales.layout.offset)(row, col, scales.physical) * size;
        let parts = Parts::of(scales);
        let part = scales.physical.count() / parts.count * size;
        // Parts are alike, so that only the offsets within the first one are worked out.
        let fill = |axis, count: usize, at: &dyn Fn(usize) -> usize| {
            let span = if parts.axis == axis { parts.span } else { count };
            let first: Vec<usize> = (0..span.min(count)).map(at).collect();
            let part_at = |index: usize| first.iter().map(move |offset| index * part + offset);
            (0..count.div_ceil(span.max(1))).flat_map(part_at).take(count).collect()
        };
        Self {
            rows: fill(Axis::Row, logical.rows, &|row| at(row, 0)),
            cols: fill(Axis::Col, logical.cols, &|col| at(0, col)),
        }
    }

    /// Whether each `run` columns, counted from 0, are stored one after the other.
    fn has_runs(&self, run: usize, size: usize) -> bool {
        let follows = |pair: &[usize]| pair[1] == pair[0] + size;
        self.cols.chunks(run).all(|cols| cols.windows(2).all(follows))
    }
}

/// Moves a box of `logical` scales of `size` bytes each from where `from` says to where `to` says.
/// What no scale goes to is zero.
pub(crate) fn move_scales(
    logical: Extent,
    size: usize,
    source: &[u8],
    from: ScaleBox<'_>,
    to: ScaleBox<'_>,
) -> Vec<u8> {
    let mut target = vec![0; to.physical.count() * size];
    if logical.count() == 0 {
        return target;
    }
    let parts = Parts::of(to);
    let (source_at, target_at) = (Offsets::new(from, logical, size), Offsets::new(to, logical, size));
    let is_run = |run: &usize| {
        // A run does not reach into the next part.
        let is_within = parts.axis != Axis::Col || parts.span.is_multiple_of(*run);
        is_within && source_at.has_runs(*run, size) && target_at.has_runs(*run, size)
    };
    let run = [16, 8, 4, 2].into_iter().filter(|run| run * size <= 16).find(is_run).unwrap_or(1);
    let copy = match run * size {
        1 => copy_runs::<1>,
        2 => copy_runs::<2>,
        4 => copy_runs::<4>,
        8 => copy_runs::<8>,
        _ => copy_runs::<16>,
    };
    let bytes = target.len() / parts.count;
    target.par_chunks_mut(bytes).enumerate().for_each(|(part, target)| {
        let (rows, cols) = parts.ranges(part, logical);
        // What is left of the columns is a run as well, but a shorter one.
        let left = cols.end - cols.len() % run;
        let runs: Vec<_> =
            (cols.start..left).step_by(run).map(|col| (source_at.cols[col], target_at.cols[col])).collect();
        for row in rows {
            let (from, to) = (source_at.rows[row], target_at.rows[row]);
            copy(source, from, target, to, part * bytes, &runs);
            if left < cols.end {
                let length = (cols.end - left) * size;
                let (from, to) = (from + source_at.cols[left], to + target_at.cols[left] - part * bytes);
                target[to..to + length].copy_from_slice(&source[from..from + length]);
            }
        }
    });
    target
}

/// Copies runs of `WIDTH` bytes: each from `from` plus its first offset to `to` plus its second one,
/// of which `target` holds those from `base` on.
fn copy_runs<const WIDTH: usize>(
    source: &[u8],
    from: usize,
    target: &mut [u8],
    to: usize,
    base: usize,
    runs: &[(usize, usize)],
) {
    for (source_col, target_col) in runs {
        let (from, to) = (from + source_col, to + target_col - base);
        target[to..to + WIDTH].copy_from_slice(&source[from..from + WIDTH]);
    }
}
