//! From logits to a routing.

use super::Routing;
use super::error::RoutingError;
use super::method::{Groups, Method, Score, WeightOn, Weights};

/// Routes by `logits`, `tokens` × `experts`, in f32.
///
/// # Errors
/// [`RoutingError`] if `logits` has another size or holds NaN or positive infinity; if `method` picks
/// no expert, or more than it can choose from; if its groups or corrections do not fit `experts`; or if
/// a weight comes out that is not finite.
pub fn route(
    logits: &[f32],
    tokens: usize,
    experts: usize,
    method: &Method,
) -> Result<Routing, RoutingError> {
    let expected = tokens.saturating_mul(experts);
    if logits.len() != expected {
        return Err(RoutingError::Size { what: "logits", rows: tokens, expected, got: logits.len() });
    }
    check(experts, method)?;
    if let Some(at) = logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        return Err(RoutingError::Logit { token: at / experts, logit: logits[at] });
    }
    let mut ids = Vec::with_capacity(tokens * method.top_k);
    let mut weights = Vec::with_capacity(tokens * method.top_k);
    for logits in logits.chunks_exact(experts) {
        let scores = scores(logits, method.score);
        let chosen = choose(&scores, method);
        let scores = chosen.iter().map(|expert| scores[*expert]).collect();
        weights.extend(weigh(scores, method.weights).into_iter().map(|weight| weight * method.factor));
        ids.extend(chosen.into_iter().map(|expert| expert as u32));
    }
    let routing = Routing::new(tokens, method.top_k, experts, ids, weights)?;
    match method.weight_on {
        WeightOn::Output => Ok(routing),
        WeightOn::Input => routing.on_input(),
    }
}

fn check(experts: usize, method: &Method) -> Result<(), RoutingError> {
    let top_k = method.top_k;
    let candidates = match method.groups {
        None => experts,
        Some(Groups { count, kept }) => {
            if count == 0 || !experts.is_multiple_of(count) || kept > count {
                return Err(RoutingError::Groups { count, kept, experts });
            }
            experts / count * kept
        }
    };
    if top_k == 0 || top_k > candidates {
        return Err(RoutingError::TopK { top_k, experts: candidates });
    }
    if let Some(correction) = &method.correction {
        if correction.len() != experts {
            return Err(RoutingError::Corrections { experts, got: correction.len() });
        }
        if let Some(expert) = correction.iter().position(|bias| !bias.is_finite()) {
            return Err(RoutingError::Correction { expert, bias: correction[expert] });
        }
    }
    Ok(())
}

fn scores(logits: &[f32], score: Score) -> Vec<f32> {
    match score {
        Score::Logit => logits.to_vec(),
        Score::Softmax => softmax(logits),
        Score::Sigmoid => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
    }
}

fn softmax(values: &[f32]) -> Vec<f32> {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials: Vec<f32> = values.iter().map(|value| (value - largest).exp()).collect();
    let sum = sum(&exponentials);
    exponentials.into_iter().map(|exponential| exponential / sum).collect()
}

/// Rounded once, however many there are.
fn sum(values: &[f32]) -> f32 {
    values.iter().copied().map(f64::from).sum::<f64>() as f32
}

/// The experts of a token, best first.
fn choose(scores: &[f32], method: &Method) -> Vec<usize> {
    // Scores and corrections apart would lose a small score in a large correction when it is taken off
    // again; so weights never see the sum.
    let choice: Vec<f32> = match &method.correction {
        None => scores.to_vec(),
        Some(correction) => std::iter::zip(scores, correction).map(|(score, bias)| score + bias).collect(),
    };
    let candidates: Vec<usize> = match method.groups {
        None => (0..choice.len()).collect(),
        Some(groups) => {
            let size = choice.len() / groups.count;
            // The experts that a group is judged by.
            let judged = if method.correction.is_some() { 2 } else { 1 };
            let worth = |group: &[f32]| {
                let best = largest((0..group.len()).collect(), judged, |at| group[at]);
                best.into_iter().map(|at| group[at]).sum()
            };
            let worths: Vec<f32> = choice.chunks_exact(size).map(worth).collect();
            let kept = largest((0..groups.count).collect(), groups.kept, |group| worths[group]);
            let mut experts: Vec<usize> =
                kept.into_iter().flat_map(|group| group * size..(group + 1) * size).collect();
            experts.sort_unstable();
            experts
        }
    };
    largest(candidates, method.top_k, |expert| choice[expert])
}

/// The `count` of `candidates` with the largest values, largest first; of equal ones the earlier.
fn largest(mut candidates: Vec<usize>, count: usize, value: impl Fn(usize) -> f32) -> Vec<usize> {
    // The sort is stable. `total_cmp` would order zeros by sign.
    candidates.sort_by(|a, b| value(*b).partial_cmp(&value(*a)).unwrap_or(std::cmp::Ordering::Equal));
    candidates.truncate(count);
    candidates
}

fn weigh(scores: Vec<f32>, weights: Weights) -> Vec<f32> {
    match weights {
        Weights::AsScored => scores,
        Weights::Softmax => softmax(&scores),
        Weights::Renormalized { epsilon } => {
            let sum = sum(&scores) + epsilon;
            scores.into_iter().map(|score| score / sum).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::routing::WeightOn;

    fn ids(routing: &Routing) -> Vec<u32> {
        routing.ids().iter().map(|id| id.unwrap()).collect()
    }

    fn close(ours: &[f32], expected: &[f32]) -> bool {
        ours.len() == expected.len()
            && std::iter::zip(ours, expected).all(|(ours, expected)| (ours - expected).abs() < 1e-6)
    }

    fn groups(count: usize, kept: usize) -> Option<Groups> {
        Some(Groups { count, kept })
    }

    #[test]
    fn lowest_index_wins_ties() {
        let logits = [1.0, 2.0, 2.0, 0.0, -0.0, 0.0, 0.0, 0.0];
        let routing = route(&logits, 2, 4, &Method::renormalize(2)).unwrap();
        assert_eq!(ids(&routing), [1, 2, 0, 1]);
        assert_eq!(routing.weights(), [0.5; 4]);
        let grouped = Method { groups: groups(2, 1), ..Method::sigmoid(2) };
        assert_eq!(ids(&route(&logits, 2, 4, &grouped).unwrap()), [1, 0, 0, 1]);
    }

    #[test]
    fn softmax_before_and_after() {
        // Exponentials 1, 2, 4, 1 of a sum of 8.
        let logits = [0.0, 2f32.ln(), 4f32.ln(), 0.0];
        let weights = |method| route(&logits, 1, 4, &method).unwrap().weights().to_vec();
        assert!(close(&weights(Method::default_softmax(2)), &[0.5, 0.25]));
        assert!(close(&weights(Method::renormalize_naive(2)), &[2.0 / 3.0, 1.0 / 3.0]));
        assert!(close(&weights(Method::renormalize(2)), &[2.0 / 3.0, 1.0 / 3.0]));
        assert!(close(&weights(Method::topk(2)), &[4f32.ln(), 2f32.ln()]));
    }

    #[test]
    fn sigmoids() {
        // Sigmoids 3/4, 1/4, 1/2.
        let logits = [3f32.ln(), -3f32.ln(), 0.0];
        let run = |method| route(&logits, 1, 3, &method).unwrap();
        assert!(close(run(Method::sigmoid(2)).weights(), &[0.75, 0.5]));
        assert!(close(run(Method::sigmoid_renorm(2)).weights(), &[0.6, 0.4]));
        let llama = run(Method::llama4());
        assert_eq!((ids(&llama), llama.weight_on()), (vec![0], WeightOn::Input));
    }

    #[test]
    fn corrections_choose_and_do_not_weigh() {
        let logits = [3f32.ln(), -3f32.ln(), 0.0];
        // So large that score plus correction keeps nothing of the score.
        let minimax = Method::minimax2(2, vec![0.0, 3e8, 0.0]);
        let routing = route(&logits, 1, 3, &minimax).unwrap();
        assert_eq!(ids(&routing), [1, 0]);
        assert!(close(routing.weights(), &[0.25, 0.75]));
    }

    #[test]
    fn a_group_is_judged_by_two_experts_with_a_correction_and_by_one_without() {
        // Sigmoids 0.9, 0.1 | 0.8, 0.8: the best is in the first group, the best two in the second.
        let logit = |score: f32| (score / (1.0 - score)).ln();
        let logits = [0.9, 0.1, 0.8, 0.8].map(logit);
        let without = Method { groups: groups(2, 1), ..Method::sigmoid(1) };
        assert_eq!(ids(&route(&logits, 1, 4, &without).unwrap()), [0]);
        let deepseek = Method::deepseek_v3(2, vec![0.0; 4], Groups { count: 2, kept: 1 }, 2.5);
        let routing = route(&logits, 1, 4, &deepseek).unwrap();
        assert_eq!(ids(&routing), [2, 3]);
        assert!(close(routing.weights(), &[1.25, 1.25]));
    }

    #[test]
    fn scores_of_zero_weigh_zero_or_are_refused() {
        let logits = [-200.0, -200.0];
        assert_eq!(route(&logits, 1, 2, &Method::sigmoid_renorm(2)).unwrap().weights(), [0.0, 0.0]);
        let bare = Method { weights: Weights::Renormalized { epsilon: 0.0 }, ..Method::sigmoid(2) };
        assert!(matches!(route(&logits, 1, 2, &bare), Err(RoutingError::Weight { token: 0, .. })));
    }

    #[test]
    fn what_routes_nowhere_is_refused() {
        let run = |method| route(&[0.0; 4], 1, 4, &method);
        for top_k in [0, 5] {
            assert_eq!(run(Method::renormalize(top_k)), Err(RoutingError::TopK { top_k, experts: 4 }));
        }
        assert!(run(Method::renormalize(4)).is_ok());
        for (count, kept) in [(0, 0), (3, 1), (2, 3)] {
            let method = Method { groups: groups(count, kept), ..Method::sigmoid(1) };
            assert_eq!(run(method), Err(RoutingError::Groups { count, kept, experts: 4 }));
        }
        let narrow = Method { groups: groups(4, 1), ..Method::sigmoid(2) };
        assert_eq!(run(narrow), Err(RoutingError::TopK { top_k: 2, experts: 1 }));
        assert!(matches!(run(Method::minimax2(1, vec![0.0])), Err(RoutingError::Corrections { .. })));
        let nan = Method::minimax2(1, vec![0.0, 0.0, f32::NAN, 0.0]);
        assert!(matches!(run(nan), Err(RoutingError::Correction { expert: 2, .. })));
        for logit in [f32::NAN, f32::INFINITY] {
            let refused = route(&[0.0, 0.0, 0.0, logit], 2, 2, &Method::sigmoid(1));
            assert!(matches!(refused, Err(RoutingError::Logit { token: 1, .. })));
        }
        // A masked expert is no error.
        assert_eq!(ids(&route(&[f32::NEG_INFINITY, 0.0], 1, 2, &Method::renormalize(1)).unwrap()), [1]);
        assert!(route(&[], 1 << 63, 2, &Method::sigmoid(1)).is_err());
    }
}
