//! The layer that `verify` runs: shipped, from a file, or made up.

use std::path::Path;

use half::bf16;
use scalewright::config::ActivationFunction;
use scalewright::generated::formats::{BF16, MXFP4};
use scalewright::moe::routing::{Method, Routing, route};
use scalewright::moe::shared::{Gating, Matrices, SharedExpert};
use scalewright::reference::{self, Chosen};
use scalewright::tensor::Tokens;
use scalewright::weights::canonical::{Canonical, Stack};
use scalewright::weights::gpt_oss::{self, Checkpoint, Router, Sample};
use scalewright::weights::synthetic::{self, Shape};

use super::family::Family;
use crate::cli::{Trouble, question, question_with_cause};

/// A gpt-oss layer of a small real model with its activations and what transformers makes of them;
/// `tests/golden/ATTRIBUTION.md` says whose.
const SHIPPED: &[u8] = include_bytes!("../../../tests/golden/moe/gptoss_real_T40_H256_I96_E8_k4.safetensors");

/// Experts of one token in gpt-oss.
const TOP_K: usize = 4;

/// Tokens that are made up if nobody says how many.
const TOKENS: usize = 16;

pub(super) struct Layer {
    name: String,
    pub(super) weights: Canonical,
    pub(super) routing: Routing,
    pub(super) activation: ActivationFunction,
    /// How the reference compares with an output that came with the layer.
    pub(super) stored: Option<Agreement>,
    /// How the shared expert compares with the reference. It is not quantised, so it is the same for all
    /// rows, which are about the routed experts.
    pub(super) shared: Option<Agreement>,
    values: Vec<bf16>,
}

/// Two computations that should agree: their largest difference, as a part of the largest value.
pub(super) struct Agreement {
    pub(super) error: f64,
}

impl Agreement {
    /// What two computations in f32 may differ by.
    pub(super) const TOLERANCE: f64 = 2e-5;

    fn of(ours: &[f64], theirs: impl Iterator<Item = f64> + Clone) -> Self {
        // Not `max`, which would lose a NaN.
        let largest_of = |most: f64, next: f64| if next <= most || most.is_nan() { most } else { next };
        let largest = theirs.clone().map(f64::abs).fold(0.0, largest_of);
        let difference = ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs());
        let difference = difference.fold(0.0, largest_of);
        Self { error: difference / if largest == 0.0 { 1.0 } else { largest } }
    }

    pub(super) fn holds(&self) -> bool {
        self.error <= Self::TOLERANCE
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
                let values = synthetic::tokens(shape, tokens.unwrap_or(TOKENS), SEED);
                let method = Family::GptOss.method(shape, SEED);
                let routing = routed(&values, shape, &router, &method)?;
                Ok(Self { name, weights, routing, activation, stored: None, shared: None, values })
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
        let routing = routing.map_err(question)?;
        let values = sample.x[..tokens * hidden].to_vec();
        let chosen = Chosen { ids: routing.ids(), weights: routing.weights(), top_k };
        let output = reference::layer(&weights, activation, chosen, &doubles(&values), None);
        let stored = sample.out[..tokens * hidden].iter().copied().map(f64::from);
        let stored = Some(Agreement::of(&output.map_err(question)?, stored));
        Ok(Self { name, weights, routing, activation, stored, shared: None, values })
    }

    /// A layer of the family; `name` is that of its sizes, if they have one.
    pub(super) fn made_up(
        family: Family,
        shape: Shape,
        name: Option<&str>,
        tokens: Option<usize>,
        activation: ActivationFunction,
    ) -> Result<Self, Trouble> {
        let name = match name {
            Some(name) => format!("a made-up layer of {name}'s size"),
            None => format!("a made-up {} layer", family.name()),
        };
        let mut weights = synthetic::weights(shape, SEED, family.format()).map_err(question)?;
        let mut router = synthetic::router(shape, SEED);
        if family != Family::GptOss {
            weights.biases = None;
            router.bias.fill(0.0);
        }
        let values = synthetic::tokens(shape, tokens.unwrap_or(TOKENS), SEED);
        let routing = routed(&values, shape, &router, &family.method(shape, SEED))?;
        let shared = family.shared(shape).map(|shape| shared(shape, activation, &values)).transpose()?;
        Ok(Self { name, weights, routing, activation, stored: None, shared, values })
    }

    pub(super) fn tokens(&self) -> Tokens<'_, bf16> {
        let (rows, cols) = (self.routing.tokens(), self.weights.hidden);
        Tokens::new(&self.values, rows, cols).expect("values were cut to this size")
    }

    pub(super) fn describe(&self) -> String {
        let Canonical { experts, hidden, intermediate, format, .. } = self.weights;
        format!(
            "{}: {} tokens, hidden {hidden}, intermediate {intermediate}, {experts} experts, top-{}, {} weights",
            self.name,
            self.routing.tokens(),
            self.routing.top_k(),
            format.name,
        )
    }
}

const SEED: u64 = 20;

fn doubles(values: &[bf16]) -> Vec<f64> {
    values.iter().map(|value| value.to_f64()).collect()
}

fn routed(values: &[bf16], shape: Shape, router: &Router, method: &Method) -> Result<Routing, Trouble> {
    let tokens = values.chunks(shape.hidden);
    let logits: Vec<f32> = tokens.clone().flat_map(|token| logits(token, router)).collect();
    route(&logits, tokens.len(), shape.experts, method).map_err(question)
}

fn logits(token: &[bf16], router: &Router) -> Vec<f32> {
    let dot = |weights: &[f32]| token.iter().zip(weights).map(|(x, w)| x.to_f32() * w).sum::<f32>();
    router.weight.chunks(token.len()).zip(&router.bias).map(|(weights, bias)| dot(weights) + bias).collect()
}

/// A made-up shared expert on the engine and by the reference.
fn shared(shape: Shape, activation: ActivationFunction, values: &[bf16]) -> Result<Agreement, Trouble> {
    let weights = synthetic::weights(shape, SEED + 1, &BF16).map_err(question)?;
    let weights = Canonical { biases: None, ..weights };
    let slow = reference::shared(&weights, activation, None, &doubles(values)).map_err(question)?;

    let reals = |stack: &Stack| -> Vec<f32> {
        stack.payload.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).to_f32()).collect()
    };
    let gate = weights.gate.as_ref().map(reals).unwrap_or_default();
    let matrices = Matrices { gate, up: reals(&weights.up), down: reals(&weights.down) };
    let expert = SharedExpert::new(shape.hidden, shape.intermediate, matrices, Gating::Whole);
    let tokens: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
    let mut fast = vec![0.0; tokens.len()];
    expert.and_then(|expert| expert.add_to(&mut fast, &tokens, activation)).map_err(question)?;
    let fast: Vec<f64> = fast.into_iter().map(f64::from).collect();
    Ok(Agreement::of(&fast, slow.into_iter()))
}
