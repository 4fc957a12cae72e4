//! Whole layers: of gpt-oss, of the models in transformers, and of quantised operands.

#[path = "moe/fp8_block.rs"]
mod fp8_block;
#[path = "moe/gpt_oss.rs"]
mod gpt_oss;
#[path = "moe/hugging_face.rs"]
mod hugging_face;
#[path = "moe/quantised.rs"]
mod quantised;

use half::bf16;
use scalewright::backend::{Contract, Kernel};
use scalewright::config::{self, ActivationFunction};
use scalewright::conformance::{self, Case, TOLERANCE};
use scalewright::format::FormatSpec;
use scalewright::generated::backends::CONTRACTS;
use scalewright::moe::routing::Routing;
use scalewright::tensor::Tokens;
use scalewright::weights::canonical::{Canonical, Stack};

use crate::data::{File, Outcome, Relation, Tensors, all_same, close};

pub(crate) fn check(file: &File, tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    match file.kind.as_str() {
        "moe_gptoss" => gpt_oss::check(file, tensors, relation),
        "moe_hf" => hugging_face::check(file, tensors, relation),
        "moe_quant" if file.file.starts_with("moe/fp8block") => fp8_block::check(file, tensors, relation),
        "moe_quant" => quantised::check(file, tensors, relation),
        _ => None,
    }
}

/// What a value may differ by: a part of itself plus a part of the largest value.
#[derive(Clone, Copy)]
struct Tolerance {
    relative: f64,
    of_largest: f64,
}

/// What the manifest allows whole blocks: in f32 for rounding, in bf16 for the order of sums too.
const IN_F32: Tolerance = Tolerance { relative: 2e-5, of_largest: 2e-5 };
const IN_BF16: Tolerance = Tolerance { relative: 0.0, of_largest: 2e-2 };

impl Tolerance {
    fn judge(self, what: &str, ours: &[f64], theirs: &[f64]) -> Outcome {
        let largest = largest(theirs);
        all_same(what, ours, theirs, |ours, theirs| {
            close(*ours, *theirs, self.relative, self.of_largest * largest)
        })
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A size among the parameters of a file.
fn size(file: &File, name: &str) -> usize {
    file.params[name].as_u64().unwrap_or_else(|| panic!("{}: no size `{name}`", file.file)) as usize
}

fn rounded_to_bf16(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| bf16::from_f64(*value).to_f64()).collect()
}

/// Their logits from their router's weights, `experts` × hidden, and biases.
fn logits(input: &[f64], weight: &[f64], bias: Option<&[f64]>, hidden: usize) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let of_token = |token| {
        let rows = weight.chunks(hidden).enumerate();
        rows.map(move |(expert, row)| dot(row, token) + bias.map_or(0.0, |bias| bias[expert]))
    };
    input.chunks(hidden).flat_map(of_token).collect()
}

/// Matrices of gate and up that lie one after the other in each expert, in this order or
/// the other. A scale of the whole is that of both halves.
fn halves(format: &FormatSpec, experts: usize, both: &Stack) -> [Stack; 2] {
    let half = Stack { rows: both.rows / 2, ..both.clone() };
    let (payload, scales) = format.matrix_bytes(half.extent());
    let pick = |bytes: &[u8], size: usize, which: usize| -> Vec<u8> {
        (0..experts).flat_map(|expert| &bytes[(2 * expert + which) * size..][..size]).copied().collect()
    };
    let is_whole = both.scales.len() == experts * scales;
    [0, 1].map(|which| Stack {
        payload: pick(&both.payload, payload, which),
        scales: if is_whole { both.scales.clone() } else { pick(&both.scales, scales, which) },
        ..half.clone()
    })
}

/// Every row of the table that reads weights in this very format and runs the function, against the
/// reference on the same quantised operands. That the reference on operands as they are is held to
/// their output ties the row to it; what lies between, 2 to 5% of the output, is what eight and four
/// bits lose, and no tolerance would tell that from a mistake. A row that takes no biases runs the same
/// layer without. The outputs, by row; a layer that no row runs is a failure.
fn rows(
    weights: &Canonical,
    function: ActivationFunction,
    tokens: &[bf16],
    routing: &Routing,
) -> Result<Vec<(&'static Contract, Vec<bf16>)>, String> {
    let reads = |contract: &&&Contract| {
        contract.kernel == Kernel::Generated
            && contract.weight.format == weights.format
            && config::honours(contract, function).is_ok()
    };
    let unbiased = Canonical { biases: None, ..weights.clone() };
    let run = |contract: &&'static Contract| {
        let weights = if contract.weight.bias.is_some() { weights } else { &unbiased };
        let tokens = Tokens::new(tokens, routing.tokens(), weights.hidden).map_err(text)?;
        let config = conformance::calibrate(contract, weights, tokens, routing, function).map_err(text)?;
        let measure = conformance::measure(contract, &Case { weights, tokens, routing, config });
        let measure = measure.map_err(|failure| format!("{}: {failure}", contract.name))?;
        let error = measure.error_quantised;
        if error.is_nan() || error > TOLERANCE {
            return Err(format!(
                "{}: {error:.2e} away from the reference, over {TOLERANCE:e}",
                contract.name
            ));
        }
        Ok((*contract, measure.output))
    };
    let outputs: Vec<_> = CONTRACTS.iter().filter(reads).map(run).collect::<Result<_, String>>()?;
    if outputs.is_empty() {
        let (format, function) = (weights.format.name, function.kind());
        return Err(format!("no row of the table runs {function} on weights in `{format}`"));
    }
    Ok(outputs)
}
