//! The slow, obvious implementation in f64 that results are judged by.
//!
//! Everything here is written from the definition of a format or of the layer, and shares no code
//! with the engines or with generated maps: payloads are row-major and scales linear throughout.

mod activation;
mod layer;
mod numbers;

use rayon::prelude::*;

pub use activation::activate;
pub use layer::{Chosen, activated, combined, layer, shared, weigh_input};
pub use numbers::{
    decode_element, decode_scale, dequantize, encode_element, quantize_dequantize, quantize_rows,
};

use crate::format::{FormatSpec, ScaleType};
use crate::layout::Extent;
use crate::recipe::Recipe;
use crate::weights::canonical::{Canonical, Stack};

/// Something that the reference has no definition for, or operands that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoReference {
    /// A second-level scale that a format has and an operand or recipe lacks, or the other way round.
    #[error("whether there is a second-level scale does not agree with `{0}`")]
    Global(&'static str),
    /// A calibrated scale that the format has no place for.
    #[error("`{0}` has no scale of the kind that the recipe holds a calibrated one for")]
    Calibrated(&'static str),
    /// A scale type for which there is no rule that chooses a scale.
    #[error("the reference has no rule that chooses a {scale:?} block scale for `{format}`")]
    Scale {
        /// The format.
        format: &'static str,
        /// The scale type.
        scale: ScaleType,
    },
    /// An e8m0 scale without a rule that chooses it.
    #[error("`{0}` has e8m0 scales; say by which rounding they are chosen")]
    Rounding(&'static str),
    /// A buffer of the wrong size.
    #[error("{what} must have {expected} values or bytes, not {got}")]
    Size {
        /// The buffer.
        what: &'static str,
        /// What the shapes ask for.
        expected: usize,
        /// What it has.
        got: usize,
    },
    /// A token routed to an expert that does not exist.
    #[error("a token is routed to expert {expert}, but the layer has {experts}")]
    Expert {
        /// The expert.
        expert: u32,
        /// Experts of the layer.
        experts: usize,
    },
}

fn sized(what: &'static str, got: usize, expected: usize) -> Result<(), NoReference> {
    if got == expected { Ok(()) } else { Err(NoReference::Size { what, expected, got }) }
}

/// `weights` with all three stacks in the format `to`: dequantised, then quantised, each expert's
/// matrix by itself.
///
/// # Errors
/// As [`dequantize`] and [`quantize_rows`].
pub fn requantize(
    weights: &Canonical,
    to: &'static FormatSpec,
    recipe: Recipe,
) -> Result<Canonical, NoReference> {
    check_sizes(weights)?;
    let requantize = |stack: &Stack| {
        let matrix = |index| {
            let values = dequantize(weights.format, stack.matrix(weights.format, index))?;
            quantize_rows(&values, stack.cols, to, recipe)
        };
        let experts: Vec<Stack> =
            (0..weights.experts).into_par_iter().map(matrix).collect::<Result<_, NoReference>>()?;
        Ok(Stack::of_experts(stack.rows, stack.cols, experts.iter()))
    };
    Ok(Canonical {
        format: to,
        gate: weights.gate.as_ref().map(requantize).transpose()?,
        up: requantize(&weights.up)?,
        down: requantize(&weights.down)?,
        ..weights.clone()
    })
}

fn check_sizes(weights: &Canonical) -> Result<(), NoReference> {
    let Canonical { format, experts, hidden, intermediate, .. } = *weights;
    let globals = if format.global.is_some() { experts } else { 0 };
    let gate = weights.gate.iter().map(|gate| (gate, intermediate, hidden));
    let others = [(&weights.up, intermediate, hidden), (&weights.down, hidden, intermediate)];
    for (stack, rows, cols) in gate.chain(others) {
        sized("the rows of a weight", stack.rows, rows)?;
        sized("the columns of a weight", stack.cols, cols)?;
        let (payload, scales) = format.matrix_bytes(Extent { rows, cols });
        sized("the payload of a weight", stack.payload.len(), experts * payload)?;
        sized("the scales of a weight", stack.scales.len(), experts * scales)?;
        let zero_points = format.zero_points(Extent { rows, cols });
        sized("the zero points of a weight", stack.zero_points.len(), experts * zero_points)?;
        sized("the second-level scales of a weight", stack.globals.len(), globals)?;
    }
    if let Some(biases) = &weights.biases {
        let gated = if weights.gate.is_some() { intermediate } else { 0 };
        sized("the gate bias", biases.gate.len(), experts * gated)?;
        sized("the up bias", biases.up.len(), experts * intermediate)?;
        sized("the down bias", biases.down.len(), experts * hidden)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ElementType, Rounding};

    static MXFP8: FormatSpec = FormatSpec::blocks("mxfp8", ElementType::E4m3, ScaleType::E8m0, 1, 32);
    static FP8_BLOCK: FormatSpec =
        FormatSpec::blocks("fp8_128x128", ElementType::E4m3, ScaleType::F32, 128, 128);

    #[test]
    fn blocks_of_rows_share_a_scale() {
        let values: Vec<f64> = (0..130 * 2).map(f64::from).collect();
        let stack = quantize_rows(&values, 2, &FP8_BLOCK, Recipe::default()).unwrap();
        assert_eq!((stack.payload.len(), stack.scales.len()), (260, 8));
        let scale = |bytes: &[u8]| decode_scale(ScaleType::F32, bytes);
        assert_eq!(scale(&stack.scales[..4]), f64::from(255f32 / 448.0));
        assert_eq!(scale(&stack.scales[4..]), f64::from(259f32 / 448.0));
        let back = dequantize(&FP8_BLOCK, stack.matrix(&FP8_BLOCK, 0)).unwrap();
        assert!(
            values.iter().zip(&back).all(|(value, back)| (value - back).abs() <= value.abs() / 16.0 + 0.01)
        );
    }

    #[test]
    fn partial_blocks_count_as_padded() {
        let values: Vec<f64> = (0..40).map(|value| f64::from(value) / 8.0).collect();
        let padded: Vec<f64> = values.iter().copied().chain([0.0; 24]).collect();
        let rceil = Recipe::dynamic(Some(Rounding::Rceil));
        let whole = quantize_dequantize(&padded, 64, &MXFP8, rceil).unwrap();
        assert_eq!(quantize_dequantize(&values, 40, &MXFP8, rceil).unwrap(), whole[..40]);
        let without = quantize_dequantize(&values, 40, &MXFP8, Recipe::default());
        assert_eq!(without, Err(NoReference::Rounding("mxfp8")));
    }

    #[test]
    fn wide_elements_round_as_the_language_does() {
        for value in [1.0, 1.0 + 1.0 / 256.0, -3.1e38, 3.4e38, 1e-40, 65519.0, 65520.0, f64::INFINITY] {
            let (bf16, f16) = (half::bf16::from_f64(value), half::f16::from_f64(value));
            assert_eq!(encode_element(ElementType::Bf16, value), u32::from(bf16.to_bits()), "{value}");
            assert_eq!(encode_element(ElementType::F16, value), u32::from(f16.to_bits()), "{value}");
            assert_eq!(encode_element(ElementType::F32, value), (value as f32).to_bits(), "{value}");
        }
    }
}
