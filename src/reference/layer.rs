//! The mixture-of-experts layer in f64.

use rayon::prelude::*;

use super::numbers::{Codes, row_values};
use super::{NoReference, activate, check_sizes, quantize_dequantize, sized};
use crate::config::ActivationFunction;
use crate::format::FormatSpec;
use crate::recipe::Recipe;
use crate::weights::canonical::{Canonical, Stack};

/// The experts of each token, tokens outermost: `tokens` × `top_k` entries.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// The expert of each entry; `None` contributes nothing.
    pub ids: &'a [Option<u32>],
    /// What the output of each entry is multiplied by.
    pub weights: &'a [f32],
    /// Entries of one token.
    pub top_k: usize,
}

impl Chosen<'_> {
    fn check(&self, tokens: usize, experts: usize) -> Result<(), NoReference> {
        sized("the routed ids", self.ids.len(), tokens * self.top_k)?;
        sized("the router weights", self.weights.len(), tokens * self.top_k)?;
        match self.ids.iter().flatten().find(|id| **id as usize >= experts) {
            Some(&expert) => Err(NoReference::Expert { expert, experts }),
            None => Ok(()),
        }
    }

    /// The entries that go to `expert`.
    fn entries(&self, expert: usize) -> Vec<usize> {
        let is_there = |entry: &usize| self.ids[*entry].is_some_and(|id| id as usize == expert);
        (0..self.ids.len()).filter(is_there).collect()
    }
}

/// The MoE layer: `tokens` × `hidden` output values for as many input values.
///
/// `input` are the values that GEMM1 reads, that is, dequantised ones where the backend reads
/// quantised tokens, and [weighed](weigh_input) ones where router weights multiply the input. `gemm2`
/// says what the activated values of all entries together go through before GEMM2: a format, and the
/// recipe of its scales; `None` leaves them as they are.
///
/// # Errors
/// [`NoReference`] if buffers do not fit together or a format has no rule.
pub fn layer(
    weights: &Canonical,
    activation: ActivationFunction,
    chosen: Chosen<'_>,
    input: &[f64],
    gemm2: Option<(&FormatSpec, Recipe)>,
) -> Result<Vec<f64>, NoReference> {
    let mut middle = activated(weights, activation, chosen, input)?;
    if let Some((format, recipe)) = gemm2 {
        middle = quantize_dequantize(&middle, weights.intermediate, format, recipe)?;
    }
    combined(weights, chosen, &middle)
}

/// The first half of the layer: the activated values of each entry, (`tokens` × `top_k`) ×
/// `intermediate`; zeros for entries without an expert.
///
/// # Errors
/// As [`layer`].
pub fn activated(
    weights: &Canonical,
    activation: ActivationFunction,
    chosen: Chosen<'_>,
    input: &[f64],
) -> Result<Vec<f64>, NoReference> {
    check_sizes(weights)?;
    let Canonical { experts, hidden, intermediate, .. } = *weights;
    let tokens = input.len().checked_div(hidden).unwrap_or(0);
    sized("the input", input.len(), tokens * hidden)?;
    chosen.check(tokens, experts)?;
    let biases = weights.biases.as_ref();
    let mut middle = vec![0.0; chosen.ids.len() * intermediate];
    for expert in 0..experts {
        let entries = chosen.entries(expert);
        let rows: Vec<&[f64]> =
            entries.iter().map(|entry| &input[entry / chosen.top_k * hidden..][..hidden]).collect();
        let project =
            |stack, bias: Option<&Vec<f32>>| project(weights, stack, bias.map(Vec::as_slice), expert, &rows);
        let gate = weights.gate.as_ref().map(|gate| project(gate, biases.map(|biases| &biases.gate)));
        let up = project(&weights.up, biases.map(|biases| &biases.up));
        for (row, entry) in entries.into_iter().enumerate() {
            for (channel, value) in middle[entry * intermediate..][..intermediate].iter_mut().enumerate() {
                // Functions of plain layers do not look at the gate.
                let gate = gate.as_ref().map_or(f64::NAN, |gate| gate[channel][row]);
                *value = activate(activation, gate, up[channel][row]);
            }
        }
    }
    Ok(middle)
}

/// The second half: GEMM2 of `middle`, whose rows are the entries, and the weighted sum over the entries
/// of each token, `tokens` × `hidden`.
///
/// # Errors
/// As [`layer`].
pub fn combined(weights: &Canonical, chosen: Chosen<'_>, middle: &[f64]) -> Result<Vec<f64>, NoReference> {
    check_sizes(weights)?;
    let Canonical { experts, hidden, intermediate, .. } = *weights;
    sized("the activated values", middle.len(), chosen.ids.len() * intermediate)?;
    let tokens = chosen.ids.len().checked_div(chosen.top_k).unwrap_or(0);
    chosen.check(tokens, experts)?;
    let bias = weights.biases.as_ref().map(|biases| biases.down.as_slice());
    let mut output = vec![0.0; tokens * hidden];
    for expert in 0..experts {
        let entries = chosen.entries(expert);
        let rows: Vec<&[f64]> =
            entries.iter().map(|entry| &middle[entry * intermediate..][..intermediate]).collect();
        let down = project(weights, &weights.down, bias, expert, &rows);
        for (row, entry) in entries.into_iter().enumerate() {
            let weight = f64::from(chosen.weights[entry]);
            let output = &mut output[entry / chosen.top_k * hidden..][..hidden];
            output.iter_mut().zip(&down).for_each(|(output, down)| *output += weight * down[row]);
        }
    }
    Ok(output)
}

/// The matrix of `expert` times each of `rows`, plus the bias: one list an output channel.
fn project(
    weights: &Canonical,
    stack: &Stack,
    bias: Option<&[f32]>,
    index: usize,
    rows: &[&[f64]],
) -> Vec<Vec<f64>> {
    if rows.is_empty() {
        return vec![Vec::new(); stack.rows];
    }
    let codes = Codes::new(weights.format.element);
    let matrix = stack.matrix(weights.format, index);
    // Each weight row is decoded once, for all rows of the expert.
    let channel = |channel: usize| {
        let weight = row_values(&codes, weights.format, channel, &matrix);
        let bias = bias.map_or(0.0, |bias| f64::from(bias[index * stack.rows + channel]));
        rows.iter().map(|values| dot(&weight, values) + bias).collect()
    };
    (0..stack.rows).into_par_iter().map(channel).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Tokens times their router weights, one a token, for models whose weights multiply the input.
///
/// # Errors
/// [`NoReference::Size`] if `input` is not one row of `hidden` values for each weight.
pub fn weigh_input(input: &[f64], hidden: usize, weights: &[f32]) -> Result<Vec<f64>, NoReference> {
    sized("the input", input.len(), weights.len() * hidden)?;
    let rows = input.chunks(hidden.max(1)).zip(weights);
    Ok(rows.flat_map(|(row, weight)| row.iter().map(|value| value * f64::from(*weight))).collect())
}

/// What a shared expert adds to the output: a layer of one expert that every token goes to. `gating`
/// holds the `hidden` weights of the logit by whose sigmoid the expert is multiplied; `None` takes it
/// whole.
///
/// # Errors
/// [`NoReference`] if `weights` are not of one expert, or as [`layer`].
pub fn shared(
    weights: &Canonical,
    activation: ActivationFunction,
    gating: Option<&[f32]>,
    input: &[f64],
) -> Result<Vec<f64>, NoReference> {
    sized("the experts of a shared expert", weights.experts, 1)?;
    let hidden = weights.hidden;
    let tokens = input.len().checked_div(hidden).unwrap_or(0);
    let (ids, ones) = (vec![Some(0); tokens], vec![1.0; tokens]);
    let mut output = layer(weights, activation, Chosen { ids: &ids, weights: &ones, top_k: 1 }, input, None)?;
    if let Some(gating) = gating {
        sized("the gating of a shared expert", gating.len(), hidden)?;
        let gating: Vec<f64> = gating.iter().copied().map(f64::from).collect();
        for (output, token) in output.chunks_mut(hidden.max(1)).zip(input.chunks(hidden.max(1))) {
            let factor = 1.0 / (1.0 + (-dot(&gating, token)).exp());
            output.iter_mut().for_each(|value| *value *= factor);
        }
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ElementType, Reach, ScaleType};
    use crate::scale::Multiplier;
    use crate::weights::canonical::Biases;

    static F32: FormatSpec = FormatSpec::unscaled("f32", ElementType::F32);

    fn stack(rows: usize, cols: usize, values: &[f32]) -> Stack {
        Stack::new(rows, cols, values.iter().flat_map(|value| value.to_le_bytes()).collect(), Vec::new())
    }

    /// One hidden and one intermediate value, two experts.
    fn tiny() -> Canonical {
        Canonical {
            format: &F32,
            experts: 2,
            hidden: 1,
            intermediate: 1,
            gate: Some(stack(1, 1, &[1.0, 2.0])),
            up: stack(1, 1, &[3.0, -1.0]),
            down: stack(1, 1, &[0.5, 4.0]),
            biases: None,
        }
    }

    fn run(weights: &Canonical, chosen: Chosen<'_>, input: &[f64]) -> Result<Vec<f64>, NoReference> {
        layer(weights, ActivationFunction::SILU, chosen, input, None)
    }

    fn silu(x: f64) -> f64 {
        x / (1.0 + (-x).exp())
    }

    fn close(ours: &[f64], expected: &[f64]) -> bool {
        ours.len() == expected.len()
            && ours.iter().zip(expected).all(|(ours, wanted)| (ours - wanted).abs() < 1e-12)
    }

    #[test]
    fn a_layer_by_hand() {
        let chosen = Chosen { ids: &[Some(1), Some(0)], weights: &[0.25, 0.75], top_k: 2 };
        let (zero, one) = (silu(2.0) * 6.0 * 0.5, silu(4.0) * -2.0 * 4.0);
        assert!(close(&run(&tiny(), chosen, &[2.0]).unwrap(), &[0.25 * one + 0.75 * zero]));
    }

    /// An entry without an expert adds nothing, and an expert without tokens is no trouble.
    #[test]
    fn absent_experts_and_idle_ones() {
        let two = Chosen { ids: &[None, Some(0), None, None], weights: &[0.25, 0.75, 1.0, 1.0], top_k: 2 };
        assert!(close(&run(&tiny(), two, &[2.0, 5.0]).unwrap(), &[0.75 * silu(2.0) * 6.0 * 0.5, 0.0]));
        assert_eq!(run(&tiny(), Chosen { ids: &[], weights: &[], top_k: 2 }, &[]), Ok(Vec::new()));
    }

    #[test]
    fn plain_layers_have_no_gate() {
        let plain = Canonical { gate: None, ..tiny() };
        let chosen = Chosen { ids: &[Some(0)], weights: &[1.0], top_k: 1 };
        let output = layer(&plain, ActivationFunction::Relu2NoMul, chosen, &[2.0], None).unwrap();
        assert!(close(&output, &[36.0 * 0.5]));
    }

    #[test]
    fn biases_are_added_before_the_activation_and_before_the_router_weight() {
        let biases = Biases { gate: vec![0.0, 1.0], up: vec![0.0, 2.0], down: vec![0.0, 3.0] };
        let weights = Canonical { biases: Some(biases), ..tiny() };
        let chosen = Chosen { ids: &[Some(1)], weights: &[0.5], top_k: 1 };
        let expected = 0.5 * (silu(5.0) * 0.0 * 4.0 + 3.0);
        assert!(close(&run(&weights, chosen, &[2.0]).unwrap(), &[expected]));
    }

    #[test]
    fn second_level_scales_multiply_the_weights_of_their_expert() {
        static TWO_LEVELS: FormatSpec = FormatSpec {
            name: "two levels",
            element: ElementType::F32,
            block: None,
            global: Some(ScaleType::F32),
        };
        let with = |stack: Stack, globals: [f32; 2]| Stack {
            globals: globals.map(|global| Multiplier::new(global).unwrap()).to_vec(),
            ..stack
        };
        let weights = Canonical {
            format: &TWO_LEVELS,
            gate: Some(with(stack(1, 1, &[4.0, 1.0]), [0.25, 2.0])),
            up: with(stack(1, 1, &[1.0, -4.0]), [3.0, 0.25]),
            down: with(stack(1, 1, &[2.0, 0.5]), [0.25, 8.0]),
            ..tiny()
        };
        let chosen = Chosen { ids: &[Some(1), Some(0)], weights: &[0.25, 0.75], top_k: 2 };
        assert_eq!(run(&weights, chosen, &[2.0]), run(&tiny(), chosen, &[2.0]));
        let mut without = weights;
        without.down.globals.clear();
        assert!(matches!(run(&without, chosen, &[2.0]), Err(NoReference::Size { .. })));
    }

    /// A format with one scale for all rows sees the rows of all experts.
    #[test]
    fn the_intermediate_is_quantised_as_a_whole() {
        use crate::format::BlockScale;
        let whole =
            BlockScale { scale: ScaleType::F32, rows: Reach::Whole, cols: Reach::Whole, zero_point: None };
        let format = FormatSpec { name: "fp8", element: ElementType::E4m3, block: Some(whole), global: None };
        let chosen = Chosen { ids: &[Some(0), Some(1)], weights: &[1.0, 0.0], top_k: 2 };
        let recipe = Recipe::default();
        let output = layer(&tiny(), ActivationFunction::SILU, chosen, &[0.01], Some((&format, recipe)));
        let middle = activated(&tiny(), ActivationFunction::SILU, chosen, &[0.01]).unwrap();
        let quantised = quantize_dequantize(&middle, 1, &format, recipe).unwrap();
        assert_ne!(quantised[0], middle[0]);
        assert!(close(&output.unwrap(), &[quantised[0] * 0.5]));
    }

    #[test]
    fn weights_on_the_input() {
        assert_eq!(weigh_input(&[1.0, 2.0, 3.0, 4.0], 2, &[0.5, 2.0]), Ok(vec![0.5, 1.0, 6.0, 8.0]));
        assert!(weigh_input(&[1.0], 2, &[0.5]).is_err());
    }

    #[test]
    fn shared_experts() {
        let one = Canonical {
            experts: 1,
            gate: Some(stack(1, 1, &[1.0])),
            up: stack(1, 1, &[3.0]),
            down: stack(1, 1, &[0.5]),
            ..tiny()
        };
        let run = |weights: &Canonical, gating: Option<&[f32]>| {
            shared(weights, ActivationFunction::SILU, gating, &[2.0])
        };
        let whole = silu(2.0) * 3.0;
        assert!(close(&run(&one, None).unwrap(), &[whole]));
        assert!(close(&run(&one, Some(&[0.0])).unwrap(), &[whole / 2.0]));
        assert!(run(&tiny(), None).is_err() && run(&one, Some(&[0.0, 0.0])).is_err());
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let beyond = Chosen { ids: &[Some(2)], weights: &[1.0], top_k: 1 };
        assert_eq!(run(&tiny(), beyond, &[2.0]), Err(NoReference::Expert { expert: 2, experts: 2 }));
        let short = Chosen { ids: &[Some(0)], weights: &[1.0, 1.0], top_k: 1 };
        assert!(matches!(run(&tiny(), short, &[2.0]), Err(NoReference::Size { .. })));
        let mut cut = tiny();
        cut.down.payload.pop();
        let chosen = Chosen { ids: &[Some(0)], weights: &[1.0], top_k: 1 };
        assert!(matches!(run(&cut, chosen, &[2.0]), Err(NoReference::Size { .. })));
    }
}
