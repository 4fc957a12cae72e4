//! gpt-oss layers, by transformers and by OpenAI.

use half::bf16;
use scalewright::config::ActivationFunction;
use scalewright::moe::routing::{Method, Routing, route};
use scalewright::reference;
use scalewright::weights::canonical::{Canonical, Stack};
use scalewright::weights::gpt_oss::{self, Checkpoint};

use super::{IN_BF16, IN_F32, Tolerance, logits, rows, size, text};
use crate::data::{File, Outcome, Relation, Tensor, Tensors, all_same, path};
use crate::engine;
use crate::routing::{Choice, same_choice};

pub(super) fn check(file: &File, tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let checkpoint = gpt_oss::load(&path(&file.file), engine::format("mxfp4"), None).ok()?;
    let relation = relation.relation.as_str();
    let starts = |words: &str| relation.starts_with(words);
    if starts("bf16 [E,2I,H] dequantised") {
        return Some(dequantised(&checkpoint.weights, tensors));
    }
    if starts("intermediate of token 0") {
        return Some(intermediate(file, &checkpoint.weights, tensors));
    }
    if starts("full MoE block in f32") {
        return Some(block(file, &checkpoint, tensors, &F32));
    }
    if starts("full MoE block in bf16") {
        return Some(block(file, &checkpoint, tensors, &BF16));
    }
    if starts("OpenAI reference MLP block in f32") {
        return Some(open_ai(file, &checkpoint, tensors, &F32));
    }
    if starts("OpenAI reference MLP block in bf16") {
        return Some(open_ai(file, &checkpoint, tensors, &BF16));
    }
    None
}

/// A type that a source computed in.
struct Precision {
    name: &'static str,
    output: Tolerance,
    logits: Tolerance,
    /// Of router weights.
    weights: f64,
}

const F32: Precision = Precision { name: "f32", output: IN_F32, logits: IN_F32, weights: 1e-5 };

/// Logits are sums of bf16 products, rounded once; weights have eight bits.
const BF16: Precision = Precision {
    name: "bf16",
    output: IN_BF16,
    logits: Tolerance { relative: 1.0 / 256.0, of_largest: 1.0 / 512.0 },
    weights: 1.0 / 128.0,
};

fn activation(file: &File) -> ActivationFunction {
    let parameter = |name: &str| file.params[name].as_f64().unwrap() as f32;
    ActivationFunction::Swigluoai {
        alpha: parameter("swiglu_alpha"),
        beta: 1.0,
        limit: parameter("swiglu_limit"),
    }
}

/// Gate and up of expert `expert` in the checkpoint's sequence of rows.
fn interleaved(weights: &Canonical, expert: usize) -> Vec<f64> {
    let values =
        |stack: &Stack| reference::dequantize(weights.format, stack.matrix(weights.format, expert)).unwrap();
    let gate = weights.gate.as_ref().map(values).unwrap_or_default();
    let up = values(&weights.up);
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

/// Token 0 in its first expert, before and after the activation.
fn intermediate(file: &File, weights: &Canonical, tensors: &Tensors) -> Outcome {
    let expert = tensors["hf_f32.topk_ids"].words()[0] as usize;
    let token = &tensors["x"].doubles()[..weights.hidden];
    let bias = tensors["mlp1.bias"].doubles();
    let bias = &bias[expert * 2 * weights.intermediate..][..2 * weights.intermediate];
    let gate_up = logits(token, &interleaved(weights, expert), Some(bias), weights.hidden);
    let activated: Vec<f64> =
        gate_up.chunks(2).map(|pair| reference::activate(activation(file), pair[0], pair[1])).collect();
    // Sums in f32 may cancel, so the tolerance is also relative to the largest value.
    let tolerance = Tolerance { relative: 2e-5, of_largest: 2e-6 };
    tolerance.judge("before", &gate_up, &tensors["hf_f32.tok0_top1.gate_up"].doubles())?;
    tolerance.judge("after", &activated, &tensors["hf_f32.tok0_top1.act"].doubles())
}

/// Router, experts and sum, without what surrounds them, by transformers; and by every row.
fn block(file: &File, checkpoint: &Checkpoint, tensors: &Tensors, precision: &Precision) -> Outcome {
    let tensor = |name: &str| &tensors[format!("hf_{}.{name}", precision.name).as_str()];
    let input = tensors["x"].doubles();
    let theirs = tensor("router_logits");
    precision.logits.judge("logits", &own_logits(checkpoint, &input)?, &theirs.doubles())?;
    let stored = Choice::stored(tensor("topk_ids"), tensor("topk_weights").reals());
    let own = Choice::of(&routing(theirs, stored.top_k)?);
    same_choice(theirs, &own, &stored, precision.weights)?;

    let Checkpoint { weights, .. } = checkpoint;
    let ours = reference::layer(weights, activation(file), stored.chosen(), &input, None).map_err(text)?;
    precision.output.judge("reference", &ours, &tensor("out").doubles())?;
    let routing = stored.routing(weights.experts)?;
    rows(weights, activation(file), &tensors["x"].bf16(), &routing)?;
    Ok(())
}

fn own_logits(checkpoint: &Checkpoint, input: &[f64]) -> Result<Vec<f64>, String> {
    let router = checkpoint.router.as_ref().ok_or("the file has no router")?;
    let doubles = |values: &[f32]| -> Vec<f64> { values.iter().copied().map(f64::from).collect() };
    Ok(logits(input, &doubles(&router.weight), Some(&doubles(&router.bias)), checkpoint.weights.hidden))
}

fn routing(logits: &Tensor, top_k: usize) -> Result<Routing, String> {
    route(&logits.reals(), logits.shape[0], logits.cols(), &Method::renormalize(top_k)).map_err(text)
}

/// OpenAI's block: the norm before the router, and the residual after the sum.
fn open_ai(file: &File, checkpoint: &Checkpoint, tensors: &Tensors, precision: &Precision) -> Outcome {
    let tensor = |name: &str| &tensors[format!("oai_{}.{name}", precision.name).as_str()];
    let weights = &checkpoint.weights;
    let x = tensors["x"].doubles();
    let epsilon = file.params["rms_norm_eps"].as_f64().ok_or("no epsilon")?;
    let normed = rms_norm(&x, &tensors["norm.scale"].doubles(), epsilon);
    precision.logits.judge("norm", &normed, &tensor("normed").doubles())?;

    // From here on with their numbers, so that rounding them tells nothing from a mistake.
    let (normed, theirs) = (tensor("normed").doubles(), tensor("logits"));
    precision.logits.judge("logits", &own_logits(checkpoint, &normed)?, &theirs.doubles())?;
    let top_k = size(file, "topk");
    let own = Choice::of(&routing(theirs, top_k)?);
    let layer = reference::layer(weights, activation(file), own.chosen(), &normed, None).map_err(text)?;
    let ours = x.iter().zip(layer).map(|(x, layer)| x + layer);
    // Where the logits tie, the file does not say which expert was taken.
    let tied = ties(theirs, top_k);
    let hidden = weights.hidden;
    let known = |values: Vec<f64>| -> Vec<f64> {
        let tokens = values.chunks(hidden).zip(&tied).filter(|(_, is_tied)| !**is_tied);
        tokens.flat_map(|(token, _)| token).copied().collect()
    };
    precision.output.judge("output", &known(ours.collect()), &known(tensor("out").doubles()))
}

/// Whether the last of the `top_k` largest logits of each token equals the next one.
fn ties(logits: &Tensor, top_k: usize) -> Vec<bool> {
    let values = logits.reals();
    let is_tied = |token: &[f32]| {
        let mut token = token.to_vec();
        token.sort_by(|a, b| b.total_cmp(a));
        top_k < token.len() && token[top_k - 1] == token[top_k]
    };
    values.chunks(logits.cols()).map(is_tied).collect()
}

fn rms_norm(x: &[f64], scale: &[f64], epsilon: f64) -> Vec<f64> {
    let norm = |token: &[f64]| {
        let mean = token.iter().map(|value| value * value).sum::<f64>() / token.len() as f64;
        let factor = 1.0 / (mean + epsilon).sqrt();
        token.iter().zip(scale).map(|(value, scale)| value * factor * scale).collect::<Vec<f64>>()
    };
    x.chunks(scale.len()).flat_map(norm).collect()
}
