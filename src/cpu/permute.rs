//! Routed rows as a kernel reads them: gathered as the row groups them, scales in its kernel layout.

use crate::format::{BlockScale, FormatSpec, Reach};
use crate::layout::{Extent, Layout};
use crate::moe::grouping::{Place, Placement};
use crate::tensor::{RawQuantized, WrongSize, scale_extent};

use super::dequantize::{apply_scales, decode_elements};
use super::relayout::{check_size, holds};
use super::scales::{ScaleView, copy_scales};

/// The buffer of a kernel's input.
#[derive(Debug)]
pub(crate) struct KernelRows {
    format: &'static FormatSpec,
    pub(crate) cols: usize,
    /// What the second level multiplies by; 1 without one.
    pub(crate) global: f32,
    payload: Vec<u8>,
    scales: Vec<u8>,
    layout: &'static Layout,
    /// The size of one box of scales.
    scale_box: Extent,
    placement: Placement,
}

/// Gathers: routed row `i` is row `from(i)` of `source`, whose scales are read in layout `prepared`
/// whatever `source` says, and goes where `placement` says, scales in layout `kernel`. All that no
/// row goes to is zero. The format's blocks must be of one row each, or of all.
pub(crate) fn gather(
    source: &RawQuantized,
    prepared: &'static Layout,
    kernel: &'static Layout,
    placement: Placement,
    from: impl Fn(usize) -> usize,
) -> Result<KernelRows, WrongSize> {
    let format = source.format;
    check_size(source, prepared)?;
    holds(kernel, source)?;
    let row_bytes = format.element.bytes(source.cols);
    let mut payload = vec![0; placement.slabs * placement.rows * row_bytes];
    for (routed, place) in placement.places.iter().enumerate() {
        let to = payload_row(&placement, *place) * row_bytes;
        let from = from(routed) * row_bytes;
        payload[to..to + row_bytes].copy_from_slice(&source.payload[from..from + row_bytes]);
    }
    let mut rows = KernelRows {
        format,
        cols: source.cols,
        global: source.global.map_or(1.0, |global| global.to_multiplier().get()),
        payload,
        scales: Vec::new(),
        layout: kernel,
        scale_box: Extent { rows: 0, cols: 0 },
        placement,
    };
    if let Some(block) = format.block {
        let source_logical = scale_extent(format, source.rows, source.cols)?;
        let source_box = prepared.physical(source_logical)?;
        let one_row = Extent { rows: 1, cols: source_logical.cols };
        let scale_rows = block.rows.count(rows.placement.rows);
        rows.scale_box = kernel.physical(Extent { rows: scale_rows, cols: source_logical.cols })?;
        rows.scales = vec![0; rows.placement.slabs * rows.scale_box.count() * block.scale.bytes()];
        for (routed, place) in rows.placement.places.iter().enumerate() {
            let base = place.slab * rows.scale_box.count();
            copy_scales(
                one_row,
                block.scale,
                &source.scales,
                |_, col| (prepared.offset)(scale_row(block, from(routed)), col, source_box),
                &mut rows.scales,
                |_, col| base + (kernel.offset)(scale_row(block, place.row), col, rows.scale_box),
            );
        }
    }
    Ok(rows)
}

/// The row of scales of row `row`: its own, or the one that all share.
fn scale_row(block: BlockScale, row: usize) -> usize {
    if block.rows == Reach::Whole { 0 } else { row }
}

fn payload_row(placement: &Placement, place: Place) -> usize {
    place.slab * placement.rows + place.row
}

impl KernelRows {
    /// The first `values.len()` elements of routed row `routed`.
    pub(crate) fn decode(&self, routed: usize, values: &mut [f32]) {
        let place = self.placement.places[routed];
        let row_bytes = self.format.element.bytes(self.cols);
        let payload = &self.payload[payload_row(&self.placement, place) * row_bytes..][..row_bytes];
        decode_elements(self.format.element, payload, values);
        if let Some(block) = self.format.block {
            let scales = ScaleView {
                layout: self.layout,
                physical: self.scale_box,
                scale: block.scale,
                base: place.slab * self.scale_box.count(),
                bytes: &self.scales,
            };
            apply_scales(values, block.cols.size(self.cols), |col| {
                scales.get(scale_row(block, place.row), col)
            });
        }
    }
}
