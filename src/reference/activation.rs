//! The activation between the GEMMs, in f64.

use crate::config::ActivationFunction;

/// One activated value: the function of a gate and an up value, or of the up value alone.
pub fn activate(function: ActivationFunction, gate: f64, up: f64) -> f64 {
    // Comparisons, not `min` and `clamp`: NaN has to stay.
    let below = |x: f64, limit: f32| if x > f64::from(limit) { f64::from(limit) } else { x };
    let above = |x: f64, limit: f32| if x < f64::from(-limit) { f64::from(-limit) } else { x };
    let swish = |x: f64, alpha: f32| x / (1.0 + (-f64::from(alpha) * x).exp());
    let gelu = |x: f64| x / 2.0 * (1.0 + libm::erf(x / 2f64.sqrt()));
    let gelu_tanh = |x: f64| {
        let cubic = x + 0.044715 * x.powi(3);
        x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * cubic).tanh())
    };
    let relu2 = |x: f64| if x < 0.0 { 0.0 } else { x * x };
    // The limit of b * tanh(x / b) is x.
    let bend = |x: f64, b: f32| if b.is_infinite() { x } else { f64::from(b) * (x / f64::from(b)).tanh() };
    match function {
        ActivationFunction::Silu { limit } => swish(below(gate, limit), 1.0) * above(below(up, limit), limit),
        ActivationFunction::Gelu => gelu(gate) * up,
        ActivationFunction::GeluTanh => gelu_tanh(gate) * up,
        ActivationFunction::Relu2 => relu2(gate) * up,
        ActivationFunction::Swigluoai { alpha, beta, limit }
        | ActivationFunction::SwigluoaiUninterleave { alpha, beta, limit } => {
            swish(below(gate, limit), alpha) * (above(below(up, limit), limit) + f64::from(beta))
        }
        ActivationFunction::Swiglustep { limit } => {
            below(swish(gate, 1.0), limit) * above(below(up, limit), limit)
        }
        ActivationFunction::Situ { beta, linear_beta } => {
            bend(gate, beta) / (1.0 + (-gate).exp()) * bend(up, linear_beta)
        }
        ActivationFunction::SiluNoMul => swish(up, 1.0),
        ActivationFunction::GeluNoMul => gelu(up),
        ActivationFunction::GeluTanhNoMul => gelu_tanh(up),
        ActivationFunction::Relu2NoMul => relu2(up),
    }
}
