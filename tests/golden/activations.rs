//! The activation function alone, on interleaved gate and up values.

use half::bf16;
use scalewright::config::ActivationFunction;
use scalewright::moe::activation::{activate, activate_bf16};
use scalewright::reference;

use crate::data::{Outcome, Relation, Tensors, all_same, close};

pub(crate) fn check(tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let name = *relation.outputs().first()?;
    let function = match name.split_once('.')? {
        ("act_and_mul", "silu") => ActivationFunction::SILU,
        ("act_and_mul", "gelu") => ActivationFunction::Gelu,
        ("act_and_mul", "gelu_pytorch_tanh") => ActivationFunction::GeluTanh,
        ("act_and_mul", "relu2") => ActivationFunction::Relu2,
        ("oai_f32" | "oai_bf16", _) => ActivationFunction::Swigluoai {
            alpha: relation.params["alpha"].as_f64()? as f32,
            beta: 1.0,
            limit: relation.params["limit"].as_f64()? as f32,
        },
        _ => return None,
    };
    let input = tensors["x"].reals();
    Some(if name.starts_with("oai_bf16") {
        in_bf16(function, &input, &tensors[name].bf16())
    } else {
        in_f32(function, &input, &tensors[name].doubles())
    })
}

/// The sources round to bf16 after every step, and so does the engine: bit for bit. The reference does
/// not round at all.
fn in_bf16(function: ActivationFunction, input: &[f32], theirs: &[bf16]) -> Outcome {
    let input: Vec<bf16> = input.iter().map(|value| bf16::from_f32(*value)).collect();
    let pairs = || input.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let fast: Vec<bf16> = pairs().map(|(gate, up)| activate_bf16(function, gate, up)).collect();
    all_same("engine", &fast, theirs, |ours, theirs| {
        ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan())
    })?;
    let slow: Vec<f64> =
        pairs().map(|(gate, up)| reference::activate(function, gate.to_f64(), up.to_f64())).collect();
    let theirs: Vec<f64> = theirs.iter().map(|value| value.to_f64()).collect();
    let absolute = f64::from(f32::MIN_POSITIVE);
    all_same("reference", &slow, &theirs, |ours, theirs| close(*ours, *theirs, BF16_STEPS, absolute))
}

/// Half a unit in the last place of bf16, for each step that a source rounds.
const BF16_STEPS: f64 = 4.0 / 256.0;

/// 2e-6, as the manifest says. The sums `1 + erf(x)` and `1 + tanh(x)` of the two gelus cancel where `x`
/// is negative, so for them that is a part of what they multiply, gate times up.
fn in_f32(function: ActivationFunction, input: &[f32], theirs: &[f64]) -> Outcome {
    let cancels = matches!(function, ActivationFunction::Gelu | ActivationFunction::GeluTanh);
    let compare = |what: &str, relative: f64, ours: &dyn Fn(f32, f32) -> f64| -> Outcome {
        let ours: Vec<(f64, f64)> = input
            .chunks_exact(2)
            .map(|pair| (ours(pair[0], pair[1]), f64::from(pair[0]) * f64::from(pair[1])))
            .collect();
        let theirs: Vec<(f64, f64)> = theirs.iter().map(|value| (*value, 0.0)).collect();
        all_same(what, &ours, &theirs, |(ours, product), (theirs, _)| {
            // f32 has no numbers below this: exp underflows to zero, or to a subnormal, where f64 does
            // not.
            let smallest = f64::from(f32::MIN_POSITIVE);
            let absolute = if cancels && product.is_finite() { relative * product.abs() } else { 0.0 };
            close(f64::from(*ours as f32), *theirs, relative, absolute + smallest)
        })
    };
    // The cubic of gelu_tanh is rounded in f32 before tanh sees it, which the reference does not do.
    let slow = if function == ActivationFunction::GeluTanh { 4e-6 } else { 2e-6 };
    compare("reference", slow, &|gate, up| reference::activate(function, gate.into(), up.into()))?;
    compare("engine", 2e-6, &|gate, up| activate(function, gate, up).into())
}
