//! The layer that `verify` runs: shipped, from a file, or made up.

use std::path::Path;

use half::bf16;
use scalewright::config::ActivationFunction;
use scalewright::generated::formats::MXFP4;
use scalewright::moe::routing::{Routing, Softmax, softmax_top_k};
use scalewright::reference::{self, Chosen};
use scalewright::tensor::Tokens;
use scalewright::weights::canonical::Canonical;
use scalewright::weights::gpt_oss::{self, Checkpoint, Router, Sample};
use scalewright::weights::synthetic::{self, Shape};

use crate::cli::{Trouble, question, question_with_cause};

/// A gpt-oss layer of a small real model with its activations and what transformers makes of them;
/// `tests/golden/ATTRIBUTION.md` says whose.
const SHIPPED: &[u8] = include_bytes!("../../../tests/golden/moe/gptoss_real_T40_H256_I96_E8_k4.safetensors");

/// Experts of one token in gpt-oss.
const TOP_K: usize = 4;

pub(super) struct Layer {
    name: String,
    pub(super) weights: Canonical,
    pub(super) routing: Routing,
    pub(super) activation: ActivationFunction,
    /// How the reference compares with an output that came with the layer.
    pub(super) stored: Option<Stored>,
    values: Vec<bf16>,
}

/// The reference against a stored output: the largest difference, as a part of the largest value.
pub(super) struct Stored {
    pub(super) error: f64,
}

impl Stored {
    /// What two computations in f32 may differ by.
    pub(super) fn tolerance(&self) -> f64 {
        2e-5
    }

    pub(super) fn agrees(&self) -> bool {
        self.error <= self.tolerance()
    }
}

impl Layer {
    pub(super) fn shipped(tokens: Option<usize>, activation: ActivationFunction) -> Result<Self, Trouble> {
        let path = Path::new("the shipped layer");
        let checkpoint = gpt_oss::parse(path, SHIPPED, &MXFP4, None).map_err(question)?;
        Self::from_checkpoint("the shipped gpt-oss layer".to_owned(), checkpoint, tokens, activation)
    }

    pub(super) fn from_file(
        file: &Path,
        layer: Option<usize>,
        tokens: Option<usize>,
        activation: ActivationFunction,
    ) -> Result<Self, Trouble> {
        let checkpoint = gpt_oss::load(file, &MXFP4, layer).map_err(question_with_cause)?;
        Self::from_checkpoint(file.display().to_string(), checkpoint, tokens, activation)
    }

    fn from_checkpoint(
        name: String,
        checkpoint: Checkpoint,
        tokens: Option<usize>,
        activation: ActivationFunction,
    ) -> Result<Self, Trouble> {
        let Checkpoint { weights, router, activations } = checkpoint;
        match activations {
            Some(sample) => Self::from_sample(name, weights, &sample, tokens, activation),
            None => {
                let shape = Shape {
                    experts: weights.experts,
                    hidden: weights.hidden,
                    intermediate: weights.intermediate,
                    top_k: TOP_K.min(weights.experts),
                };
                let made_up = if router.is_some() { "made-up tokens" } else { "made-up router and tokens" };
                let name = format!("{name}, {made_up}");
                let router = router.unwrap_or_else(|| synthetic::router(shape, SEED));
                Self::routed(name, shape, weights, &router, tokens.unwrap_or(16), activation)
            }
        }
    }

    fn from_sample(
        name: String,
        weights: Canonical,
        sample: &Sample,
        tokens: Option<usize>,
        activation: ActivationFunction,
    ) -> Result<Self, Trouble> {
        let (hidden, top_k) = (weights.hidden, sample.top_k);
        let held = sample.x.len() / hidden.max(1);
        let tokens = tokens.unwrap_or(held);
        if tokens > held {
            return Err(question(format!("{name} holds {held} tokens, not {tokens}")));
        }
        let (ids, router_weights) = (&sample.ids[..tokens * top_k], &sample.weights[..tokens * top_k]);
        let routing = Routing::new(tokens, top_k, weights.experts, ids.to_vec(), router_weights.to_vec());
        let values = sample.x[..tokens * hidden].to_vec();
        let stored = compare(&weights, activation, ids, router_weights, top_k, &values, &sample.out)?;
        let routing = routing.map_err(question)?;
        Ok(Self { name, weights, routing, activation, stored: Some(stored), values })
    }

    pub(super) fn made_up(
        name: &str,
        shape: Shape,
        tokens: usize,
        activation: ActivationFunction,
    ) -> Result<Self, Trouble> {
        let weights = synthetic::weights(shape, SEED, &MXFP4).map_err(question)?;
        let router = synthetic::router(shape, SEED);
        Self::routed(format!("a made-up layer of {name}'s size"), shape, weights, &router, tokens, activation)
    }

    fn routed(
        name: String,
        shape: Shape,
        weights: Canonical,
        router: &Router,
        tokens: usize,
        activation: ActivationFunction,
    ) -> Result<Self, Trouble> {
        let values = synthetic::tokens(shape, tokens, SEED);
        let logits: Vec<f32> = values.chunks(shape.hidden).flat_map(|token| logits(token, router)).collect();
        let routing = softmax_top_k(&logits, tokens, shape.experts, shape.top_k, Softmax::AfterTopK);
        let routing = routing.map_err(question)?;
        Ok(Self { name, weights, routing, activation, stored: None, values })
    }

    pub(super) fn tokens(&self) -> Tokens<'_, bf16> {
        let (rows, cols) = (self.routing.tokens(), self.weights.hidden);
        Tokens::new(&self.values, rows, cols).expect("values were cut to this size")
    }

    pub(super) fn describe(&self) -> String {
        let Canonical { experts, hidden, intermediate, .. } = self.weights;
        format!(
            "{}: {} tokens, hidden {hidden}, intermediate {intermediate}, {experts} experts, top-{}",
            self.name,
            self.routing.tokens(),
            self.routing.top_k(),
        )
    }
}

const SEED: u64 = 20;

fn logits(token: &[bf16], router: &Router) -> Vec<f32> {
    let dot = |weights: &[f32]| token.iter().zip(weights).map(|(x, w)| x.to_f32() * w).sum::<f32>();
    router.weight.chunks(token.len()).zip(&router.bias).map(|(weights, bias)| dot(weights) + bias).collect()
}

fn compare(
    weights: &Canonical,
    activation: ActivationFunction,
    ids: &[u32],
    router_weights: &[f32],
    top_k: usize,
    values: &[bf16],
    stored: &[f32],
) -> Result<Stored, Trouble> {
    let input: Vec<f64> = values.iter().map(|value| f64::from(value.to_f32())).collect();
    let chosen = Chosen { ids, weights: router_weights, top_k };
    let output = reference::layer(weights, activation, chosen, &input, None).map_err(question)?;
    let differences = output.iter().zip(stored).map(|(got, want)| (got - f64::from(*want)).abs());
    let largest =
        stored[..output.len()].iter().fold(0.0f64, |largest, value| largest.max(f64::from(value.abs())));
    // Not `max`, which would lose a NaN.
    let largest_of = |most: f64, next: f64| if next <= most || most.is_nan() { most } else { next };
    let difference = differences.fold(0.0, largest_of);
    Ok(Stored { error: difference / if largest == 0.0 { 1.0 } else { largest } })
}
