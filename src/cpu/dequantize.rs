//! Stored numbers back to f32.

use rayon::prelude::*;

use crate::element::{E2M1_PAIRS, E4M3, E5M2, e2m3_decode, e3m2_decode, scale_decode};
use crate::format::{ElementType, FormatSpec};
use crate::layout::{Extent, Layout};
use crate::scale::{Divisor, Multiplier};
use crate::tensor::{RawQuantized, WrongSize, scale_extent};
use crate::weights::canonical::Matrix;

use super::relayout::{check_levels, check_size};
use super::scales::ScaleView;

/// All rows of `raw`, its scales read in `layout` whatever `raw` says: `rows` × `cols` values,
/// `(code - zero point) * scale` and then times the second-level scale, in f32.
///
/// # Errors
/// [`WrongSize`] if the buffers do not have the size that the format asks for in `layout`, or if
/// `layout` does not hold scales of its type.
pub fn dequantize(raw: &RawQuantized, layout: &'static Layout) -> Result<Vec<f32>, WrongSize> {
    check_size(raw, layout)?;
    let format = raw.format;
    let extent = Extent { rows: raw.rows, cols: raw.cols };
    let view = match format.block {
        None => None,
        Some(block) => Some(ScaleView {
            layout,
            physical: layout.physical(scale_extent(format, raw.rows, raw.cols)?)?,
            scale: block.scale,
            base: 0,
            bytes: &raw.scales,
        }),
    };
    let levels = Levels {
        scale: |row, col| view.map_or(1.0, |view| view.get(row, col)),
        zero_points: &raw.zero_points,
        global: raw.global.map(Divisor::to_multiplier),
    };
    Ok(decode_matrix(format, extent, &raw.payload, &levels))
}

/// The values of one matrix, as [`dequantize`]. Blocks at the lower and right edge may be cut.
///
/// # Errors
/// [`WrongSize`] if the buffers do not have the size that `format` asks for.
pub fn dequantize_matrix(format: &'static FormatSpec, matrix: Matrix<'_>) -> Result<Vec<f32>, WrongSize> {
    let Matrix { rows, cols, payload, scales, zero_points, global } = matrix;
    let extent = Extent { rows, cols };
    let (payload_bytes, scale_bytes) = format.matrix_bytes(extent);
    if payload.len() != payload_bytes {
        let (expected, got) = (payload_bytes, payload.len());
        return Err(WrongSize::Payload { format: format.name, rows, cols, expected, got });
    }
    if scales.len() != scale_bytes {
        let (layout, expected, got) = ("linear", scale_bytes, scales.len());
        return Err(WrongSize::Scales { format: format.name, layout, rows, cols, expected, got });
    }
    check_levels(format, extent, zero_points, global)?;
    let stride = format.scales(extent).cols;
    let scale = |row, col| match format.block {
        Some(block) => scale_decode(block.scale, &scales[(row * stride + col) * block.scale.bytes()..]),
        None => 1.0,
    };
    Ok(decode_matrix(format, extent, payload, &Levels { scale, zero_points, global }))
}

/// What the codes of a matrix are worth.
struct Levels<'a, S> {
    /// The scale of (block row, block column).
    scale: S,
    /// Linear; empty for formats without.
    zero_points: &'a [u8],
    global: Option<Multiplier>,
}

fn decode_matrix<S: Fn(usize, usize) -> f32 + Sync>(
    format: &FormatSpec,
    extent: Extent,
    payload: &[u8],
    levels: &Levels<'_, S>,
) -> Vec<f32> {
    let Extent { rows, cols } = extent;
    let row_bytes = format.element.bytes(cols).max(1);
    let (block, blocks) = (format.block_size(extent), format.scales(extent));
    let mut values = vec![0.0; rows * cols];
    values.par_chunks_mut(cols.max(1)).zip(payload.par_chunks(row_bytes)).enumerate().for_each(
        |(row, (values, payload))| {
            decode_elements(format.element, payload, values);
            if format.block.is_some() {
                let block_row = row / block.rows;
                let zero_points = levels.zero_points.chunks(blocks.cols.max(1)).nth(block_row);
                for (values, zero_point) in
                    values.chunks_mut(block.cols).zip(zero_points.into_iter().flatten())
                {
                    let zero_point = f32::from(*zero_point);
                    values.iter_mut().for_each(|value| *value -= zero_point);
                }
                apply_scales(values, block.cols, |col| (levels.scale)(block_row, col));
            }
            if let Some(global) = levels.global {
                values.iter_mut().for_each(|value| *value *= global.get());
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
        ElementType::E4m3 => decode_bytes(bytes, values, |byte| E4M3[usize::from(byte)]),
        ElementType::E5m2 => decode_bytes(bytes, values, |byte| E5M2[usize::from(byte)]),
        ElementType::E2m3 => decode_bytes(bytes, values, e2m3_decode),
        ElementType::E3m2 => decode_bytes(bytes, values, e3m2_decode),
        ElementType::Int8 => decode_bytes(bytes, values, |byte| f32::from(byte as i8)),
        // A nibble shifted to the top of a signed byte and back keeps its sign.
        ElementType::Int4 => decode_nibbles(bytes, values, |nibble| f32::from((nibble << 4) as i8 >> 4)),
        ElementType::Uint4 => decode_nibbles(bytes, values, f32::from),
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

fn decode_bytes(bytes: &[u8], values: &mut [f32], decode: impl Fn(u8) -> f32) {
    for (value, byte) in values.iter_mut().zip(bytes) {
        *value = decode(*byte);
    }
}

fn decode_nibbles(bytes: &[u8], values: &mut [f32], decode: impl Fn(u8) -> f32) {
    for (at, value) in values.iter_mut().enumerate() {
        *value = decode(bytes[at / 2] >> (at % 2 * 4) & 0xF);
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
