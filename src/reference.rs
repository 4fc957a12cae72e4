//! The slow, obvious implementation in f64 that results are judged by.
//!
//! Everything here is written from the definition of a format or of the layer, and shares no code
//! with the engines or with generated maps: payloads are row-major and scales linear throughout.

mod numbers;

use rayon::prelude::*;

pub use numbers::{
    decode_element, decode_scale, dequantize, encode_element, quantize_dequantize, quantize_rows,
};

use numbers::{Codes, matrix_bytes, row_values};

use crate::config::ActivationFunction;
use crate::format::{FormatSpec, Rounding, ScaleType};
use crate::weights::canonical::{Canonical, Stack};

/// Something that the reference has no definition for, or operands that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoReference {
    /// A format with a global scale: its value is not among the operands.
    #[error("the reference has no global scale for `{0}`")]
    Global(&'static str),
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

/// Payload and scales of the matrix of one expert.
fn expert<'a>(format: &FormatSpec, stack: &'a Stack, expert: usize) -> (&'a [u8], &'a [u8]) {
    let (payload, scales) = matrix_bytes(format, stack.rows, stack.cols);
    (&stack.payload[expert * payload..][..payload], &stack.scales[expert * scales..][..scales])
}

/// `weights` with all three stacks in the format `to`: dequantised, then quantised.
///
/// # Errors
/// As [`dequantize`] and [`quantize_rows`].
pub fn requantize(
    weights: &Canonical,
    to: &'static FormatSpec,
    rounding: Option<Rounding>,
) -> Result<Canonical, NoReference> {
    check_sizes(weights)?;
    let requantize = |stack: &Stack| {
        let experts: Vec<_> = (0..weights.experts)
            .into_par_iter()
            .map(|index| {
                let (payload, scales) = expert(weights.format, stack, index);
                let values = dequantize(weights.format, stack.rows, stack.cols, payload, scales)?;
                quantize_rows(&values, stack.cols, to, rounding)
            })
            .collect::<Result<_, NoReference>>()?;
        let (payload, scales): (Vec<_>, Vec<_>) = experts.into_iter().unzip();
        Ok(Stack { rows: stack.rows, cols: stack.cols, payload: payload.concat(), scales: scales.concat() })
    };
    Ok(Canonical {
        format: to,
        gate: requantize(&weights.gate)?,
        up: requantize(&weights.up)?,
        down: requantize(&weights.down)?,
        ..weights.clone()
    })
}

fn check_sizes(weights: &Canonical) -> Result<(), NoReference> {
    let Canonical { format, experts, hidden, intermediate, .. } = *weights;
    if format.global.is_some() {
        return Err(NoReference::Global(format.name));
    }
    for (stack, rows, cols) in [
        (&weights.gate, intermediate, hidden),
        (&weights.up, intermediate, hidden),
        (&weights.down, hidden, intermediate),
    ] {
        sized("the rows of a weight", stack.rows, rows)?;
        sized("the columns of a weight", stack.cols, cols)?;
        let (payload, scales) = matrix_bytes(format, rows, cols);
        sized("the payload of a weight", stack.payload.len(), experts * payload)?;
        sized("the scales of a weight", stack.scales.len(), experts * scales)?;
    }
    if let Some(biases) = &weights.biases {
        sized("the gate bias", biases.gate.len(), experts * intermediate)?;
        sized("the up bias", biases.up.len(), experts * intermediate)?;
        sized("the down bias", biases.down.len(), experts * hidden)?;
    }
    Ok(())
}

/// The experts of each token, tokens outermost: `tokens` × `top_k` ids, and a weight for each.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// Experts.
    pub ids: &'a [u32],
    /// Router weights.
    pub weights: &'a [f32],
    /// Experts of one token.
    pub top_k: usize,
}

/// One activated value: the function of a gate and an up value.
pub fn activate(function: ActivationFunction, gate: f64, up: f64) -> f64 {
    match function {
        ActivationFunction::Silu => gate / (1.0 + (-gate).exp()) * up,
        ActivationFunction::Swigluoai { alpha, beta, limit } => {
            let (alpha, beta, limit) = (f64::from(alpha), f64::from(beta), f64::from(limit));
            // Comparisons, not `min` and `clamp`: NaN has to stay.
            let gate = if gate > limit { limit } else { gate };
            let up = if up > limit { limit } else { up };
            let up = if up < -limit { -limit } else { up };
            gate / (1.0 + (-alpha * gate).exp()) * (up + beta)
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The MoE layer: `tokens` × `hidden` output values for as many input values.
///
/// `input` are the values that GEMM1 reads, that is, dequantised ones where the backend reads
/// quantised tokens. `gemm2` says what the activated values go through before GEMM2: a format, and
/// the rounding of its scales; `None` leaves them as they are.
///
/// # Errors
/// [`NoReference`] if buffers do not fit together or a format has no rule.
pub fn layer(
    weights: &Canonical,
    activation: ActivationFunction,
    chosen: Chosen<'_>,
    input: &[f64],
    gemm2: Option<(&FormatSpec, Option<Rounding>)>,
) -> Result<Vec<f64>, NoReference> {
    check_sizes(weights)?;
    let Canonical { format, experts, hidden, intermediate, .. } = *weights;
    let tokens = input.len().checked_div(hidden).unwrap_or(0);
    sized("the input", input.len(), tokens * hidden)?;
    sized("the routed ids", chosen.ids.len(), tokens * chosen.top_k)?;
    sized("the router weights", chosen.weights.len(), tokens * chosen.top_k)?;
    if let Some(&expert) = chosen.ids.iter().find(|id| **id as usize >= experts) {
        return Err(NoReference::Expert { expert, experts });
    }
    let codes = Codes::new(format.element);
    let mut output = vec![0.0; input.len()];
    for index in 0..experts {
        let slots: Vec<usize> =
            (0..chosen.ids.len()).filter(|slot| chosen.ids[*slot] as usize == index).collect();
        if slots.is_empty() {
            continue;
        }
        // Each weight row is decoded once, for all tokens of the expert.
        let project = |stack: &Stack, bias: Option<&Vec<f32>>, rows: &[&[f64]]| -> Vec<Vec<f64>> {
            let (payload, scales) = expert(format, stack, index);
            (0..stack.rows)
                .into_par_iter()
                .map(|row| {
                    let weight = row_values(&codes, format, stack.cols, row, payload, scales);
                    let bias = bias.map_or(0.0, |bias| f64::from(bias[index * stack.rows + row]));
                    rows.iter().map(|values| dot(&weight, values) + bias).collect()
                })
                .collect()
        };
        let biases = weights.biases.as_ref();
        let rows: Vec<&[f64]> =
            slots.iter().map(|slot| &input[slot / chosen.top_k * hidden..][..hidden]).collect();
        let gate = project(&weights.gate, biases.map(|biases| &biases.gate), &rows);
        let up = project(&weights.up, biases.map(|biases| &biases.up), &rows);
        let mut middle: Vec<f64> = Vec::with_capacity(slots.len() * intermediate);
        for slot in 0..slots.len() {
            middle.extend((0..intermediate).map(|row| activate(activation, gate[row][slot], up[row][slot])));
        }
        if let Some((format, rounding)) = gemm2 {
            middle = quantize_dequantize(&middle, intermediate, format, rounding)?;
        }
        let rows: Vec<&[f64]> = middle.chunks(intermediate.max(1)).collect();
        let down = project(&weights.down, biases.map(|biases| &biases.down), &rows);
        for (index, slot) in slots.iter().enumerate() {
            let weight = f64::from(chosen.weights[*slot]);
            let output = &mut output[slot / chosen.top_k * hidden..][..hidden];
            output.iter_mut().zip(&down).for_each(|(output, down)| *output += weight * down[index]);
        }
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BlockScale, ElementType};

    static BF16: FormatSpec =
        FormatSpec { name: "bf16", element: ElementType::Bf16, block: None, global: None };
    static MXFP8: FormatSpec = FormatSpec {
        name: "mxfp8",
        element: ElementType::E4m3,
        block: Some(BlockScale { scale: ScaleType::E8m0, rows: 1, cols: 32 }),
        global: None,
    };
    static FP8_BLOCK: FormatSpec = FormatSpec {
        name: "fp8_128x128",
        element: ElementType::E4m3,
        block: Some(BlockScale { scale: ScaleType::F32, rows: 128, cols: 128 }),
        global: None,
    };

    fn stack(rows: usize, cols: usize, values: &[f64]) -> Stack {
        let (payload, scales) = quantize_rows(values, cols, &BF16, None).unwrap();
        Stack { rows, cols, payload, scales }
    }

    /// One hidden and one intermediate value, two experts.
    fn tiny() -> Canonical {
        Canonical {
            format: &BF16,
            experts: 2,
            hidden: 1,
            intermediate: 1,
            gate: stack(1, 1, &[1.0, 2.0]),
            up: stack(1, 1, &[3.0, -1.0]),
            down: stack(1, 1, &[0.5, 4.0]),
            biases: None,
        }
    }

    #[test]
    fn a_layer_by_hand() {
        let chosen = Chosen { ids: &[1, 0], weights: &[0.25, 0.75], top_k: 2 };
        let output = layer(&tiny(), ActivationFunction::Silu, chosen, &[2.0], None).unwrap();
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let expected = 0.25 * silu(4.0) * -2.0 * 4.0 + 0.75 * silu(2.0) * 6.0 * 0.5;
        assert!((output[0] - expected).abs() < 1e-12);
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let run =
            |weights: &Canonical, chosen| layer(weights, ActivationFunction::Silu, chosen, &[2.0], None);
        let beyond = Chosen { ids: &[2], weights: &[1.0], top_k: 1 };
        assert_eq!(run(&tiny(), beyond), Err(NoReference::Expert { expert: 2, experts: 2 }));
        let short = Chosen { ids: &[0], weights: &[1.0, 1.0], top_k: 1 };
        assert!(matches!(run(&tiny(), short), Err(NoReference::Size { .. })));
        let mut cut = tiny();
        cut.down.payload.pop();
        let chosen = Chosen { ids: &[0], weights: &[1.0], top_k: 1 };
        assert!(matches!(run(&cut, chosen), Err(NoReference::Size { .. })));
    }

    #[test]
    fn blocks_of_rows_share_a_scale() {
        let values: Vec<f64> = (0..130 * 2).map(f64::from).collect();
        let (payload, scales) = quantize_rows(&values, 2, &FP8_BLOCK, None).unwrap();
        assert_eq!((payload.len(), scales.len()), (260, 8));
        let scale = |bytes: &[u8]| decode_scale(ScaleType::F32, bytes);
        assert_eq!(scale(&scales[..4]), f64::from(255f32 / 448.0));
        assert_eq!(scale(&scales[4..]), f64::from(259f32 / 448.0));
        let back = dequantize(&FP8_BLOCK, 130, 2, &payload, &scales).unwrap();
        assert!(
            values.iter().zip(&back).all(|(value, back)| (value - back).abs() <= value.abs() / 16.0 + 0.01)
        );
    }

    #[test]
    fn partial_blocks_count_as_padded() {
        let values: Vec<f64> = (0..40).map(|value| f64::from(value) / 8.0).collect();
        let padded: Vec<f64> = values.iter().copied().chain([0.0; 24]).collect();
        let rceil = Some(Rounding::Rceil);
        let whole = quantize_dequantize(&padded, 64, &MXFP8, rceil).unwrap();
        assert_eq!(quantize_dequantize(&values, 40, &MXFP8, rceil).unwrap(), whole[..40]);
        assert_eq!(quantize_rows(&values, 40, &MXFP8, None), Err(NoReference::Rounding("mxfp8")));
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
