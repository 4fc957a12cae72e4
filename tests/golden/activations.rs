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
    // Each value with what it may differ by.
    let slow = |(gate, up): (bf16, bf16)| {
        (reference::activate(function, gate.to_f64(), up.to_f64()), bf16_steps(gate.to_f64()))
    };
    let slow: Vec<(f64, f64)> = pairs().map(slow).collect();
    let theirs: Vec<(f64, f64)> = theirs.iter().map(|value| (value.to_f64(), 0.0)).collect();
    all_same("reference", &slow, &theirs, |(ours, relative), (theirs, _)| {
        close(*ours, *theirs, *relative, f64::from(f32::MIN_POSITIVE))
    })
}

/// What rounding to bf16 does to one value, as a part of it: half a unit in the last place for each of
/// four steps, and as much of the exponent, which is at most twice the gate.
fn bf16_steps(gate: f64) -> f64 {
    let exponent = if gate.is_finite() { 2.0 * gate.abs() } else { 0.0 };
    (4.0 + exponent) / 256.0
}

/// 2e-6, as the manifest says. The sums `1 + erf(x)` and `1 + tanh(x)` of the two gelus cancel where `x`
/// is negative, so for them that is a part of what they multiply, gate times up.
fn in_f32(function: ActivationFunction, input: &[f32], theirs: &[f64]) -> Outcome {
    let cancels = matches!(function, ActivationFunction::Gelu | ActivationFunction::GeluTanh);
    // f32 has no numbers below this: exp and squares underflow to zero, or to a subnormal, where f64
    // does not, and are then multiplied by up.
    let smallest = f64::from(f32::MIN_POSITIVE);
    // Each of their values with what ours may differ by, but for its relative part.
    let theirs = |relative: f64| -> Vec<(f64, f64)> {
        let absolute = input.chunks_exact(2).map(|pair| {
            let (gate, up) = (f64::from(pair[0]), f64::from(pair[1]));
            let finite = |value: f64| if value.is_finite() { value.abs() } else { 0.0 };
            let cancelled = if cancels { relative * finite(gate * up) } else { 0.0 };
            smallest * (1.0 + finite(up)) + cancelled
        });
        theirs.iter().copied().zip(absolute).collect()
    };
    let ours = |function_of: &dyn Fn(f32, f32) -> f64| -> Vec<(f64, f64)> {
        input.chunks_exact(2).map(|pair| (function_of(pair[0], pair[1]), 0.0)).collect()
    };
    let fast = ours(&|gate, up| activate(function, gate, up).into());
    all_same("engine", &fast, &theirs(2e-6), |(ours, _), (theirs, absolute)| {
        close(*ours, *theirs, 2e-6, *absolute)
    })?;

    let slow = ours(&|gate, up| f64::from(reference::activate(function, gate.into(), up.into()) as f32));
    // The cubic of gelu_tanh is rounded in f32 before tanh sees it, which the reference does not do.
    let relative = if function == ActivationFunction::GeluTanh { 4e-6 } else { 2e-6 };
    // Gelu and relu2 under- and overflow in f32 before they are multiplied by up, which makes NaN of
    // infinities and zeros; f64 has the range.
    let has_range = cancels || function == ActivationFunction::Relu2;
    all_same("reference", &slow, &theirs(relative), |(ours, _), (theirs, absolute)| {
        (has_range && theirs.is_nan()) || close(*ours, *theirs, relative, *absolute)
    })
}
