//! Weights in another format: dequantised, then quantised anew.

use rayon::prelude::*;

use super::canonical::{Canonical, Stack};
use crate::cpu::dequantize::dequantize_matrix;
use crate::cpu::quantize::global::global_scale;
use crate::cpu::quantize::{QuantizeError, quantize_matrix};
use crate::element::largest;
use crate::format::{FormatSpec, Reach, Rounding, ScaleType};
use crate::recipe::Recipe;
use crate::scale::{Calibrated, Multiplier, NotAScale, magnitude};
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
    #[error("expert {expert}: the largest magnitude of its weights is {}, and no scale follows from it", error.0)]
    Scale {
        /// The expert.
        expert: usize,
        /// The largest magnitude.
        error: NotAScale,
    },
    /// More or fewer experts than the weights say.
    #[error("the {projection} projection has the elements of other than {experts} experts of {rows}x{cols}")]
    Experts {
        /// `gate`, `up` or `down`.
        projection: &'static str,
        /// What the weights say.
        experts: usize,
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
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
    let named = weights.gate.iter().map(|gate| ("gate", gate));
    for (projection, stack) in named.chain([("up", &weights.up), ("down", &weights.down)]) {
        let (payload, _) = weights.format.matrix_bytes(stack.extent());
        if stack.payload.len() != weights.experts.saturating_mul(payload) {
            let Stack { rows, cols, .. } = *stack;
            return Err(RequantizeError::Experts { projection, experts: weights.experts, rows, cols });
        }
    }
    let halves: Vec<&Stack> = weights.gate.iter().chain([&weights.up]).collect();
    let of_halves = recipes(weights, &halves, to)?;
    let of_down = recipes(weights, &[&weights.down], to)?;
    let halve = |half: &Stack| stack(weights.format, half, to, &of_halves);
    Ok(Canonical {
        format: to,
        gate: weights.gate.as_ref().map(halve).transpose()?,
        up: halve(&weights.up)?,
        down: stack(weights.format, &weights.down, to, &of_down)?,
        ..weights.clone()
    })
}

/// `stack`, dequantised from `from` and quantised to `to`, each expert by its recipe.
pub(crate) fn stack(
    from: &'static FormatSpec,
    stack: &Stack,
    to: &'static FormatSpec,
    recipes: &[Recipe],
) -> Result<Stack, RequantizeError> {
    let requantized = |(expert, recipe): (usize, &Recipe)| {
        let values = dequantize_matrix(from, stack.matrix(from, expert))?;
        Ok(quantize_matrix(Tokens::new(&values, stack.rows, stack.cols)?, to, *recipe)?)
    };
    let experts = recipes.par_iter().enumerate().map(requantized);
    let experts = experts.collect::<Result<Vec<_>, RequantizeError>>()?;
    Ok(Stack::of_experts(stack.rows, stack.cols, experts.iter()))
}

/// How each expert's matrices are quantised to `to`, those of `stacks` together.
fn recipes(weights: &Canonical, stacks: &[&Stack], to: &FormatSpec) -> Result<Vec<Recipe>, RequantizeError> {
    let recipe = weight_recipe(to);
    let is_whole = to.block.is_some_and(|block| block.rows == Reach::Whole);
    let of_expert = |expert: usize| {
        if to.global.is_none() && !is_whole {
            return Ok(recipe);
        }
        let from = weights.format;
        let values = stacks.iter().map(|stack| dequantize_matrix(from, stack.matrix(from, expert)));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let amax = magnitude(values.iter().flatten().copied());
        let calibrated = calibrated(to, amax).map_err(|error| RequantizeError::Scale { expert, error })?;
        Ok(Recipe { calibrated: Some(calibrated), ..recipe })
    };
    (0..weights.experts).into_par_iter().map(of_expert).collect()
}

/// How weights are quantised to `to` where all scales are chosen from the numbers: powers of two by
/// [`Rounding::Rceil`].
pub(crate) fn weight_recipe(to: &FormatSpec) -> Recipe {
    let power_of_two = to.block.filter(|block| block.scale == ScaleType::E8m0);
    Recipe::dynamic(power_of_two.map(|_| Rounding::Rceil))
}

/// The one scale of numbers the largest of which is `amax`: of the second level, or of a tensor.
///
/// # Errors
/// [`NotAScale`] if none follows from it: zero, NaN, infinity, or too near to them.
pub(crate) fn calibrated(to: &FormatSpec, amax: f32) -> Result<Calibrated, NotAScale> {
    if to.global.is_some() {
        return global_scale(amax).map(Calibrated::Global).map_err(|_| NotAScale(amax));
    }
    Multiplier::new(amax / largest(to.element)).map(Calibrated::Static).map_err(|_| NotAScale(amax))
}
