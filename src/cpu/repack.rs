//! From the scales that a backend is handed to those that its kernel reads, where their types differ.

use crate::format::{FormatSpec, ScaleType};
use crate::layout::{Extent, Layout};
use crate::tensor::{RawQuantized, WrongSize, scale_extent};

use super::relayout::check_size;

/// Why scales were not repacked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RepackError {
    /// A scale that an exponent alone does not say.
    #[error(
        "the scale of row {row}, block {col} is {value:e}; `{format}` stores exponents, so it has to be a \
         power of two: quantise with a rounding rule"
    )]
    NotAPowerOfTwo {
        /// The format of the kernel.
        format: &'static str,
        /// The row of scales.
        row: usize,
        /// The column of scales.
        col: usize,
        /// The scale.
        value: f32,
    },
    /// No backend reads scales converted this way.
    #[error("`{from}` scales are not repacked as those of `{to}`")]
    Types {
        /// What was handed over.
        from: &'static str,
        /// What the kernel reads.
        to: &'static str,
    },
    /// A buffer.
    #[error(transparent)]
    Size(#[from] WrongSize),
}

/// `raw`, whose f32 scales are read in `layout`, with the e8m0 scales of `format` in the same layout.
/// Padding becomes 0. The scale of a block with a NaN is NaN, which is no power of two: such tokens are
/// refused here.
///
/// # Errors
/// [`RepackError`] if a scale is not a positive, normal power of two, the types are others, or a buffer
/// does not fit.
pub fn repack(
    raw: &RawQuantized,
    layout: &'static Layout,
    format: &'static FormatSpec,
) -> Result<RawQuantized, RepackError> {
    let types = (raw.format.block.map(|block| block.scale), format.block.map(|block| block.scale));
    if types != (Some(ScaleType::F32), Some(ScaleType::E8m0)) {
        return Err(RepackError::Types { from: raw.format.name, to: format.name });
    }
    check_size(raw, layout)?;
    let logical: Extent = scale_extent(raw.format, raw.rows, raw.cols)?;
    let physical = layout.physical(logical).map_err(WrongSize::from)?;
    let values = raw.scales.as_chunks::<4>().0;
    let mut scales = vec![0; physical.count()];
    for row in 0..logical.rows {
        for col in 0..logical.cols {
            let at = (layout.offset)(row, col, physical);
            let value = f32::from_le_bytes(values[at]);
            scales[at] = exponent(value).ok_or(RepackError::NotAPowerOfTwo {
                format: format.name,
                row,
                col,
                value,
            })?;
        }
    }
    Ok(RawQuantized { format, scales, ..raw.clone() })
}

/// The biased exponent of a positive, normal power of two. Zero has neither sign nor mantissa and is
/// none.
fn exponent(value: f32) -> Option<u8> {
    let bits = value.to_bits();
    (bits & 0x807F_FFFF == 0 && value.is_normal()).then_some((bits >> 23) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_powers_of_two_are_exponents() {
        let values = [0.25, 0.3, -0.5, f32::NAN, 2f32.powi(-127), 3.0, 0.0, f32::INFINITY];
        let accepted = values.map(exponent);
        assert_eq!(accepted, [Some(125), None, None, None, None, None, None, None]);
    }
}
