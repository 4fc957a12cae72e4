//! One layer on one row, and how far it is from the reference.

use std::time::{Duration, Instant};

use half::bf16;

use crate::backend::{BiasType, Contract, InputContract, InputLayout, Known, QuantizeAt};
use crate::config::{self, ActivationFunction, LayerConfig, Refused};
use crate::cpu::layer::{LayerError, forward};
use crate::cpu::quantize::{QuantizeError, quantize, quantize_prepared};
use crate::cpu::scales::ROW_MAJOR;
use crate::moe::routing::{Routing, RoutingError};
use crate::recipe::Recipe;
use crate::reference::{self, Chosen, NoReference};
use crate::scale::{Calibrated, Divisor, NotAScale, magnitude};
use crate::tensor::{RawQuantized, Tokens, WrongSize, scale_extent};
use crate::weights::canonical::{Biases, Canonical, Matrix};
use crate::weights::prepared::{PrepareError, prepare};
use crate::weights::requantize::{RequantizeError, calibrated, requantize, weight_recipe};

use super::fixtures::handed;
use super::misread::{Misread, misread};

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
    /// What the caller decides.
    pub config: LayerConfig,
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
    /// What comes of reading scales in another layout.
    pub misread: Misread,
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
    /// The weights, in another format.
    #[error(transparent)]
    Requantize(#[from] RequantizeError),
    /// The router's weights on the tokens.
    #[error(transparent)]
    Routing(#[from] RoutingError),
    /// The row honours no function of weights of this kind.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A calibrated scale.
    #[error(transparent)]
    Scale(#[from] NotAScale),
}

/// What a row is given of a layer.
#[derive(Debug, Clone)]
pub struct Adapted {
    /// The function it runs.
    pub activation: ActivationFunction,
    /// The weights, where the row does not take them as they are.
    pub weights: Option<Canonical>,
    /// What it refuses of the function.
    pub refused: Option<Refused>,
}

/// The nearest thing to `activation` and `weights` that the row runs: where it refuses the function
/// or a parameter of it, the same function under another name or the first one that it honours; where
/// it refuses biases, none; where it reads another format, weights requantised to it.
///
/// # Errors
/// [`Failure`] if the row honours no function of such weights, or they cannot be requantised.
pub fn adapt(
    contract: &Contract,
    activation: ActivationFunction,
    weights: &Canonical,
) -> Result<Adapted, Failure> {
    let refused = config::honours(contract, activation).err();
    let activation = match &refused {
        None => activation,
        Some(refused) => nearest(contract, activation).ok_or_else(|| refused.clone())?,
    };
    let weight = &contract.weight;
    let taken = weight.requantize_from.unwrap_or(weight.format);
    let requantized = if weights.format == taken || weights.format == weight.format {
        None
    } else {
        Some(requantize(weights, taken)?)
    };
    let biased = weights.biases.is_some() && weight.bias.is_none();
    let weights = match requantized {
        None if biased => Some(Canonical { biases: None, ..weights.clone() }),
        None => None,
        Some(weights) if biased => Some(Canonical { biases: None, ..weights }),
        Some(weights) => Some(weights),
    };
    Ok(Adapted { activation, weights, refused })
}

/// The same function under its other name, if the row honours that, or the first function that it
/// honours of as many halves.
fn nearest(contract: &Contract, activation: ActivationFunction) -> Option<ActivationFunction> {
    let other_name = match activation {
        ActivationFunction::Swigluoai { alpha, beta, limit } => {
            Some(ActivationFunction::SwigluoaiUninterleave { alpha, beta, limit })
        }
        ActivationFunction::SwigluoaiUninterleave { alpha, beta, limit } => {
            Some(ActivationFunction::Swigluoai { alpha, beta, limit })
        }
        _ => None,
    };
    let honoured = |function: &ActivationFunction| config::honours(contract, *function).is_ok();
    other_name.filter(honoured).or_else(|| {
        let mut kinds = contract.activations.iter().map(|honoured| honoured.function);
        let kind = kinds.find(|kind| kind.halves() == activation.kind().halves())?;
        Some(super::fixtures::function(kind, contract))
    })
}

/// A configuration of the row whose calibrated scales, where it reads any, are those of this very
/// layer: of its tokens, and of what the reference makes of them between the GEMMs.
///
/// # Errors
/// [`Failure`] if there is nothing to calibrate on: all zeros, NaN or infinity.
pub fn calibrate(
    contract: &Contract,
    weights: &Canonical,
    tokens: Tokens<'_, bf16>,
    routing: &Routing,
    activation: ActivationFunction,
) -> Result<LayerConfig, Failure> {
    let (values, _) = routing.clone().weigh(tokens)?;
    let gemm1 = calibrated_on(&contract.gemm1_input, &values)?;
    let gemm2 = match &contract.gemm2_input {
        Some(gemm2) if gemm2.calibrated().is_some() => {
            let input: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
            let middle = reference::activated(weights, activation, chosen(routing), &input)?;
            let amax = magnitude(middle.iter().map(|value| *value as f32));
            Some(calibrated(gemm2.formats[0], amax)?)
        }
        _ => None,
    };
    Ok(LayerConfig { activation, gemm1, gemm2 })
}

/// The calibrated scale of `values` as GEMM input, if `input` reads one.
pub(super) fn calibrated_on(input: &InputContract, values: &[bf16]) -> Result<Option<Calibrated>, Failure> {
    let amax = magnitude(values.iter().map(|value| value.to_f32()));
    Ok(input.calibrated().map(|_| calibrated(input.formats[0], amax)).transpose()?)
}

/// Runs `case` on the row.
///
/// # Errors
/// [`Failure`] if the row does not take the case.
pub fn measure(contract: &Contract, case: &Case<'_>) -> Result<Measure, Failure> {
    let prepared = prepare(contract, case.config.activation.kind(), case.weights)?;
    let format = handed(contract);
    let start = Instant::now();
    let (weighed, routing) = case.routing.clone().weigh(case.tokens)?;
    let tokens = Tokens::new(&weighed, case.tokens.rows(), case.tokens.cols())?;
    let case = &Case { tokens, routing: &routing, ..*case };
    let input = quantize_prepared(contract, format, case.config.gemm1, case.tokens)?;
    let output = forward(contract, &case.config, &prepared, &input, case.routing)?;
    let elapsed = start.elapsed();

    let judged = reference_output(contract, case, &input)?;
    let misread = misread(contract, case, &prepared, &input, &judged)?;
    let unquantised = unquantised_output(case)?;
    Ok(Measure {
        error_quantised: relative_error(&output, &judged),
        error_layer: relative_error(&output, &unquantised),
        misread,
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
    let recipe = |rounding, calibrated| Recipe { rounding, calibrated, ..Recipe::default() };
    // Where experts quantise, it is by the quantiser that prepare has elsewhere: the operands are those
    // that GEMM1 reads.
    let InputContract { quantize: by, formats, rounding, multiple, layout, .. } = contract.gemm1_input;
    let inside = match (by, formats) {
        (Some(QuantizeAt::Expert), [format, ..]) if format.block.is_some() => {
            let recipe = recipe(rounding, case.config.gemm1);
            Some(quantize(case.tokens, format, recipe, &ROW_MAJOR, multiple)?)
        }
        _ => None,
    };
    let (operand, layout) = match &inside {
        Some(inside) => (inside, Known::Is(InputLayout::same(&ROW_MAJOR))),
        None => (input, layout),
    };
    let linear = linear_scales(layout, operand)?;
    let matrix = Matrix {
        rows: operand.rows,
        cols: operand.cols,
        payload: &operand.payload,
        scales: &linear,
        zero_points: &operand.zero_points,
        global: operand.global.map(Divisor::to_multiplier),
    };
    let values = reference::dequantize(operand.format, matrix)?;
    let logical: Vec<f64> =
        values.chunks(operand.cols.max(1)).flat_map(|row| &row[..hidden]).copied().collect();
    // Of several formats the caller's type decides, for both GEMMs.
    let gemm2 = contract.gemm2_input.as_ref().map(|gemm2| {
        let format = gemm2.formats.iter().find(|format| **format == input.format);
        (*format.unwrap_or(&gemm2.formats[0]), recipe(gemm2.rounding, case.config.gemm2))
    });
    let run =
        |weights| reference::layer(weights, case.config.activation, chosen(case.routing), &logical, gemm2);
    let own_format = contract.weight.format;
    let rounded = with_stored_biases(contract, case.weights);
    let weights = rounded.as_ref().unwrap_or(case.weights);
    if weights.format == own_format {
        Ok(run(weights)?)
    } else {
        Ok(run(&reference::requantize(weights, own_format, weight_recipe(own_format))?)?)
    }
}

/// The weights with their biases rounded to the type that the row stores, if it stores another type.
fn with_stored_biases(contract: &Contract, weights: &Canonical) -> Option<Canonical> {
    let bias = contract.weight.bias.filter(|bias| bias.dtype == BiasType::Bf16)?;
    let biases = weights.biases.as_ref()?;
    let rounded = |values: &[f32]| values.iter().map(|value| bias.dtype.round(*value)).collect();
    let (gate, up, down) = (rounded(&biases.gate), rounded(&biases.up), rounded(&biases.down));
    Some(Canonical { biases: Some(Biases { gate, up, down }), ..weights.clone() })
}

/// What the layer makes of its tokens without quantising them.
fn unquantised_output(case: &Case<'_>) -> Result<Vec<f64>, Failure> {
    let rows = (0..case.tokens.rows()).flat_map(|row| case.tokens.row(row));
    let values: Vec<f64> = rows.map(|value| value.to_f64()).collect();
    Ok(reference::layer(case.weights, case.config.activation, chosen(case.routing), &values, None)?)
}

fn chosen(routing: &Routing) -> Chosen<'_> {
    Chosen { ids: routing.ids(), weights: routing.weights(), top_k: routing.top_k() }
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

/// # Panics
/// If the two are not of one length.
pub(super) fn relative_error(output: &[bf16], judged: &[f64]) -> f64 {
    assert_eq!(output.len(), judged.len(), "outputs of one layer");
    let difference: f64 =
        output.iter().zip(judged).map(|(got, want)| (f64::from(got.to_f32()) - want).powi(2)).sum();
    let magnitude: f64 = judged.iter().map(|want| want * want).sum();
    if magnitude == 0.0 { difference.sqrt() } else { (difference / magnitude).sqrt() }
}
