//! The activation between the GEMMs, in f32.

use crate::config::ActivationFunction;

/// `function` of one pair of gate and up. NaN in, NaN out.
pub fn activate(function: ActivationFunction, gate: f32, up: f32) -> f32 {
    match function {
        ActivationFunction::Silu => gate * sigmoid(gate) * up,
        ActivationFunction::Swigluoai { alpha, beta, limit } => {
            let gate = at_most(gate, limit);
            let up = -at_most(-at_most(up, limit), limit);
            gate * sigmoid(alpha * gate) * (up + beta)
        }
    }
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

    #[test]
    fn gpt_oss_points() {
        // 7 * sigmoid(11.914) * 8, and -3 * sigmoid(-5.106) * -6.
        assert!((activate(GPT_OSS, 8.0, 9.0) - 55.9996).abs() < 1e-4);
        assert!((activate(GPT_OSS, -3.0, -9.0) - 0.10843).abs() < 1e-5);
        assert!((activate(ActivationFunction::Silu, 8.0, 9.0) - 71.9759).abs() < 1e-4);
        assert!((activate(ActivationFunction::Silu, -3.0, -9.0) - 1.2805).abs() < 1e-4);
    }

    #[test]
    fn halves_are_not_symmetric() {
        assert!((activate(ActivationFunction::Silu, 1.0, 2.0) - 1.462117).abs() < 1e-6);
        assert!((activate(ActivationFunction::Silu, 2.0, 1.0) - 1.761594).abs() < 1e-6);
    }

    #[test]
    fn nan_stays() {
        assert!(activate(GPT_OSS, f32::NAN, 1.0).is_nan());
        assert!(activate(GPT_OSS, 1.0, f32::NAN).is_nan());
        assert_eq!(activate(ActivationFunction::Silu, 0.0, 5.0), 0.0);
    }
}
