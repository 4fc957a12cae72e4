//! Routing: logits to experts and weights, and the routed rows sorted by expert, each expert's padded.

use safetensors::Dtype;
use scalewright::backend::Grouping;
use scalewright::moe::grouping::{Unit, place};
use scalewright::moe::routing::{Groups, Method, Routing, Score, WeightOn, Weights, route};

use crate::data::{Outcome, Relation, Tensor, Tensors, all_same, close, same};

pub(crate) fn check(tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let logits = &tensors[relation.inputs.first()?.as_str()];
    let output = *relation.outputs().first()?;
    if output == "ties.torch_topk_ids" {
        return Some(same_logits(logits, &tensors[output]));
    }
    let case = output.split('.').next()?;
    let corrections = || tensors[format!("{case}.bias").as_str()].reals();
    let prefix = output.trim_end_matches(".*").trim_end_matches(".weights");
    let method = method(relation, corrections)?;
    Some(ours(logits, method).and_then(|ours| {
        if relation.source.starts_with("flashinfer-git:tests/moe/trtllm_gen_fused_moe_utils") {
            flashinfer(&ours, tensors, prefix, relation)
        } else {
            ids_and_weights(&ours, tensors, prefix)
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

/// Experts and weights of each token, heaviest first, as the sources have them.
fn heaviest_first(routing: &Routing) -> Vec<Vec<(u32, f32)>> {
    let ids: Vec<u32> = routing.ids().iter().copied().flatten().collect();
    let pairs: Vec<(u32, f32)> = ids.into_iter().zip(routing.weights().iter().copied()).collect();
    let sorted = |token: &[(u32, f32)]| {
        let mut token = token.to_vec();
        token.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        token
    };
    pairs.chunks(routing.top_k()).map(sorted).collect()
}

/// 1e-6, and one unit in the last place where the source rounds to bf16.
fn tolerance(weights: &Tensor) -> f64 {
    if weights.dtype == Dtype::BF16 { 1.0 / 128.0 } else { 1e-6 }
}

fn same_weights(what: &str, ours: &[f32], theirs: &Tensor) -> Outcome {
    let relative = tolerance(theirs);
    all_same(what, ours, &theirs.reals(), |ours, theirs| {
        close((*ours).into(), (*theirs).into(), relative, 0.0)
    })
}

fn ids_and_weights(ours: &Routing, tensors: &Tensors, prefix: &str) -> Outcome {
    let (ids, weights): (Vec<u32>, Vec<f32>) = heaviest_first(ours).into_iter().flatten().unzip();
    let case = prefix.trim_end_matches(".ids");
    same("experts", &ids, &tensors[format!("{case}.ids").as_str()].words())?;
    same_weights("weights", &weights, &tensors[format!("{case}.weights").as_str()])
}

/// FlashInfer's dense scores, zero where an expert is not chosen, and its padded permutation.
fn flashinfer(ours: &Routing, tensors: &Tensors, prefix: &str, relation: &Relation) -> Outcome {
    let tensor = |name: &str| &tensors[format!("{prefix}.{name}").as_str()];
    let chosen = heaviest_first(ours);
    let (ids, weights): (Vec<u32>, Vec<f32>) = chosen.iter().flatten().copied().unzip();
    same("experts", &ids, &tensor("topKIndices").words())?;
    same_weights("weights", &weights, tensor("topKLogits"))?;
    let mut dense = vec![0.0; ours.tokens() * ours.experts()];
    for (token, chosen) in chosen.iter().enumerate() {
        chosen.iter().for_each(|(id, weight)| dense[token * ours.experts() + *id as usize] = *weight);
    }
    same_weights("scores", &dense, tensor("scores"))?;
    let padding = relation.params["padding"].as_u64().ok_or("no padding")? as usize;
    let sorted = Routing::new(ours.tokens(), ours.top_k(), ours.experts(), ids, weights);
    permutation(&sorted.map_err(|error| error.to_string())?, padding, tensor)
}

/// FlashInfer's permutation: experts ascending, each from the next multiple of `padding`; -1 where a row
/// is padding. An entry is a token and one of its experts, `token * top_k + slot`.
pub(crate) fn permutation<'a>(
    routing: &Routing,
    padding: usize,
    tensor: impl Fn(&str) -> &'a Tensor,
) -> Outcome {
    assert_eq!(routing.weight_on(), WeightOn::Output);
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
