//! One MoE layer on the CPU, read strictly by its contract.

use std::borrow::Cow;

use half::bf16;

use crate::backend::{Contract, Grouping, InputContract, Known, QuantizeAt};
use crate::config::{self, ActivationFunction, LayerConfig, Refused};
use crate::format::FormatSpec;
use crate::layout::{Half, Layout, UNSCALED};
use crate::moe::activation::activate;
use crate::moe::executable::{NotExecutable, known, said};
use crate::moe::grouping::{Unit, place};
use crate::moe::routing::{Permutation, Routing, RoutingError};
use crate::recipe::Recipe;
use crate::scale::Calibrated;
use crate::tensor::{RawQuantized, Tokens, WrongSize};
use crate::weights::prepared::{MatrixPlan, Plan, PrepareError, PreparedMatrix, RawPrepared, plan, word};

use super::dequantize::dequantize;
use super::gemm::Weights;
use super::permute::{KernelRows, gather};
use super::quantize::{QuantizeError, padded, quantize};
use super::repack::{RepackError, repack};
use super::scales::ROW_MAJOR;

/// Why a layer was not executed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LayerError {
    /// This crate does not execute the row.
    #[error(transparent)]
    NotExecutable(#[from] NotExecutable),
    /// The row does not honour the activation function.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The row does not take weights of these sizes.
    #[error(transparent)]
    Weights(#[from] PrepareError),
    /// The weights were prepared for another activation function, whose row order may differ.
    #[error("the weights are prepared for {prepared}, the layer runs {runs}")]
    Activation {
        /// Prepared for.
        prepared: crate::backend::Activation,
        /// Asked for.
        runs: crate::backend::Activation,
    },
    /// Weights that were prepared for another row.
    #[error("the weights are prepared for backend `{prepared}`, and the layer runs on `{runs}`")]
    Row {
        /// Prepared for.
        prepared: &'static str,
        /// Asked for.
        runs: &'static str,
    },
    /// Tokens with their scales in another layout than the row is handed.
    #[error("backend `{row}` is handed scales in layout `{expected}`, not `{got}`; convert with `relayout`")]
    Layout {
        /// The row.
        row: &'static str,
        /// What it is handed.
        expected: &'static str,
        /// What came.
        got: &'static str,
    },
    /// A buffer of the weights.
    #[error("the {matrix} {buffer} of backend `{row}` take {expected}, not {got}")]
    Buffer {
        /// The row.
        row: &'static str,
        /// `gate_up` or `down`.
        matrix: &'static str,
        /// `payload bytes`, `scale bytes`, `second-level scales` or `biases`.
        buffer: &'static str,
        /// What the contract asks for.
        expected: usize,
        /// What there is.
        got: usize,
    },
    /// The row reads no tokens in the format.
    #[error("backend `{row}` does not read tokens in `{format}`")]
    Format {
        /// The row.
        row: &'static str,
        /// The format.
        format: &'static str,
    },
    /// Tokens of another hidden size.
    #[error("backend `{row}` reads tokens of {expected} elements (hidden {hidden}, padded), not {got}")]
    Hidden {
        /// The row.
        row: &'static str,
        /// The model's hidden size.
        hidden: usize,
        /// With the row's padding.
        expected: usize,
        /// What there is.
        got: usize,
    },
    /// A routing for another layer or other tokens.
    #[error("the routing is of {got} {what}, the layer has {expected}")]
    Routing {
        /// `tokens` or `experts`.
        what: &'static str,
        /// The layer's.
        expected: usize,
        /// The routing's.
        got: usize,
    },
    /// Scales that the row does not take as they are.
    #[error(transparent)]
    Repack(#[from] RepackError),
    /// Router weights that are still to multiply the tokens.
    #[error(transparent)]
    Unweighed(#[from] RoutingError),
    /// Tokens that were quantised by another calibrated scale than the layer's.
    #[error(
        "backend `{row}` is configured with another calibrated scale than its tokens were quantised by; a \
         kernel would multiply by the wrong one"
    )]
    Calibrated {
        /// The row.
        row: &'static str,
    },
    /// A buffer of tokens.
    #[error(transparent)]
    Size(#[from] WrongSize),
    /// Quantisation inside the layer.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
}

/// Runs one layer: `tokens` × hidden bf16, row-major.
///
/// Every size, place and order comes from `contract` and the logical sizes; tokens that say that they
/// are in another layout are refused. GEMMs sum in f32, the
/// input of the second is quantised as the row says, and experts are combined in f32 in ascending
/// order.
///
/// # Errors
/// [`LayerError`] if the row is not executed here or does not take what it is given.
pub fn forward(
    contract: &Contract,
    config: &LayerConfig,
    weights: &RawPrepared,
    input: &RawQuantized,
    routing: &Routing,
) -> Result<Vec<bf16>, LayerError> {
    config::check(contract, config)?;
    let activation = config.activation;
    let plan = plan(contract, activation.kind(), weights.logical)?;
    check(contract, config, &plan, weights, input, routing)?;
    let permutation = routing.by_expert();

    let rows = gemm1_rows(contract, config, input, &permutation, weights.logical.hidden)?;
    let intermediate = gemm1(contract, &plan, weights, &rows, &permutation, activation);

    let width = plan.physical.intermediate;
    let routed = Tokens::new(&intermediate, permutation.pairs().len(), width)?;
    let rows = gemm2_rows(contract, config, input.format, routed, &permutation)?;
    let combined = gemm2(contract, &plan, weights, &rows, &permutation, routing);
    Ok(combined.into_iter().map(bf16::from_f32).collect())
}

fn check(
    contract: &Contract,
    config: &LayerConfig,
    plan: &Plan,
    weights: &RawPrepared,
    input: &RawQuantized,
    routing: &Routing,
) -> Result<(), LayerError> {
    routing.check_weighed()?;
    check_calibrated(contract, config, input)?;
    let (prepared, runs) = (weights.activation, config.activation.kind());
    if prepared != runs {
        return Err(LayerError::Activation { prepared, runs });
    }
    let experts = weights.logical.experts;
    let (tokens, row) = (input.rows, contract.name);
    if weights.row != row {
        return Err(LayerError::Row { prepared: weights.row, runs: row });
    }
    if let (Some(_), Known::Is(layout)) = (input.format.block, contract.gemm1_input.layout)
        && input.layout != layout.prepared
    {
        return Err(LayerError::Layout { row, expected: layout.prepared.name, got: input.layout.name });
    }
    for (what, expected, got) in
        [("tokens", tokens, routing.tokens()), ("experts", experts, routing.experts())]
    {
        if expected != got {
            return Err(LayerError::Routing { what, expected, got });
        }
    }
    let matrices = [("gate_up", &plan.gate_up, &weights.gate_up), ("down", &plan.down, &weights.down)];
    for (matrix, plan, stored) in matrices {
        let takes = if contract.weight.bias.is_some() { plan.rows() } else { 0 };
        let biases = stored.bias.as_ref().map(|bias| ("biases", takes, bias.len()));
        let payload = ("payload bytes", plan.payload_bytes(), stored.payload.len());
        let scales = ("scale bytes", plan.scale_bytes(), stored.scales.len());
        let globals = usize::from(plan.format.global.is_some());
        let globals = ("second-level scales", globals, stored.globals.len());
        for (buffer, of_expert, got) in [payload, scales, globals].into_iter().chain(biases) {
            let expected = experts * of_expert;
            if expected != got {
                return Err(LayerError::Buffer { row, matrix, buffer, expected, got });
            }
        }
    }
    Ok(())
}

/// A kernel applies the calibrated scale of its configuration, whatever the tokens were quantised by.
fn check_calibrated(
    contract: &Contract,
    config: &LayerConfig,
    input: &RawQuantized,
) -> Result<(), LayerError> {
    let agrees = match config.gemm1 {
        // Experts that quantise do it by the configuration.
        _ if contract.gemm1_input.quantize == Some(QuantizeAt::Expert) => true,
        _ if input.rows == 0 => true,
        None => true,
        Some(Calibrated::Global(global)) => input.global == Some(global),
        Some(Calibrated::Static(scale)) => input.scales == scale.get().to_le_bytes(),
    };
    if agrees { Ok(()) } else { Err(LayerError::Calibrated { row: contract.name }) }
}

/// The tokens as GEMM1's kernel reads them.
fn gemm1_rows(
    contract: &Contract,
    config: &LayerConfig,
    input: &RawQuantized,
    permutation: &Permutation,
    hidden: usize,
) -> Result<KernelRows, LayerError> {
    let row = contract.name;
    let contract_input = &contract.gemm1_input;
    let handed = contract_input.quantize.unwrap_or(QuantizeAt::Prepare);
    let (tokens, prepared) = match (handed, contract_input.formats) {
        (QuantizeAt::Expert, [format, ..]) if format.block.is_some() => {
            (Cow::Owned(quantize_inside(contract, config, input, format, hidden)?), &ROW_MAJOR)
        }
        _ if contract_input.handed().contains(&input.format) => {
            let layout = match input.format.block {
                None => &UNSCALED,
                Some(_) => known(contract, "gemm1_input.layout", contract_input.layout)?.prepared,
            };
            (Cow::Borrowed(input), layout)
        }
        _ => return Err(LayerError::Format { row, format: input.format.name }),
    };
    let tokens = match contract_input.prepared_format {
        Some(_) => Cow::Owned(repack(&tokens, prepared, contract_input.formats[0])?),
        None => tokens,
    };
    let expected = padded(hidden, tokens.format, contract_input.multiple);
    if tokens.cols != expected {
        return Err(LayerError::Hidden { row, hidden, expected, got: tokens.cols });
    }
    let kernel = match tokens.format.block {
        None => &UNSCALED,
        Some(_) => known(contract, "gemm1_input.layout", contract_input.layout)?.kernel,
    };
    let grouping = grouping(contract, tokens.format, contract_input.grouping)?;
    let placement = place(grouping, permutation, Unit::Token);
    let token = |routed: usize| permutation.pairs()[routed].token;
    Ok(gather(&tokens, prepared, kernel, placement, token)?)
}

/// For rows whose experts quantise: `input` is tokens without scales, padded or as they come.
fn quantize_inside(
    contract: &Contract,
    config: &LayerConfig,
    input: &RawQuantized,
    format: &'static FormatSpec,
    hidden: usize,
) -> Result<RawQuantized, LayerError> {
    let row = contract.name;
    if input.format.block.is_some() {
        return Err(LayerError::Format { row, format: input.format.name });
    }
    let InputContract { rounding, multiple, .. } = contract.gemm1_input;
    let expected = padded(hidden, input.format, multiple);
    if input.cols != hidden && input.cols != expected {
        return Err(LayerError::Hidden { row, hidden, expected, got: input.cols });
    }
    let values = dequantize(input, &UNSCALED)?;
    let tokens = Tokens::new(&values, input.rows, input.cols)?;
    let recipe = Recipe { calibrated: config.gemm1, ..Recipe::dynamic(rounding) };
    Ok(quantize(tokens, format, recipe, &ROW_MAJOR, multiple)?)
}

/// The activated rows as GEMM2's kernel reads them; `routed` holds them packed, experts ascending.
fn gemm2_rows(
    contract: &Contract,
    config: &LayerConfig,
    tokens_format: &'static FormatSpec,
    routed: Tokens<'_, f32>,
    permutation: &Permutation,
) -> Result<KernelRows, LayerError> {
    let input = said(contract, "gemm2_input", contract.gemm2_input.as_ref())?;
    // With several formats the caller's type decides.
    let of_caller = input.formats.iter().find(|format| **format == tokens_format);
    let format = *said(contract, "gemm2_input.format", of_caller.or(input.formats.first()))?;
    let kernel: &'static Layout = match (format.block, input.layout) {
        (None, _) => &UNSCALED,
        (Some(_), Known::Is(layout)) => layout.kernel,
        // It never leaves the kernel, so any layout does.
        (Some(_), Known::Vendor(_)) => &ROW_MAJOR,
    };
    let recipe = Recipe { calibrated: config.gemm2, ..Recipe::dynamic(input.rounding) };
    let quantized = quantize(routed, format, recipe, &ROW_MAJOR, input.multiple)?;
    let grouping = grouping(contract, format, input.grouping.or(contract.gemm1_input.grouping))?;
    let placement = place(grouping, permutation, Unit::Pair);
    Ok(gather(&quantized, &ROW_MAJOR, kernel, placement, |routed| routed)?)
}

/// How rows are grouped. Without block scales nothing hangs on it, so a row need not say.
fn grouping(
    contract: &Contract,
    format: &FormatSpec,
    grouping: Option<Grouping>,
) -> Result<Grouping, NotExecutable> {
    match format.block {
        None => Ok(grouping.unwrap_or(Grouping::Tokens)),
        Some(_) => said(contract, "gemm1_input.grouping", grouping),
    }
}

/// GEMM1 and the activation: routed rows × padded intermediate size, experts ascending.
fn gemm1(
    contract: &Contract,
    plan: &Plan,
    weights: &RawPrepared,
    rows: &KernelRows,
    permutation: &Permutation,
    activation: ActivationFunction,
) -> Vec<f32> {
    let (logical, physical) = (weights.logical.intermediate, plan.physical.intermediate);
    let matrices = matrices(contract, &plan.gate_up, &weights.gate_up, rows);
    let mut activated = vec![0.0; permutation.pairs().len() * physical];
    for (expert, (first, inputs)) in inputs(&plan.gate_up, rows, permutation) {
        let width = width(&plan.gate_up, rows);
        let halves = plan.gate_up.halves;
        let products = matrices.multiply(expert, &inputs, width, halves * logical, |output| {
            let half = if output < logical { Half::Gate } else { Half::Up };
            plan.gate_up.position((halves == 2).then_some(half), output % logical)
        });
        let count = permutation.counts()[expert];
        // Plain weights have one half, which stands for both.
        let (gate, up) = (&products[..logical * count], &products[(halves - 1) * logical * count..]);
        for (row, activated) in activated[first * physical..].chunks_mut(physical).take(count).enumerate() {
            for (col, value) in activated[..logical].iter_mut().enumerate() {
                *value = activate(activation, gate[col * count + row], up[col * count + row]);
            }
        }
    }
    activated
}

/// GEMM2 and the weighted sum over experts: tokens × logical hidden size.
fn gemm2(
    contract: &Contract,
    plan: &Plan,
    weights: &RawPrepared,
    rows: &KernelRows,
    permutation: &Permutation,
    routing: &Routing,
) -> Vec<f32> {
    let hidden = weights.logical.hidden;
    let matrices = matrices(contract, &plan.down, &weights.down, rows);
    let mut combined = vec![0.0; permutation.tokens() * hidden];
    for (expert, (first, inputs)) in inputs(&plan.down, rows, permutation) {
        let width = width(&plan.down, rows);
        let products = matrices.multiply(expert, &inputs, width, hidden, |row| plan.down.position(None, row));
        let count = permutation.counts()[expert];
        for (row, pair) in permutation.pairs()[first..first + count].iter().enumerate() {
            let weight = routing.weights()[pair.token * routing.top_k() + pair.slot];
            for (col, sum) in combined[pair.token * hidden..][..hidden].iter_mut().enumerate() {
                *sum += weight * products[col * count + row];
            }
        }
    }
    combined
}

fn matrices<'a>(
    contract: &Contract,
    plan: &'a MatrixPlan,
    matrix: &'a PreparedMatrix,
    rows: &KernelRows,
) -> Weights<'a> {
    let payload = match plan.payload.word {
        None => Cow::Borrowed(matrix.payload.as_slice()),
        Some(step) => {
            let mut payload = matrix.payload.clone();
            word::undo(step, &mut payload);
            Cow::Owned(payload)
        }
    };
    let bias = contract.weight.bias.zip(matrix.bias.as_deref());
    Weights { plan, access: plan.access(), payload, matrix, input_global: rows.global, bias }
}

/// The columns that both operands have. What one has beyond them is padding, against which the other
/// has nothing or zeros.
fn width(plan: &MatrixPlan, rows: &KernelRows) -> usize {
    plan.cols.min(rows.cols)
}

/// The decoded rows of each expert that has any: (expert, (its first routed row, values)).
fn inputs<'a>(
    plan: &MatrixPlan,
    rows: &'a KernelRows,
    permutation: &'a Permutation,
) -> impl Iterator<Item = (usize, (usize, Vec<f32>))> + 'a {
    let width = width(plan, rows);
    let busy = permutation.counts().iter().enumerate().filter(|(_, count)| **count > 0);
    busy.map(move |(expert, count)| {
        let first = permutation.offsets()[expert];
        let mut values = vec![0.0; count * width];
        for (row, values) in values.chunks_mut(width.max(1)).enumerate() {
            rows.decode(first + row, values);
        }
        (expert, (first, values))
    })
}

#[cfg(test)]
mod tests;
