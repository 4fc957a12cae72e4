//! Layers of weights in fp8 with one scale for 128 × 128 of them, in the two conventions that FlashInfer
//! has references for.

use scalewright::config::ActivationFunction;
use scalewright::moe::expert_map::{ExpertMap, GlobalExpert};
use scalewright::moe::routing::{Groups, Method, Routing, route};
use scalewright::recipe::Recipe;
use scalewright::reference::{self, Chosen};
use scalewright::weights::canonical::{Canonical, Stack};

use super::{IN_BF16, Tolerance, halves, rounded_to_bf16, rows, size, text};
use crate::data::{File, Outcome, Relation, Tensors};
use crate::engine;
use crate::routing::{Choice, same_choice};

pub(super) fn check(file: &File, tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let layer = Layer { file, tensors };
    match *relation.outputs().last()? {
        "ds.out_bf16" => Some(layer.deepseek()),
        "mono.out_bf16" => Some(layer.mono()),
        _ => None,
    }
}

const FUNCTION: ActivationFunction = ActivationFunction::SILU;

struct Layer<'a> {
    file: &'a File,
    tensors: &'a Tensors,
}

impl Layer<'_> {
    /// DeepSeek: routing with groups and a correction, up before gate, and nothing between the GEMMs. The
    /// rank may hold a range of the experts only.
    fn deepseek(&self) -> Outcome {
        let weights = self.weights(|[up, gate]| (gate, up));
        let routing = self.deepseek_routing()?;
        let chosen = Choice::of(&routing);
        let output = reference::layer(&weights, FUNCTION, chosen.chosen(), &self.tokens()?, None);
        let theirs = self.tensors["ds.out_bf16"].doubles();
        // Two units in the last place of bf16, and what sums in f32 leave of zero.
        let tolerance = Tolerance { relative: 1.0 / 64.0, of_largest: 1e-6 };
        tolerance.judge("reference", &output.map_err(text)?, &theirs)?;
        rows(&weights, FUNCTION, &self.tensors["x_bf16"].bf16(), &routing)?;
        Ok(())
    }

    fn deepseek_routing(&self) -> Result<Routing, String> {
        let logits = &self.tensors["router_logits"];
        let (tokens, experts) = (logits.shape[0], logits.cols());
        let groups = Groups { count: size(self.file, "n_group"), kept: size(self.file, "topk_group") };
        let factor = self.file.params["routed_scaling_factor"].as_f64().ok_or("no factor")? as f32;
        let correction = self.tensors["router_bias"].reals();
        let method = Method::deepseek_v3(size(self.file, "topk"), correction, groups, factor);
        let routing = route(&logits.reals(), tokens, experts, &method).map_err(text)?;
        let first = size(self.file, "local_expert_offset") as u32;
        let held = first..first + size(self.file, "local_experts") as u32;
        let held: Vec<GlobalExpert> = held.map(GlobalExpert).collect();
        ExpertMap::holding(experts, &held).map_err(text)?.localize(&routing).map_err(text)
    }

    /// Mono: softmax routing, gate before up, and the router weight on the activated values, which are
    /// then rounded to bf16 and quantised.
    fn mono(&self) -> Outcome {
        let weights = self.weights(|[gate, up]| (gate, up));
        let logits = &self.tensors["router_logits"];
        let stored =
            Choice::stored(&self.tensors["mono.topk_ids"], self.tensors["mono.topk_weights"].reals());
        let method = Method::renormalize_naive(stored.top_k);
        let own = route(&logits.reals(), logits.shape[0], logits.cols(), &method).map_err(text)?;
        same_choice(logits, &Choice::of(&own), &stored, 1e-6)?;

        let format = engine::format("fp8_1x128");
        let quantised =
            |values: &[f64], cols| reference::quantize_dequantize(values, cols, format, Recipe::default());
        let input = quantised(&self.tensors["x_bf16"].doubles(), weights.hidden).map_err(text)?;
        let middle = reference::activated(&weights, FUNCTION, stored.chosen(), &input).map_err(text)?;
        let weighed = reference::weigh_input(&middle, weights.intermediate, &stored.weights).map_err(text)?;
        let middle = quantised(&rounded_to_bf16(&weighed), weights.intermediate).map_err(text)?;
        let ones = vec![1.0; stored.weights.len()];
        let unweighed = Chosen { weights: &ones, ..stored.chosen() };
        let output = reference::combined(&weights, unweighed, &middle).map_err(text)?;
        IN_BF16.judge("reference", &output, &self.tensors["mono.out_bf16"].doubles())
    }

    /// `order` says which half of w13 comes first.
    fn weights(&self, order: impl Fn([Stack; 2]) -> (Stack, Stack)) -> Canonical {
        let [experts, hidden, intermediate] =
            ["local_experts", "hidden", "intermediate"].map(|name| size(self.file, name));
        let format = engine::format("fp8_128x128");
        let stack = |name: &str, rows: usize, cols: usize| {
            let bytes = |part: &str| self.tensors[format!("{name}_{part}").as_str()].bytes.clone();
            Stack::new(rows, cols, bytes("q"), bytes("scale"))
        };
        let (gate, up) = order(halves(format, experts, &stack("w13", 2 * intermediate, hidden)));
        let down = stack("w2", hidden, intermediate);
        Canonical { format, experts, hidden, intermediate, gate: Some(gate), up, down, biases: None }
    }

    /// The tokens that they quantised; their scales lie on their side, \[H / 128, tokens\].
    fn tokens(&self) -> Result<Vec<f64>, String> {
        let (stored, scales) = (&self.tensors["x_q"], &self.tensors["x_scale_T"]);
        let (rows, cols) = (stored.shape[0], stored.cols());
        let values = scales.reals();
        let linear = (0..rows).flat_map(|row| (0..scales.shape[0]).map(move |block| (row, block)));
        let linear = linear.flat_map(|(row, block)| values[block * rows + row].to_le_bytes()).collect();
        let format = engine::format("fp8_1x128");
        let stack = Stack::new(rows, cols, stored.bytes.clone(), linear);
        reference::dequantize(format, stack.matrix(format, 0)).map_err(text)
    }
}
