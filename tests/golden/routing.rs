//! Routing: logits to experts and weights, and the routed rows sorted by expert, each expert's padded.

use safetensors::Dtype;
use scalewright::backend::Grouping;
use scalewright::moe::grouping::{Unit, place};
use scalewright::moe::routing::{Groups, Method, Routing, Score, Weights, route};
use scalewright::reference::Chosen;

use crate::data::{Outcome, Relation, Tensor, Tensors, all_same, close, same};

/// Experts and weights, as a source stored them or as ours come out.
pub(crate) struct Choice {
    pub(crate) ids: Vec<Option<u32>>,
    pub(crate) weights: Vec<f32>,
    pub(crate) top_k: usize,
}

impl Choice {
    pub(crate) fn stored(ids: &Tensor, weights: Vec<f32>) -> Self {
        Self { ids: ids.words().into_iter().map(Some).collect(), weights, top_k: ids.cols() }
    }

    pub(crate) fn of(routing: &Routing) -> Self {
        Self { ids: routing.ids().to_vec(), weights: routing.weights().to_vec(), top_k: routing.top_k() }
    }

    pub(crate) fn chosen(&self) -> Chosen<'_> {
        Chosen { ids: &self.ids, weights: &self.weights, top_k: self.top_k }
    }

    pub(crate) fn routing(&self, experts: usize) -> Result<Routing, String> {
        let ids: Vec<u32> = self.ids.iter().copied().flatten().collect();
        let tokens = self.ids.len() / self.top_k;
        Routing::new(tokens, self.top_k, experts, ids, self.weights.clone())
            .map_err(|error| error.to_string())
    }

    /// The logit and the weight of each entry, by size within a token.
    fn logits_and_weights(&self, logits: &Tensor) -> Vec<(f32, f32)> {
        let values = logits.reals();
        let logit = |entry: usize, id: u32| values[entry / self.top_k * logits.cols() + id as usize];
        let ids = self.ids.iter().copied().flatten().enumerate();
        let pairs: Vec<(f32, f32)> =
            ids.map(|(entry, id)| logit(entry, id)).zip(self.weights.iter().copied()).collect();
        let sorted = pairs.chunks(self.top_k).map(|token| {
            let mut token = token.to_vec();
            token.sort_by(|a, b| b.0.total_cmp(&a.0));
            token
        });
        sorted.flatten().collect()
    }
}

/// Whether ours are their experts, in any order, with the same weights but for a part of `relative`. An
/// expert is known by its logit: torch says nothing of the order of ties, so of equal logits either
/// expert will do.
pub(crate) fn same_choice(logits: &Tensor, ours: &Choice, theirs: &Choice, relative: f64) -> Outcome {
    let (ours, theirs) = (ours.logits_and_weights(logits), theirs.logits_and_weights(logits));
    all_same("logits and weights of the chosen", &ours, &theirs, |(logit, weight), (theirs, their_weight)| {
        logit == theirs && close((*weight).into(), (*their_weight).into(), relative, 0.0)
    })
}

/// 1e-6, and one unit in the last place where the source rounds to bf16.
fn tolerance(weights: &Tensor) -> f64 {
    if weights.dtype == Dtype::BF16 { 1.0 / 128.0 } else { 1e-6 }
}

pub(crate) fn check(tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let logits = &tensors[relation.inputs.first()?.as_str()];
    let output = *relation.outputs().first()?;
    if output.ends_with(".torch_topk_ids") {
        return Some(same_logits(logits, &tensors[output]));
    }
    let (case, rest) = output.split_once('.')?;
    let prefix = match rest.split_once('.') {
        Some((method, _)) => format!("{case}.{method}"),
        None => case.to_owned(),
    };
    let corrections = || tensors[format!("{case}.bias").as_str()].reals();
    let method = method(relation, corrections)?;
    let tensor = |name: &str| &tensors[format!("{prefix}.{name}").as_str()];
    Some(ours(logits, method).and_then(|ours| match relation.source.rsplit([':', '.']).next() {
        Some(source) if source.starts_with("routing_reference") => {
            flashinfer(&ours, logits, tensor, relation)
        }
        // The one source that says what it does of ties.
        Some("_routing_softmax_topk") => lowest_index_first(&ours, tensor),
        _ => {
            let weights = tensor("weights");
            let theirs = Choice::stored(tensor("ids"), weights.reals());
            same_choice(logits, &Choice::of(&ours), &theirs, tolerance(weights))
        }
    }))
}

/// The method of a relation, by the name and parameters of its source.
fn method(relation: &Relation, corrections: impl Fn() -> Vec<f32>) -> Option<Method> {
    let size = |name: &str| relation.params[name].as_u64().map(|size| size as usize);
    let factor = relation.params["routed_scaling_factor"].as_f64().map(|factor| factor as f32);
    let top_k = size("top_k").or(size("topk"))?;
    let renormalized = |method: Method| match relation.params["renormalize"].as_bool() {
        Some(true) => Method { weights: Weights::Renormalized { epsilon: 0.0 }, ..method },
        _ => method,
    };
    Some(match relation.source.rsplit(['.', ':']).next()? {
        "_routing_softmax_topk" => Method::renormalize_naive(top_k),
        "_softmax_topk" => renormalized(Method::default_softmax(top_k)),
        "_grouped_topk" => {
            let score = match relation.params["scoring_func"].as_str()? {
                "softmax" => Score::Softmax,
                "sigmoid" => Score::Sigmoid,
                _ => return None,
            };
            let is_corrected = relation.inputs.iter().any(|input| input.ends_with(".bias"));
            renormalized(Method {
                score,
                correction: is_corrected.then(&corrections),
                groups: Some(Groups { count: size("num_expert_group")?, kept: size("topk_group")? }),
                factor: factor?,
                ..Method::sigmoid(top_k)
            })
        }
        "routing_reference_default" => Method::default_softmax(top_k),
        "routing_reference_renormalize" => Method::renormalize(top_k),
        "routing_reference_renormalize_naive" => Method::renormalize_naive(top_k),
        "routing_reference_sigmoid_renorm" => Method::sigmoid_renorm(top_k),
        "routing_reference_topk_sigmoid" => Method::sigmoid(top_k),
        "routing_reference_minimax2" => Method { factor: factor?, ..Method::minimax2(top_k, corrections()) },
        "routing_reference_no_aux" => {
            let groups = Groups { count: size("n_group")?, kept: size("topk_group")? };
            Method::deepseek_v3(top_k, corrections(), groups, factor?)
        }
        _ => return None,
    })
}

fn ours(logits: &Tensor, method: Method) -> Result<Routing, String> {
    let (tokens, experts) = (logits.shape[0], logits.cols());
    route(&logits.reals(), tokens, experts, &method).map_err(|error| error.to_string())
}

fn lowest_index_first<'a>(ours: &Routing, tensor: impl Fn(&str) -> &'a Tensor) -> Outcome {
    let theirs = Choice::stored(tensor("ids"), tensor("weights").reals());
    same("experts", ours.ids(), &theirs.ids)?;
    same_weights("weights", ours.weights(), tensor("weights"))
}

fn same_weights(what: &str, ours: &[f32], theirs: &Tensor) -> Outcome {
    let relative = tolerance(theirs);
    all_same(what, ours, &theirs.reals(), |ours, theirs| {
        close((*ours).into(), (*theirs).into(), relative, 0.0)
    })
}

/// FlashInfer's experts, heaviest first; its dense scores, zero where an expert is not chosen; and its
/// padded permutation.
fn flashinfer<'a>(
    ours: &Routing,
    logits: &Tensor,
    tensor: impl Fn(&str) -> &'a Tensor,
    relation: &Relation,
) -> Outcome {
    let weights = tensor("topKLogits");
    let theirs = Choice::stored(tensor("topKIndices"), weights.reals());
    same_choice(logits, &Choice::of(ours), &theirs, tolerance(weights))?;
    if theirs.weights.chunks(theirs.top_k).any(|token| !token.is_sorted_by(|a, b| a >= b)) {
        return Err("an expert comes before one that weighs more".into());
    }
    let mut dense = vec![0.0; ours.tokens() * ours.experts()];
    for (entry, (id, weight)) in theirs.ids.iter().zip(&theirs.weights).enumerate() {
        let expert = id.ok_or("an entry has no expert")? as usize;
        dense[entry / theirs.top_k * ours.experts() + expert] = *weight;
    }
    same_weights("scores", &dense, tensor("scores"))?;
    let padding = relation.params["padding"].as_u64().ok_or("no padding")? as usize;
    permutation(&theirs.routing(ours.experts())?, padding, tensor)
}

/// FlashInfer's permutation: experts ascending, each from the next multiple of `padding`; -1 where a row
/// is padding. An entry is a token and one of its experts, `token * top_k + slot`.
pub(crate) fn permutation<'a>(
    routing: &Routing,
    padding: usize,
    tensor: impl Fn(&str) -> &'a Tensor,
) -> Outcome {
    let permutation = routing.by_expert();
    let placement = place(Grouping::Ranges { start_multiple: padding }, &permutation, Unit::Pair);
    let words = |values: &[usize]| -> Vec<u32> { values.iter().map(|value| *value as u32).collect() };
    same("rows of each expert", &words(permutation.counts()), &tensor("numTokensPerExpert").words())?;

    let mut starts = vec![placement.rows; routing.experts() + 1];
    for (expert, count) in permutation.counts().iter().enumerate().rev() {
        let first = permutation.offsets()[expert];
        // An expert without rows begins where the next one does.
        starts[expert] = if *count == 0 { starts[expert + 1] } else { placement.places[first].row };
    }
    same("starts", &words(&starts), &tensor("paddedTokensPerExpertPrefixSum").words())?;

    let absent = u32::MAX;
    let mut place_of = vec![absent; routing.ids().len()];
    let (mut token_at, mut entry_at) = (vec![absent; placement.rows], vec![absent; placement.rows]);
    for (pair, place) in permutation.pairs().iter().zip(&placement.places) {
        let entry = pair.token * routing.top_k() + pair.slot;
        place_of[entry] = place.row as u32;
        token_at[place.row] = pair.token as u32;
        entry_at[place.row] = entry as u32;
    }
    same("places", &place_of, &tensor("expandedTokenIdxToPermutedIdx").words())?;
    same("tokens", &token_at, &tensor("permutedIdxToTokenIdx").words())?;
    same("entries", &entry_at, &tensor("permutedIdxToExpandedIdx").words())
}

/// torch says nothing of the order of ties, so what has to agree are the logits that are chosen, best
/// first; and no expert may be chosen twice.
fn same_logits(logits: &Tensor, theirs: &Tensor) -> Outcome {
    let (values, experts, top_k) = (logits.reals(), logits.cols(), theirs.cols());
    let ids = theirs.words();
    let logit = |(entry, id): (usize, u32)| values[entry / top_k * experts + id as usize];
    let routing = ours(logits, Method::topk(top_k))?;
    let own: Vec<f32> = routing.ids().iter().copied().flatten().enumerate().map(logit).collect();
    same("chosen logits", &own, &ids.iter().copied().enumerate().map(logit).collect::<Vec<f32>>())?;
    let is_twice = |token: &[u32]| token.iter().enumerate().any(|(at, id)| token[..at].contains(id));
    if ids.chunks(top_k).any(is_twice) { Err("an expert is chosen twice".into()) } else { Ok(()) }
}
