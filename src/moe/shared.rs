//! The shared expert: a gated MLP that every token goes through, whose output is added to that of the
//! routed experts. Its weights are not quantised.

use rayon::prelude::*;

use super::activation::activate;
use crate::backend::Activation;
use crate::config::ActivationFunction;

/// A shared expert, weights row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedExpert {
    hidden: usize,
    intermediate: usize,
    matrices: Matrices,
    gating: Gating,
}

/// The three weights of a shared expert, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrices {
    /// `intermediate` × `hidden`.
    pub gate: Vec<f32>,
    /// `intermediate` × `hidden`.
    pub up: Vec<f32>,
    /// `hidden` × `intermediate`.
    pub down: Vec<f32>,
}

/// How much of a shared expert is added to the output.
#[derive(Debug, Clone, PartialEq)]
pub enum Gating {
    /// All of it (DeepSeek, Llama 4).
    Whole,
    /// The sigmoid of a logit of the token, by these `hidden` weights (Qwen2-MoE).
    Sigmoid(Vec<f32>),
}

/// What a shared expert does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// A buffer that does not have the size that the shapes ask for.
    #[error(
        "{what} of a shared expert with hidden {hidden} and intermediate {intermediate} cannot have {got} \
         values"
    )]
    Size {
        /// `gate`, `up`, `down`, `gating`, `tokens` or `output`.
        what: &'static str,
        /// The hidden size.
        hidden: usize,
        /// The intermediate size.
        intermediate: usize,
        /// Values that the buffer has.
        got: usize,
    },
    /// A function of plain weights, which would ignore the gate.
    #[error("a shared expert is gated, and {0} is a function of one projection")]
    Plain(Activation),
}

impl SharedExpert {
    /// A shared expert of these sizes.
    ///
    /// # Errors
    /// [`SharedError`] if a size is 0 or a weight has another size.
    pub fn new(
        hidden: usize,
        intermediate: usize,
        matrices: Matrices,
        gating: Gating,
    ) -> Result<Self, SharedError> {
        let expected = hidden.saturating_mul(intermediate);
        let Matrices { gate, up, down } = &matrices;
        for (what, got) in [("gate", gate.len()), ("up", up.len()), ("down", down.len())] {
            if got != expected || got == 0 {
                return Err(SharedError::Size { what, hidden, intermediate, got });
            }
        }
        if let Gating::Sigmoid(weights) = &gating
            && weights.len() != hidden
        {
            return Err(SharedError::Size { what: "gating", hidden, intermediate, got: weights.len() });
        }
        Ok(Self { hidden, intermediate, matrices, gating })
    }

    /// Adds what the expert makes of `tokens`, `tokens` × `hidden`, to `output`, which is as large; in
    /// f32.
    ///
    /// # Errors
    /// [`SharedError`] if `tokens` are not whole rows, `output` has another size, or `activation` is a
    /// function of plain weights.
    pub fn add_to(
        &self,
        output: &mut [f32],
        tokens: &[f32],
        activation: ActivationFunction,
    ) -> Result<(), SharedError> {
        let Self { hidden, intermediate, .. } = *self;
        if activation.kind().halves() != 2 {
            return Err(SharedError::Plain(activation.kind()));
        }
        let fits = tokens.len().is_multiple_of(hidden);
        for (what, got, fits) in
            [("tokens", tokens.len(), fits), ("output", output.len(), output.len() == tokens.len())]
        {
            if !fits {
                return Err(SharedError::Size { what, hidden, intermediate, got });
            }
        }
        let rows = output.par_chunks_mut(hidden).zip(tokens.par_chunks(hidden));
        rows.for_each(|(output, token)| self.add_token(output, token, activation));
        Ok(())
    }

    fn add_token(&self, output: &mut [f32], token: &[f32], activation: ActivationFunction) {
        let Matrices { gate, up, down } = &self.matrices;
        let project = |weights: &[f32]| -> Vec<f32> {
            weights.chunks_exact(self.hidden).map(|row| dot(row, token)).collect()
        };
        let pairs = std::iter::zip(project(gate), project(up));
        let activated: Vec<f32> = pairs.map(|(gate, up)| activate(activation, gate, up)).collect();
        let factor = match &self.gating {
            Gating::Whole => 1.0,
            Gating::Sigmoid(weights) => 1.0 / (1.0 + (-dot(weights, token)).exp()),
        };
        for (output, row) in output.iter_mut().zip(down.chunks_exact(self.intermediate)) {
            *output += factor * dot(row, &activated);
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrices() -> Matrices {
        Matrices { gate: vec![1.0, -1.0], up: vec![2.0, 0.5], down: vec![1.0, -2.0] }
    }

    fn sized(error: SharedError) -> &'static str {
        match error {
            SharedError::Size { what, .. } => what,
            SharedError::Plain(_) => "activation",
        }
    }

    fn silu(x: f32) -> f32 {
        x / (1.0 + (-x).exp())
    }

    /// Two hidden values, one intermediate value: the gate sees 2 - 1, the up half 4 + 0.5.
    #[test]
    fn adds_to_the_output() {
        let tokens = [2.0, 1.0, 0.0, 0.0];
        let run = |gating| {
            let mut output = [10.0, 20.0, 30.0, 40.0];
            let expert = SharedExpert::new(2, 1, matrices(), gating).unwrap();
            expert.add_to(&mut output, &tokens, ActivationFunction::SILU).unwrap();
            output
        };
        let middle = silu(1.0) * 4.5;
        let close = |ours: [f32; 4], expected: [f32; 4]| {
            ours.iter().zip(expected).all(|(ours, wanted)| (ours - wanted).abs() < 1e-5)
        };
        assert!(close(run(Gating::Whole), [10.0 + middle, 20.0 - 2.0 * middle, 30.0, 40.0]));
        // The sigmoid of ln 3 is 3/4.
        let part = 0.75 * middle;
        let gating = Gating::Sigmoid(vec![0.0, 3f32.ln()]);
        assert!(close(run(gating), [10.0 + part, 20.0 - 2.0 * part, 30.0, 40.0]));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let what = |result: Result<SharedExpert, SharedError>| result.map(|_| ()).map_err(sized);
        let wide = Matrices { up: vec![0.0; 3], ..matrices() };
        assert_eq!(what(SharedExpert::new(2, 1, wide, Gating::Whole)), Err("up"));
        assert_eq!(what(SharedExpert::new(2, 1, matrices(), Gating::Sigmoid(vec![0.0]))), Err("gating"));
        let nothing = Matrices { gate: vec![], up: vec![], down: vec![] };
        assert_eq!(what(SharedExpert::new(0, 1, nothing, Gating::Whole)), Err("gate"));
        let expert = SharedExpert::new(2, 1, matrices(), Gating::Whole).unwrap();
        let run = |output: &mut [f32], tokens: &[f32]| {
            expert.add_to(output, tokens, ActivationFunction::SILU).map_err(sized)
        };
        assert_eq!(run(&mut [0.0; 3], &[0.0; 3]), Err("tokens"));
        assert_eq!(run(&mut [0.0; 2], &[0.0; 4]), Err("output"));
    }

    /// The gate would be computed and dropped.
    #[test]
    fn a_function_of_plain_weights_is_refused() {
        let expert = SharedExpert::new(2, 1, matrices(), Gating::Whole).unwrap();
        let got = expert.add_to(&mut [0.0; 2], &[1.0; 2], ActivationFunction::Relu2NoMul);
        assert_eq!(got, Err(SharedError::Plain(Activation::Relu2NoMul)));
    }
}
