//! The activation between the GEMMs, in f32, and in bf16 as eager PyTorch computes it.

use half::bf16;

use crate::config::ActivationFunction;

/// `function` of one pair of gate and up; plain functions are of `up` alone. NaN in, NaN out.
pub fn activate(function: ActivationFunction, gate: f32, up: f32) -> f32 {
    stepwise(function, gate, up, |value| value)
}

/// The same, each step rounded to bf16: what transformers and gpt-oss make of bf16 tensors, bit for
/// bit.
pub fn activate_bf16(function: ActivationFunction, gate: bf16, up: bf16) -> bf16 {
    let step = |value| bf16::from_f32(value).to_f32();
    bf16::from_f32(stepwise(function, gate.to_f32(), up.to_f32(), step))
}

/// Every result but the last goes through `step`.
fn stepwise(function: ActivationFunction, gate: f32, up: f32, step: impl Fn(f32) -> f32) -> f32 {
    match function {
        ActivationFunction::Silu { limit } => step(silu(at_most(gate, limit))) * within(up, limit),
        ActivationFunction::Gelu => step(gelu(gate)) * up,
        ActivationFunction::GeluTanh => step(gelu_tanh(gate)) * up,
        ActivationFunction::Relu2 => step(relu2(gate)) * up,
        ActivationFunction::Swigluoai { alpha, beta, limit }
        | ActivationFunction::SwigluoaiUninterleave { alpha, beta, limit } => {
            let gate = at_most(gate, limit);
            let swish = step(gate * step(sigmoid(step(alpha * gate))));
            swish * step(within(up, limit) + beta)
        }
        ActivationFunction::Swiglustep { limit } => at_most(step(silu(gate)), limit) * within(up, limit),
        ActivationFunction::Situ { beta, linear_beta } => {
            let gated = step(step(saturated(gate, beta)) * step(sigmoid(gate)));
            gated * step(saturated(up, linear_beta))
        }
        ActivationFunction::SiluNoMul => silu(up),
        ActivationFunction::GeluNoMul => gelu(up),
        ActivationFunction::GeluTanhNoMul => gelu_tanh(up),
        ActivationFunction::Relu2NoMul => relu2(up),
    }
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The approximation of Hendrycks and Gimpel, "Gaussian error linear units", 2016.
fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

fn relu2(x: f32) -> f32 {
    // Not `max`, which would turn a NaN into zero.
    let positive = if x < 0.0 { 0.0 } else { x };
    positive * positive
}

/// `bound * tanh(x / bound)`, which is `x` for an infinite bound.
fn saturated(x: f32, bound: f32) -> f32 {
    if bound.is_infinite() { x } else { bound * (x / bound).tanh() }
}

/// `x` clamped to ±`limit`.
fn within(x: f32, limit: f32) -> f32 {
    -at_most(-at_most(x, limit), limit)
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `f32::min` would turn a NaN into the limit.
fn at_most(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT_OSS: ActivationFunction = ActivationFunction::Swigluoai { alpha: 1.702, beta: 1.0, limit: 7.0 };

    fn close(function: ActivationFunction, gate: f32, up: f32, expected: f32) {
        let got = activate(function, gate, up);
        assert!((got - expected).abs() <= 1e-5 * expected.abs(), "{function:?} of {gate}, {up}: {got}");
    }

    /// With the values that come out where a parameter is dropped.
    #[test]
    fn t22_clamped_functions() {
        // 7 * sigmoid(11.914) * 8, and -3 * sigmoid(-5.106) * -6.
        close(GPT_OSS, 8.0, 9.0, 55.9996);
        close(ActivationFunction::SILU, 8.0, 9.0, 71.9759);
        close(GPT_OSS, -3.0, -9.0, 0.108_428);
        close(ActivationFunction::SILU, -3.0, -9.0, 1.280_49);
        close(ActivationFunction::Silu { limit: 10.0 }, 12.0, -15.0, -99.9955);
        close(ActivationFunction::SILU, 12.0, -15.0, -179.9989);
    }

    /// By hand: sigmoid(ln 3) is 3/4, tanh(ln 3) is 4/5, erf(1) is 0.8427.
    #[test]
    fn every_function_at_a_point() {
        let ln_3 = 3f32.ln();
        close(ActivationFunction::Silu { limit: 1.0 }, ln_3, -5.0, -0.731_059);
        close(ActivationFunction::Gelu, 2f32.sqrt(), 3.0, 0.5 * 2f32.sqrt() * 1.842_700_8 * 3.0);
        close(ActivationFunction::GeluTanh, 1.0, 2.0, 0.841_192 * 2.0);
        close(ActivationFunction::Relu2, 3.0, 2.0, 18.0);
        close(ActivationFunction::Relu2, -3.0, 2.0, 0.0);
        // The gate is clamped after the function, so 5 is let through as 4.
        close(ActivationFunction::Swiglustep { limit: 4.0 }, 5.0, 9.0, 16.0);
        close(ActivationFunction::Swiglustep { limit: 4.0 }, ln_3, -1.0, -0.75 * ln_3);
        let situ = ActivationFunction::Situ { beta: 2.0, linear_beta: 4.0 };
        close(situ, 2.0 * ln_3, 4.0 * ln_3, 2.0 * 0.8 * 0.9 * 4.0 * 0.8);
        let neutral = ActivationFunction::Situ { beta: f32::INFINITY, linear_beta: f32::INFINITY };
        close(neutral, ln_3, 2.0, 0.75 * ln_3 * 2.0);
        let same = ActivationFunction::SwigluoaiUninterleave { alpha: 1.702, beta: 1.0, limit: 7.0 };
        close(same, 8.0, 9.0, 55.9996);
    }

    /// They see one value, whatever stands beside it.
    #[test]
    fn plain_functions_do_not_look_at_the_gate() {
        for (plain, gated) in [
            (ActivationFunction::SiluNoMul, ActivationFunction::SILU),
            (ActivationFunction::GeluNoMul, ActivationFunction::Gelu),
            (ActivationFunction::GeluTanhNoMul, ActivationFunction::GeluTanh),
            (ActivationFunction::Relu2NoMul, ActivationFunction::Relu2),
        ] {
            for value in [-2.0, 0.5, 3.0] {
                assert_eq!(activate(plain, f32::NAN, value), activate(gated, value, 1.0), "{plain:?}");
            }
        }
    }

    /// bf16 has eight bits: 1 + 1/256 is lost where a step is rounded.
    #[test]
    fn bf16_rounds_every_step() {
        let function = ActivationFunction::Swigluoai { alpha: 1.0, beta: 1.0 / 256.0, limit: f32::INFINITY };
        let (gate, up) = (bf16::from_f32(3.0), bf16::ONE);
        assert_eq!(activate_bf16(function, gate, up).to_f32(), 2.859_375);
        assert_eq!(bf16::from_f32(activate(function, 3.0, 1.0)).to_f32(), 2.875);
    }

    #[test]
    fn halves_are_not_symmetric() {
        assert!((activate(ActivationFunction::SILU, 1.0, 2.0) - 1.462117).abs() < 1e-6);
        assert!((activate(ActivationFunction::SILU, 2.0, 1.0) - 1.761594).abs() < 1e-6);
    }

    #[test]
    fn nan_stays() {
        assert!(activate(GPT_OSS, f32::NAN, 1.0).is_nan());
        assert!(activate(GPT_OSS, 1.0, f32::NAN).is_nan());
        for plain in [ActivationFunction::Relu2NoMul, ActivationFunction::GeluNoMul] {
            assert!(activate(plain, 0.0, f32::NAN).is_nan());
        }
        assert_eq!(activate(ActivationFunction::SILU, 0.0, 5.0), 0.0);
    }
}
