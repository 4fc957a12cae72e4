//! One layer on one row, and how far it is from the reference.

use std::time::{Duration, Instant};

use half::bf16;

use crate::backend::{Contract, InputLayout, Known};
use crate::config::{self, ActivationFunction, Refused};
use crate::cpu::layer::{LayerError, forward};
use crate::cpu::quantize::{QuantizeError, quantize_prepared};
use crate::format::FormatSpec;
use crate::layout::Layout;
use crate::moe::routing::Routing;
use crate::reference::{self, Chosen, NoReference};
use crate::tensor::{RawQuantized, Tokens, WrongSize, scale_extent};
use crate::weights::canonical::Canonical;
use crate::weights::prepared::{PrepareError, prepare};

use super::fixtures::{handed, misreading};

/// The largest relative Frobenius error on the same quantised operands: bf16 output rounds to 2^-9,
/// and an intermediate value may fall to the other side of a rounding boundary.
pub const TOLERANCE: f64 = 1e-2;

/// A layer to run.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The weights, as loaded.
    pub weights: &'a Canonical,
    /// The tokens.
    pub tokens: Tokens<'a, bf16>,
    /// Where they go.
    pub routing: &'a Routing,
    /// The activation function.
    pub activation: ActivationFunction,
}

/// What came of it. Errors are relative, in the Frobenius norm.
#[derive(Debug, Clone)]
pub struct Measure {
    /// `tokens` × hidden.
    pub output: Vec<bf16>,
    /// Against the reference on the same quantised operands.
    pub error_quantised: f64,
    /// Against the reference without any quantisation of tokens.
    pub error_layer: f64,
    /// As `error_quantised`, when the scales of the tokens are read in another layout; `None` if the
    /// row has no layout at stake.
    pub error_wrong_layout: Option<f64>,
    /// Quantising the tokens and running the layer.
    pub elapsed: Duration,
}

/// Why a case could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The weights.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The tokens.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The layer.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The reference.
    #[error(transparent)]
    Reference(#[from] NoReference),
    /// A buffer.
    #[error(transparent)]
    Size(#[from] WrongSize),
}

/// The nearest thing to `activation` and `weights` that the row runs: where it refuses the function
/// or a parameter of it, the first function that it honours; where it refuses biases, none. `None`
/// where nothing has to change.
pub fn adapt(
    contract: &Contract,
    activation: ActivationFunction,
    weights: &Canonical,
) -> (ActivationFunction, Option<Canonical>, Option<Refused>) {
    let refused = config::check(contract, activation).err();
    let activation = match refused {
        None => activation,
        Some(_) => super::fixtures::function(contract.activations[0].function, contract),
    };
    let biased = weights.biases.is_some() && contract.weight.bias.is_none();
    let without = biased.then(|| Canonical { biases: None, ..weights.clone() });
    (activation, without, refused)
}

/// Runs `case` on the row.
///
/// # Errors
/// [`Failure`] if the row does not take the case.
pub fn measure(contract: &Contract, case: &Case<'_>) -> Result<Measure, Failure> {
    let prepared = prepare(contract, case.activation.kind(), case.weights)?;
    let format = handed(contract);
    let start = Instant::now();
    let input = quantize_prepared(contract, format, case.tokens)?;
    let output = forward(contract, case.activation, &prepared, &input, case.routing)?;
    let elapsed = start.elapsed();

    let judged = reference_output(contract, case, &input)?;
    let error_wrong_layout = match misread(contract, case, &input)? {
        None => None,
        Some((misreading, input)) => {
            let output = forward(&misreading, case.activation, &prepared, &input, case.routing)?;
            Some(relative_error(&output, &judged))
        }
    };
    let unquantised = unquantised_output(case)?;
    Ok(Measure {
        error_quantised: relative_error(&output, &judged),
        error_layer: relative_error(&output, &unquantised),
        error_wrong_layout,
        elapsed,
        output,
    })
}

/// What the row should make of the operands that it was given, by the reference.
pub(super) fn reference_output(
    contract: &Contract,
    case: &Case<'_>,
    input: &RawQuantized,
) -> Result<Vec<f64>, Failure> {
    let hidden = case.weights.hidden;
    let linear = linear_scales(contract.gemm1_input.layout, input)?;
    let mut values = reference::dequantize(input.format, input.rows, input.cols, &input.payload, &linear)?;
    let read = contract.gemm1_input.formats[0];
    if *input.format != *read {
        // The experts quantise.
        values = reference::quantize_dequantize(&values, input.cols, read, contract.gemm1_input.rounding)?;
    }
    let logical: Vec<f64> =
        values.chunks(input.cols.max(1)).flat_map(|row| &row[..hidden]).copied().collect();
    let gemm2 = contract.gemm2_input.as_ref().map(|gemm2| (gemm2.formats[0], gemm2.rounding));
    let own_format = contract.weight.format;
    if case.weights.format == own_format {
        Ok(reference::layer(case.weights, case.activation, chosen(case.routing), &logical, gemm2)?)
    } else {
        let weights = reference::requantize(case.weights, own_format, weight_rounding(own_format))?;
        Ok(reference::layer(&weights, case.activation, chosen(case.routing), &logical, gemm2)?)
    }
}

/// What the layer makes of its tokens without quantising them.
fn unquantised_output(case: &Case<'_>) -> Result<Vec<f64>, Failure> {
    let rows = (0..case.tokens.rows()).flat_map(|row| case.tokens.row(row));
    let values: Vec<f64> = rows.map(|value| f64::from(value.to_f32())).collect();
    Ok(reference::layer(case.weights, case.activation, chosen(case.routing), &values, None)?)
}

fn chosen(routing: &Routing) -> Chosen<'_> {
    Chosen { ids: routing.ids(), weights: routing.weights(), top_k: routing.top_k() }
}

/// Weights that are requantised choose power-of-two scales as preparation does.
fn weight_rounding(format: &FormatSpec) -> Option<crate::format::Rounding> {
    let power_of_two = format.block.is_some_and(|block| block.scale == crate::format::ScaleType::E8m0);
    power_of_two.then_some(crate::format::Rounding::Rceil)
}

/// The scales of `input`, row by row, read digit by digit.
fn linear_scales(layout: Known<InputLayout>, input: &RawQuantized) -> Result<Vec<u8>, Failure> {
    let (Some(block), Known::Is(layout)) = (input.format.block, layout) else { return Ok(Vec::new()) };
    let logical = scale_extent(input.format, input.rows, input.cols)?;
    let physical = layout.prepared.physical(logical).map_err(WrongSize::from)?;
    let size = block.scale.bytes();
    let places = (0..logical.rows).flat_map(|row| (0..logical.cols).map(move |col| (row, col)));
    let offsets = places.map(|(row, col)| layout.prepared.offset_by_digits(row, col, physical) * size);
    Ok(offsets.flat_map(|offset| input.scales[offset..][..size].iter().copied()).collect())
}

/// A contract that reads the tokens' scales in another layout, and the bytes of `input` as it would
/// find them: the same buffer, cut or continued with zeros to the size that it reads. `None` if there
/// are no scales, or so few that both layouts put all that belong to a value in the same places.
fn misread(
    contract: &Contract,
    case: &Case<'_>,
    input: &RawQuantized,
) -> Result<Option<(Contract, RawQuantized)>, Failure> {
    let (Some(block), Known::Is(layout)) = (input.format.block, contract.gemm1_input.layout) else {
        return Ok(None);
    };
    let (own, other): (_, &'static Layout) = (layout.prepared, misreading(layout.prepared));
    let logical = scale_extent(input.format, input.rows, input.cols)?;
    let own_box = own.physical(logical).map_err(WrongSize::from)?;
    let other_box = other.physical(logical).map_err(WrongSize::from)?;
    let cols = case.weights.hidden.div_ceil(block.cols);
    let mut places = (0..logical.rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
    if places.all(|(row, col)| {
        own.offset_by_digits(row, col, own_box) == other.offset_by_digits(row, col, other_box)
    }) {
        return Ok(None);
    }
    let mut contract = contract.clone();
    contract.gemm1_input.layout = Known::Is(InputLayout { prepared: other, kernel: layout.kernel });
    let mut input = RawQuantized { layout: other, ..input.clone() };
    input.scales.resize(other_box.count() * block.scale.bytes(), 0);
    Ok(Some((contract, input)))
}

pub(super) fn relative_error(output: &[bf16], judged: &[f64]) -> f64 {
    let difference: f64 =
        output.iter().zip(judged).map(|(got, want)| (f64::from(got.to_f32()) - want).powi(2)).sum();
    let magnitude: f64 = judged.iter().map(|want| want * want).sum();
    if magnitude == 0.0 { difference.sqrt() } else { (difference / magnitude).sqrt() }
}
