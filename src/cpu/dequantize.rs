//! Stored numbers back to f32.

use rayon::prelude::*;

use crate::element::{E2M1_PAIRS, E4M3};
use crate::format::{ElementType, FormatSpec};
use crate::layout::{Extent, Layout};
use crate::tensor::{RawQuantized, WrongSize, scale_extent};

use super::relayout::check_size;
use super::scales::ScaleView;

/// All rows of `raw`, its scales read in `layout` whatever `raw` says: `rows` × `cols` values.
/// Second-level scales are not applied.
///
/// # Errors
/// [`WrongSize`] if the buffers do not have the size that the format asks for in `layout`, or if
/// `layout` does not hold scales of its type.
pub fn dequantize(raw: &RawQuantized, layout: &'static Layout) -> Result<Vec<f32>, WrongSize> {
    check_size(raw, layout)?;
    let format = raw.format;
    let scales = match format.block {
        None => None,
        Some(block) => Some(ScaleView {
            layout,
            physical: layout.physical(scale_extent(format, raw.rows, raw.cols)?)?,
            scale: block.scale,
            base: 0,
            bytes: &raw.scales,
        }),
    };
    Ok(decode_matrix(format, raw.cols, &raw.payload, |row, col| {
        scales.map_or(1.0, |scales| scales.get(row, col))
    }))
}

/// One matrix of `extent` elements with linear scales, as a
/// [`Stack`](crate::weights::canonical::Stack) holds it for each expert. Blocks at the lower and
/// right edge may be cut.
///
/// # Errors
/// [`WrongSize`] if the buffers do not have that size.
pub fn dequantize_matrix(
    format: &'static FormatSpec,
    extent: Extent,
    payload: &[u8],
    scales: &[u8],
) -> Result<Vec<f32>, WrongSize> {
    let Extent { rows, cols } = extent;
    let expected = rows.saturating_mul(format.element.bytes(cols));
    if payload.len() != expected {
        return Err(WrongSize::Payload { format: format.name, rows, cols, expected, got: payload.len() });
    }
    let Some(block) = format.block else { return Ok(decode_matrix(format, cols, payload, |_, _| 1.0)) };
    let scale_cols = cols.div_ceil(block.cols);
    let size = block.scale.bytes();
    let expected = rows.div_ceil(block.rows).saturating_mul(scale_cols).saturating_mul(size);
    if scales.len() != expected {
        let got = scales.len();
        return Err(WrongSize::Scales { format: format.name, layout: "linear", rows, cols, expected, got });
    }
    let scale =
        |row, col| crate::element::scale_decode(block.scale, &scales[(row * scale_cols + col) * size..]);
    Ok(decode_matrix(format, cols, payload, scale))
}

/// Row-major `payload`, each block times `scale(block row, block column)`.
fn decode_matrix(
    format: &FormatSpec,
    cols: usize,
    payload: &[u8],
    scale: impl Fn(usize, usize) -> f32 + Sync,
) -> Vec<f32> {
    let row_bytes = format.element.bytes(cols).max(1);
    let mut values = vec![0.0; payload.len() / row_bytes * cols];
    values.par_chunks_mut(cols.max(1)).zip(payload.par_chunks(row_bytes)).enumerate().for_each(
        |(row, (values, payload))| {
            decode_elements(format.element, payload, values);
            if let Some(block) = format.block {
                apply_scales(values, block.cols, |col| scale(row / block.rows, col));
            }
        },
    );
    values
}

/// The first `values.len()` elements of `bytes`.
pub(crate) fn decode_elements(element: ElementType, bytes: &[u8], values: &mut [f32]) {
    match element {
        ElementType::E2m1 => {
            let (pairs, last) = values.as_chunks_mut::<2>();
            for (pair, byte) in pairs.iter_mut().zip(bytes) {
                *pair = E2M1_PAIRS[usize::from(*byte)];
            }
            if let ([last], Some(byte)) = (last, bytes.get(pairs.len())) {
                *last = E2M1_PAIRS[usize::from(*byte)][0];
            }
        }
        ElementType::E4m3 => {
            for (value, byte) in values.iter_mut().zip(bytes) {
                *value = E4M3[usize::from(*byte)];
            }
        }
        ElementType::Bf16 => {
            for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                *value = half::bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        ElementType::F16 => {
            for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                *value = half::f16::from_le_bytes(*bytes).to_f32();
            }
        }
        ElementType::F32 => {
            for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
    }
}

/// Multiplies each block of `block_cols` values with its scale.
pub(crate) fn apply_scales(values: &mut [f32], block_cols: usize, scale: impl Fn(usize) -> f32) {
    for (col, block) in values.chunks_mut(block_cols).enumerate() {
        let scale = scale(col);
        for value in block {
            *value *= scale;
        }
    }
}
