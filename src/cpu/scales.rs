//! Reading and moving block scales.

use std::ops::Range;

use rayon::prelude::*;

use crate::digits::{Axis, Digit};
use crate::element::scale_decode;
use crate::format::ScaleType;
use crate::layout::{Extent, Fit, Layout};

use super::buffer::sized;

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
    rows: Along,
    cols: Along,
}

/// Offsets along one axis. Parts are alike, so that those within the first one stand for all.
struct Along {
    first: Vec<usize>,
    /// Rows or columns of a part.
    span: usize,
    /// Bytes of a part; 0 if this is not the axis that is cut.
    stride: usize,
}

impl Along {
    fn at(&self, index: usize) -> usize {
        self.first[index % self.span] + index / self.span * self.stride
    }

    /// [`at`](Self::at) of each of `indices`, without its divisions.
    fn all(&self, indices: Range<usize>) -> impl Iterator<Item = usize> {
        let (mut part, mut within) = (indices.start / self.span * self.stride, indices.start % self.span);
        indices.map(move |_| {
            let offset = part + self.first[within];
            within += 1;
            if within == self.span {
                (part, within) = (part + self.stride, 0);
            }
            offset
        })
    }
}

impl Offsets {
    fn new(scales: ScaleBox<'_>, logical: Extent, size: usize) -> Self {
        let at = |row, col| (scales.layout.offset)(row, col, scales.physical) * size;
        let parts = Parts::of(scales);
        let part = scales.physical.count() / parts.count * size;
        let along = |axis, count: usize, at: &dyn Fn(usize) -> usize| {
            let (span, stride) = if parts.axis == axis { (parts.span, part) } else { (count, 0) };
            Along { first: (0..span.min(count)).map(at).collect(), span: span.max(1), stride }
        };
        Self {
            rows: along(Axis::Row, logical.rows, &|row| at(row, 0)),
            cols: along(Axis::Col, logical.cols, &|col| at(0, col)),
        }
    }

    /// Whether each `run` of `cols` columns, counted from 0, are stored one after the other.
    fn has_runs(&self, run: usize, cols: usize, size: usize) -> bool {
        let follows = |col: usize| self.cols.at(col) == self.cols.at(col - 1) + size;
        (1..cols).filter(|col| !col.is_multiple_of(run)).all(follows)
    }
}

/// Moves a box of `logical` scales of `size` bytes each from where `from` says to where `to` says, into
/// the allocation of `target`, whose bytes do not matter. What no scale goes to is zero.
pub(crate) fn move_scales(
    logical: Extent,
    size: usize,
    source: &[u8],
    from: ScaleBox<'_>,
    to: ScaleBox<'_>,
    target: Vec<u8>,
) -> Vec<u8> {
    let mut target = sized(target, to.physical.count() * size);
    if logical.count() == 0 {
        target.fill(0);
        return target;
    }
    let parts = Parts::of(to);
    let (source_at, target_at) = (Offsets::new(from, logical, size), Offsets::new(to, logical, size));
    let is_run = |run: &usize| {
        // A run does not reach into the next part.
        let is_within = parts.axis != Axis::Col || parts.span.is_multiple_of(*run);
        is_within
            && source_at.has_runs(*run, logical.cols, size)
            && target_at.has_runs(*run, logical.cols, size)
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
        if logical != to.physical {
            target.fill(0);
        }
        let (rows, cols) = parts.ranges(part, logical);
        // Offsets along the axis that is cut count from the start of the target, not of the part.
        let (row_base, col_base) = match parts.axis {
            Axis::Col => (0, part * bytes),
            Axis::Row | Axis::Half => (part * bytes, 0),
        };
        let target_rows = target_at.rows.all(rows.clone()).map(|offset| offset - row_base);
        let row_starts: Vec<_> = source_at.rows.all(rows).zip(target_rows).collect();
        let start = |col: usize| (source_at.cols.at(col), target_at.cols.at(col) - col_base);
        // What is left of the columns is a run as well, but a shorter one.
        let left = cols.end - cols.len() % run;
        let runs: Vec<_> = (cols.start..left).step_by(run).map(start).collect();
        copy(source, target, &row_starts, &runs);
        if left < cols.end {
            let (length, (source_col, target_col)) = ((cols.end - left) * size, start(left));
            for (source_row, target_row) in row_starts {
                let (from, to) = (source_row + source_col, target_row + target_col);
                target[to..][..length].copy_from_slice(&source[from..][..length]);
            }
        }
    });
    target
}

/// Copies runs of `WIDTH` bytes, all of `runs` for each of `rows`. Both are offsets in `source` and in
/// `target`.
fn copy_runs<const WIDTH: usize>(
    source: &[u8],
    target: &mut [u8],
    rows: &[(usize, usize)],
    runs: &[(usize, usize)],
) {
    for (source_row, target_row) in rows {
        let (source, target) = (&source[*source_row..], &mut target[*target_row..]);
        for (from, to) in runs {
            target[*to..][..WIDTH].copy_from_slice(&source[*from..][..WIDTH]);
        }
    }
}
