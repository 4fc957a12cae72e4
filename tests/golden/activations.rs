//! The activation function alone, on interleaved gate and up values.

use half::bf16;
use scalewright::config::ActivationFunction;
use scalewright::reference;

use crate::data::{Outcome, Relation, Tensors, all_same, close};
use crate::engine;

pub(crate) fn check(tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let name = *relation.outputs().first()?;
    let function = match name.split_once('.')? {
        ("act_and_mul", "silu") => ActivationFunction::Silu,
        ("oai_f32" | "oai_bf16", _) => ActivationFunction::Swigluoai {
            alpha: relation.params["alpha"].as_f64()? as f32,
            beta: 1.0,
            limit: relation.params["limit"].as_f64()? as f32,
        },
        _ => return None,
    };
    let is_bf16 = name.starts_with("oai_bf16");
    let input = tensors["x"].reals().into_iter();
    let input: Vec<f32> =
        if is_bf16 { input.map(|value| bf16::from_f32(value).to_f32()).collect() } else { input.collect() };
    let pairs: Vec<(f32, f32)> = input.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let slow = pairs.iter().map(|(gate, up)| reference::activate(function, (*gate).into(), (*up).into()));
    let fast = pairs.iter().map(|(gate, up)| f64::from(engine::activate(function, *gate, *up)));
    let theirs = tensors[name].doubles();
    // 2e-6 as the manifest says; bf16 sources round after every step.
    let relative = if is_bf16 { BF16_STEPS } else { 2e-6 };
    // f32 has no numbers below this: exp underflows to zero, or to a subnormal, where f64 does not.
    let absolute = f64::from(f32::MIN_POSITIVE);
    let is_same = |ours: &f64, theirs: &f64| close(f64::from(*ours as f32), *theirs, relative, absolute);
    let slow: Vec<f64> = slow.collect();
    let fast: Vec<f64> = fast.collect();
    Some(all_same("reference", &slow, &theirs, is_same).and(all_same("engine", &fast, &theirs, is_same)))
}

/// Half a unit in the last place of bf16, for each of the four steps that a bf16 source rounds.
const BF16_STEPS: f64 = 4.0 / 256.0;
