//! Reading and moving block scales.

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
    scales: &[ScaleType::E8m0, ScaleType::E4m3, ScaleType::F32, ScaleType::Bf16],
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
