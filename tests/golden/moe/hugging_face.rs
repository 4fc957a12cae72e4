//! The MoE blocks of transformers: unquantised, each with the routing of its model.

use half::bf16;
use scalewright::config::ActivationFunction;
use scalewright::moe::routing::{Groups, Method, WeightOn, Weights, route};
use scalewright::moe::shared::{Gating, Matrices, SharedExpert};
use scalewright::reference;
use scalewright::weights::canonical::{Canonical, Stack};

use super::{IN_BF16, IN_F32, Tolerance, halves, logits, rows, size, text};
use crate::data::{File, Outcome, Relation, Tensor, Tensors};
use crate::engine;
use crate::routing::{Choice, same_choice};

pub(super) fn check(file: &File, tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let block = Block { file, tensors, model: model(&relation.source, file, tensors)? };
    match relation.relation.as_str() {
        "whole block in f32" => Some(block.check("f32", IN_F32)),
        "whole block in bf16" => Some(block.check("bf16", IN_BF16)),
        _ => None,
    }
}

/// Where a model's router and shared expert are, and how it routes.
struct Model {
    router: &'static str,
    method: Method,
    shared: Option<&'static str>,
    /// The weights of the shared expert's gate.
    gating: Option<&'static str>,
}

fn model(source: &str, file: &File, tensors: &Tensors) -> Option<Model> {
    let top_k = size(file, "topk");
    let plain = |method| Model { router: "w.gate.weight", method, shared: None, gating: None };
    Some(match source.strip_prefix("transformers:")? {
        "MixtralSparseMoeBlock" => plain(Method::renormalize_naive(top_k)),
        "Qwen3MoeSparseMoeBlock" if file.params["norm_topk_prob"].as_bool()? => {
            plain(Method::renormalize_naive(top_k))
        }
        "Qwen3MoeSparseMoeBlock" => plain(Method::default_softmax(top_k)),
        "Qwen2MoeSparseMoeBlock" => Model {
            shared: Some("w.shared_expert"),
            gating: Some("w.shared_expert_gate.weight"),
            ..plain(Method::default_softmax(top_k))
        },
        "DeepseekV3MoE" => {
            let correction = tensors["w.gate.e_score_correction_bias"].reals();
            let groups = Groups { count: size(file, "n_group"), kept: size(file, "topk_group") };
            let factor = file.params["rsf"].as_f64()? as f32;
            let method = Method::deepseek_v3(top_k, correction, groups, factor);
            Model { shared: Some("w.shared_experts"), ..plain(method) }
        }
        "MiniMaxM2SparseMoeBlock" => {
            let correction = tensors["w.e_score_correction_bias"].reals();
            let exact = Weights::Renormalized { epsilon: 0.0 };
            plain(Method { weights: exact, ..Method::minimax2(top_k, correction) })
        }
        "Llama4TextMoe" => {
            Model { router: "w.router.weight", shared: Some("w.shared_expert"), ..plain(Method::llama4()) }
        }
        _ => return None,
    })
}

const FUNCTION: ActivationFunction = ActivationFunction::SILU;

struct Block<'a> {
    file: &'a File,
    tensors: &'a Tensors,
    model: Model,
}

impl Block<'_> {
    fn check(&self, precision: &str, output: Tolerance) -> Outcome {
        let tensor = |name: &str| &self.tensors[format!("{precision}.{name}").as_str()];
        let (weights, input) = (self.weights(), self.tensors["x"].doubles());
        let (hidden, experts) = (weights.hidden, weights.experts);

        let theirs = tensor("router_logits");
        let is_bf16 = theirs.dtype == safetensors::Dtype::BF16;
        // A sum of bf16 products, rounded once.
        let rounding = Tolerance { relative: 1.0 / 256.0, of_largest: 1.0 / 512.0 };
        let own = logits(&input, &self.tensors[self.model.router].doubles(), None, hidden);
        if is_bf16 { rounding } else { IN_F32 }.judge("logits", &own, &theirs.doubles())?;

        let ids = tensor("topk_ids");
        let on_input = self.model.method.weight_on == WeightOn::Input;
        let weights_of =
            if on_input { scores(tensor("router_scores"), ids) } else { tensor("topk_weights").reals() };
        let is_rounded = [ids, tensor(if on_input { "router_scores" } else { "topk_weights" })]
            .iter()
            .any(|tensor| tensor.dtype == safetensors::Dtype::BF16);
        let stored = Choice::stored(ids, weights_of);
        let tokens = theirs.shape[0];
        let method = Method { weight_on: WeightOn::Output, ..self.model.method.clone() };
        let unweighed = route(&theirs.reals(), tokens, experts, &method).map_err(text)?;
        same_choice(theirs, &Choice::of(&unweighed), &stored, if is_rounded { 1.0 / 128.0 } else { 1e-5 })?;

        // Their experts and weights, so that a tie tells nothing from a mistake.
        let routing = stored.routing(experts)?;
        let routing = if on_input { routing.on_input().map_err(text)? } else { routing };
        let weighed = match self.model.method.weight_on {
            WeightOn::Output => input.clone(),
            WeightOn::Input => reference::weigh_input(&input, hidden, &stored.weights).map_err(text)?,
        };
        let own = Choice::of(&routing);
        let mut ours = reference::layer(&weights, FUNCTION, own.chosen(), &weighed, None).map_err(text)?;
        let shared = self.shared(&input)?;
        ours.iter_mut().zip(&shared).for_each(|(ours, shared)| *ours += shared);
        let theirs = tensor("out").doubles();
        output.judge("reference", &ours, &theirs)?;

        for (contract, routed) in rows(&weights, FUNCTION, &self.bf16_tokens(), &routing)? {
            let whole: Vec<f64> =
                routed.iter().zip(&shared).map(|(routed, shared)| routed.to_f64() + shared).collect();
            IN_BF16.judge(contract.name, &whole, &theirs)?;
        }
        Ok(())
    }

    fn bf16_tokens(&self) -> Vec<bf16> {
        self.tensors["x"].bf16()
    }

    /// The routed experts: gate and up one after the other, \[experts, 2 I, H\]; \[experts, H, 2 I\] in
    /// Llama 4, whose down projection lies on its side too.
    fn weights(&self) -> Canonical {
        let (experts, hidden, intermediate) =
            (size(self.file, "experts"), self.tensors["x"].cols(), self.intermediate());
        let lies = self.model.method.weight_on == WeightOn::Input;
        let stack = |name: &str, rows: usize, cols: usize| {
            let bytes = &self.tensors[name].bytes;
            let payload = if lies { transposed(bytes, rows, cols) } else { bytes.clone() };
            Stack::new(rows, cols, payload, Vec::new())
        };
        let format = engine::format("bf16");
        let both = stack("w.experts.gate_up_proj", 2 * intermediate, hidden);
        let [gate, up] = halves(format, experts, &both);
        let down = stack("w.experts.down_proj", hidden, intermediate);
        Canonical { format, experts, hidden, intermediate, gate: Some(gate), up, down, biases: None }
    }

    fn intermediate(&self) -> usize {
        let values = self.tensors["w.experts.down_proj"].bytes.len() / 2;
        values / size(self.file, "experts") / self.tensors["x"].cols()
    }

    /// What the shared expert adds, by the reference, which the engine's agrees with; zeros if there is
    /// none.
    fn shared(&self, input: &[f64]) -> Result<Vec<f64>, String> {
        let Some(prefix) = self.model.shared else { return Ok(vec![0.0; input.len()]) };
        let tensor = |projection: &str| &self.tensors[format!("{prefix}.{projection}.weight").as_str()];
        let [gate, up, down] = ["gate_proj", "up_proj", "down_proj"].map(tensor);
        let (hidden, intermediate) = (gate.cols(), down.cols());
        let gating = self.model.gating.map(|name| self.tensors[name].reals());

        let stack =
            |tensor: &Tensor| Stack::new(tensor.shape[0], tensor.cols(), tensor.bytes.clone(), Vec::new());
        let weights = Canonical {
            format: engine::format("bf16"),
            experts: 1,
            hidden,
            intermediate,
            gate: Some(stack(gate)),
            up: stack(up),
            down: stack(down),
            biases: None,
        };
        let slow = reference::shared(&weights, FUNCTION, gating.as_deref(), input).map_err(text)?;

        let matrices = Matrices { gate: gate.reals(), up: up.reals(), down: down.reals() };
        let gating = gating.map_or(Gating::Whole, Gating::Sigmoid);
        let expert = SharedExpert::new(hidden, intermediate, matrices, gating).map_err(text)?;
        let input: Vec<f32> = input.iter().map(|value| *value as f32).collect();
        let mut fast = vec![0.0; input.len()];
        expert.add_to(&mut fast, &input, FUNCTION).map_err(text)?;
        let fast: Vec<f64> = fast.into_iter().map(f64::from).collect();
        IN_F32.judge("shared expert", &fast, &slow)?;
        Ok(slow)
    }
}

/// The scores of the chosen out of a dense matrix, tokens × experts.
fn scores(dense: &Tensor, ids: &Tensor) -> Vec<f32> {
    let (values, experts, top_k) = (dense.reals(), dense.cols(), ids.cols());
    ids.words().iter().enumerate().map(|(entry, id)| values[entry / top_k * experts + *id as usize]).collect()
}

/// Matrices of `cols` × `rows` bf16 as ones of `rows` × `cols`.
fn transposed(bytes: &[u8], rows: usize, cols: usize) -> Vec<u8> {
    let element = |matrix: &[u8], row: usize, col: usize| {
        let at = 2 * (col * rows + row);
        [matrix[at], matrix[at + 1]]
    };
    let matrices = bytes.chunks_exact(2 * rows * cols);
    let places = || (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
    matrices.flat_map(|matrix| places().flat_map(move |(row, col)| element(matrix, row, col))).collect()
}
