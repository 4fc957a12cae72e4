//! gpt-oss layers.

use half::bf16;
use scalewright::backend::Contract;
use scalewright::config::ActivationFunction;
use scalewright::moe::routing::{Routing, Softmax, softmax_top_k};
use scalewright::reference::{self, Chosen};
use scalewright::weights::canonical::{Canonical, Stack};
use scalewright::weights::gpt_oss::{self, Checkpoint};

use crate::data::{File, Outcome, Relation, Tensors, all_same, close, path, same};
use crate::engine;

pub(crate) fn check(file: &File, tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let checkpoint = gpt_oss::load(&path(&file.file), engine::format("mxfp4"), None).unwrap();
    let text = relation.relation.as_str();
    if text.starts_with("bf16 [E,2I,H] dequantised") {
        return Some(dequantised(&checkpoint.weights, tensors));
    }
    if text.starts_with("full MoE block in f32") {
        return Some(block(
            file,
            &checkpoint,
            tensors,
            "hf_f32",
            &Tolerance { relative: 2e-5, of_largest: 2e-5 },
        ));
    }
    if text.starts_with("full MoE block in bf16") {
        return Some(block(
            file,
            &checkpoint,
            tensors,
            "hf_bf16",
            &Tolerance { relative: 0.0, of_largest: 2e-2 },
        ));
    }
    if text.starts_with("intermediate of token 0") {
        return Some(intermediate(file, &checkpoint.weights, tensors));
    }
    None
}

struct Tolerance {
    relative: f64,
    of_largest: f64,
}

impl Tolerance {
    fn judge(&self, what: &str, ours: &[f64], theirs: &[f64]) -> Outcome {
        let largest = theirs.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        all_same(what, ours, theirs, |ours, theirs| {
            close(*ours, *theirs, self.relative, self.of_largest * largest)
        })
    }
}

fn activation(file: &File) -> ActivationFunction {
    let parameter = |name: &str| file.params[name].as_f64().unwrap() as f32;
    ActivationFunction::Swigluoai {
        alpha: parameter("swiglu_alpha"),
        beta: 1.0,
        limit: parameter("swiglu_limit"),
    }
}

fn expert_values(weights: &Canonical, stack: &Stack, expert: usize) -> Vec<f64> {
    let payload = stack.payload.len() / weights.experts;
    let scales = stack.scales.len() / weights.experts;
    reference::dequantize(
        weights.format,
        stack.rows,
        stack.cols,
        &stack.payload[expert * payload..][..payload],
        &stack.scales[expert * scales..][..scales],
    )
    .unwrap()
}

/// Gate and up of expert `expert` in the checkpoint's sequence of rows.
fn interleaved(weights: &Canonical, expert: usize) -> Vec<f64> {
    let gate = expert_values(weights, &weights.gate, expert);
    let up = expert_values(weights, &weights.up, expert);
    let rows = gate.chunks(weights.hidden).zip(up.chunks(weights.hidden));
    rows.flat_map(|(gate, up)| [gate, up].concat()).collect()
}

fn dequantised(weights: &Canonical, tensors: &Tensors) -> Outcome {
    let ours: Vec<bf16> =
        (0..weights.experts).flat_map(|expert| interleaved(weights, expert)).map(bf16::from_f64).collect();
    all_same("weights", &ours, &tensors["mlp1.dequant_bf16"].bf16(), |ours, theirs| {
        ours.to_bits() == theirs.to_bits()
    })
}

/// The layer on the stored experts and router weights, by the reference and by every row.
fn block(
    file: &File,
    checkpoint: &Checkpoint,
    tensors: &Tensors,
    source: &str,
    tolerance: &Tolerance,
) -> Outcome {
    let tensor = |name: &str| &tensors[format!("{source}.{name}").as_str()];
    let ids = tensor("topk_ids").words();
    let weights = tensor("topk_weights").reals();
    let top_k = tensor("topk_ids").cols();
    let chosen = Chosen { ids: &ids, weights: &weights, top_k };
    let input = tensors["x"].doubles();
    let theirs = tensor("out").doubles();
    let ours = reference::layer(&checkpoint.weights, activation(file), chosen, &input, None)
        .map_err(|error| error.to_string())?;
    tolerance.judge("reference", &ours, &theirs)?;
    if source == "hf_f32" {
        routed(checkpoint, &input, tensor("router_logits").doubles(), chosen)?;
    }
    let contracts = engine::contracts(checkpoint.weights.format, activation(file));
    if contracts.is_empty() {
        return Err("no row of the table runs gpt-oss".into());
    }
    for contract in contracts {
        row(contract, activation(file), &checkpoint.weights, &tensors["x"].bf16(), chosen)?;
    }
    Ok(())
}

/// Their logits, experts and weights, from the router's weights.
fn routed(checkpoint: &Checkpoint, input: &[f64], theirs: Vec<f64>, chosen: Chosen<'_>) -> Outcome {
    let router = checkpoint.router.as_ref().ok_or("the file has no router")?;
    let (hidden, experts) = (checkpoint.weights.hidden, checkpoint.weights.experts);
    let logit = |token: &[f64], expert: usize| {
        let weight = &router.weight[expert * hidden..][..hidden];
        let products = weight.iter().zip(token).map(|(weight, value)| f64::from(*weight) * value);
        products.sum::<f64>() + f64::from(router.bias[expert])
    };
    let logits: Vec<f64> =
        input.chunks(hidden).flat_map(|token| (0..experts).map(move |expert| logit(token, expert))).collect();
    let tolerance = Tolerance { relative: 2e-5, of_largest: 2e-5 };
    tolerance.judge("logits", &logits, &theirs)?;
    let logits: Vec<f32> = logits.into_iter().map(|logit| logit as f32).collect();
    let tokens = logits.len() / experts;
    let routing = softmax_top_k(&logits, tokens, experts, chosen.top_k, Softmax::AfterTopK)
        .map_err(|error| error.to_string())?;
    same("experts", routing.ids(), chosen.ids)?;
    all_same("router weights", routing.weights(), chosen.weights, |ours, theirs| {
        close(f64::from(*ours), f64::from(*theirs), 1e-5, 0.0)
    })
}

/// One row of the table against the reference on the same quantised operands. The reference on
/// operands as they are is held to their output, which ties the row to it; what lies between, 2 to 5%
/// of the output, is what FP8 loses, and no tolerance would tell that from a mistake.
fn row(
    contract: &'static Contract,
    function: ActivationFunction,
    weights: &Canonical,
    tokens: &[bf16],
    chosen: Chosen<'_>,
) -> Outcome {
    let rows = tokens.len() / weights.hidden;
    let (ids, router) = (chosen.ids.to_vec(), chosen.weights.to_vec());
    let routing =
        Routing::new(rows, chosen.top_k, weights.experts, ids, router).map_err(|error| error.to_string())?;
    let ours: Vec<f64> = engine::layer(contract, function, weights, tokens, &routing)?
        .iter()
        .map(|value| value.to_f64())
        .collect();
    let input: Vec<f64> = tokens.iter().map(|value| value.to_f64()).collect();
    let gemm1 = &contract.gemm1_input;
    let gemm2 = contract.gemm2_input.as_ref().map(|input| (input.formats[0], input.rounding));
    let expected = reference::quantize_dequantize(&input, weights.hidden, gemm1.formats[0], gemm1.rounding)
        .and_then(|input| reference::layer(weights, function, chosen, &input, gemm2))
        .map_err(|error| error.to_string())?;
    let error = frobenius(&ours, &expected);
    if error.is_nan() || error > OUTPUT_ROUNDING {
        return Err(format!(
            "{}: {error:.2e} away from the reference, over {OUTPUT_ROUNDING:e}",
            contract.name
        ));
    }
    Ok(())
}

/// Outputs are rounded to bf16, by 2^-9 at most; as much again for sums in f32 and for values that
/// are so near a boundary that they are requantised another way between the GEMMs.
const OUTPUT_ROUNDING: f64 = 2.0 / 512.0;

/// The distance of two vectors, relative to the second one's length.
fn frobenius(ours: &[f64], theirs: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let distance = square(&mut ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs));
    (distance / square(&mut theirs.iter().copied())).sqrt()
}

/// Token 0 in its first expert, before and after the activation.
fn intermediate(file: &File, weights: &Canonical, tensors: &Tensors) -> Outcome {
    let expert = tensors["hf_f32.topk_ids"].words()[0] as usize;
    let token = &tensors["x"].doubles()[..weights.hidden];
    let bias = tensors["mlp1.bias"].doubles();
    let gate_up: Vec<f64> = interleaved(weights, expert)
        .chunks(weights.hidden)
        .zip(&bias[expert * 2 * weights.intermediate..])
        .map(|(row, bias)| row.iter().zip(token).map(|(weight, value)| weight * value).sum::<f64>() + bias)
        .collect();
    let activated: Vec<f64> =
        gate_up.chunks(2).map(|pair| reference::activate(activation(file), pair[0], pair[1])).collect();
    // Sums in f32 may cancel, so the tolerance is also relative to the largest value.
    let tolerance = Tolerance { relative: 2e-5, of_largest: 2e-6 };
    tolerance.judge("before", &gate_up, &tensors["hf_f32.tok0_top1.gate_up"].doubles())?;
    tolerance.judge("after", &activated, &tensors["hf_f32.tok0_top1.act"].doubles())
}
