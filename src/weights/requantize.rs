//! Weights in another format: dequantised, then quantised anew.

use rayon::prelude::*;

use super::canonical::{Canonical, Stack};
use crate::cpu::dequantize::dequantize_matrix;
use crate::cpu::quantize::global::{NoGlobalScale, global_scale};
use crate::cpu::quantize::{QuantizeError, quantize_matrix};
use crate::element::largest;
use crate::format::{FormatSpec, Reach, Rounding, ScaleType};
use crate::recipe::Recipe;
use crate::scale::{Calibrated, Multiplier};
use crate::tensor::{Tokens, WrongSize};

/// Why weights were not requantised.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RequantizeError {
    /// A buffer of the weights.
    #[error(transparent)]
    Size(#[from] WrongSize),
    /// The target format.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// An expert whose weights no scale follows from.
    #[error("expert {expert}: {error}")]
    Scale {
        /// The expert.
        expert: usize,
        /// What is wrong.
        error: NoGlobalScale,
    },
}

/// `weights` in the format `to`. Power-of-two scales are chosen by [`Rounding::Rceil`]. A scale of a
/// whole matrix and a second-level scale are chosen for gate and up together, because kernels read the
/// two as one.
///
/// # Errors
/// [`RequantizeError`] if a buffer does not have the size that its format asks for, nothing quantises to
/// `to`, or an expert's weights are all zero or not finite where one scale is chosen for all of them.
pub fn requantize(weights: &Canonical, to: &'static FormatSpec) -> Result<Canonical, RequantizeError> {
    let from = weights.format;
    let requantized = |stacks: &[&Stack]| -> Result<Vec<Stack>, RequantizeError> {
        let experts: Vec<Vec<Stack>> = (0..weights.experts)
            .into_par_iter()
            .map(|expert| {
                let values = stacks.iter().map(|stack| dequantize_matrix(from, stack.matrix(from, expert)));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                let recipe = recipe(to, &values).map_err(|error| RequantizeError::Scale { expert, error })?;
                let matrices = stacks.iter().zip(&values);
                let quantize = |(stack, values): (&&Stack, &Vec<f32>)| {
                    let tokens = Tokens::new(values, stack.rows, stack.cols)?;
                    let globals = match recipe.calibrated {
                        Some(Calibrated::Global(divisor)) => vec![divisor.to_multiplier()],
                        Some(Calibrated::Static(_)) | None => Vec::new(),
                    };
                    Ok(Stack { globals, ..quantize_matrix(tokens, to, recipe)? })
                };
                matrices.map(quantize).collect::<Result<Vec<_>, RequantizeError>>()
            })
            .collect::<Result<_, RequantizeError>>()?;
        let of_stack = |index: usize, stack: &&Stack| {
            let matrices = experts.iter().map(|expert| &expert[index]);
            Stack::of_experts(stack.rows, stack.cols, matrices)
        };
        Ok(stacks.iter().enumerate().map(|(index, stack)| of_stack(index, stack)).collect())
    };
    let first: Vec<&Stack> = weights.gate.iter().chain([&weights.up]).collect();
    let mut first = requantized(&first)?.into_iter().rev();
    let mut down = requantized(&[&weights.down])?.into_iter();
    let (Some(up), gate, Some(down)) = (first.next(), first.next(), down.next()) else {
        unreachable!("as many stacks come back as were given");
    };
    Ok(Canonical { format: to, gate, up, down, ..weights.clone() })
}

/// How the matrices of one expert that a kernel reads as one are quantised to `to`.
fn recipe(to: &FormatSpec, matrices: &[Vec<f32>]) -> Result<Recipe, NoGlobalScale> {
    let rounding = to.block.filter(|block| block.scale == ScaleType::E8m0).map(|_| Rounding::Rceil);
    let amax = || magnitude(matrices);
    let calibrated = match to.block {
        _ if to.global.is_some() => Some(Calibrated::Global(global_scale(amax())?)),
        Some(block) if block.rows == Reach::Whole => {
            let scale = Multiplier::new(amax() / largest(to.element));
            let error = |_| NoGlobalScale::Magnitude { part: 0, amax: amax() };
            Some(Calibrated::Static(scale.map_err(error)?))
        }
        _ => None,
    };
    Ok(Recipe { rounding, calibrated, ..Recipe::default() })
}

/// The largest magnitude, or NaN if there is one.
fn magnitude(matrices: &[Vec<f32>]) -> f32 {
    let bits = matrices.iter().flatten().map(|value| value.abs().to_bits()).max();
    f32::from_bits(bits.unwrap_or(0))
}
