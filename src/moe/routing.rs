//! Which experts each token goes to, and the same sorted by expert.

/// The experts and weights of each token, `tokens` × `top_k`, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    tokens: usize,
    top_k: usize,
    experts: usize,
    ids: Vec<u32>,
    weights: Vec<f32>,
}

/// Ids, weights or logits that route nowhere.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RoutingError {
    /// A buffer of another size.
    #[error("{what} of {rows} tokens take {expected} values, not {got}")]
    Size {
        /// `ids`, `weights` or `logits`.
        what: &'static str,
        /// Tokens.
        rows: usize,
        /// Values it takes.
        expected: usize,
        /// Values given.
        got: usize,
    },
    /// No expert, or more than there are.
    #[error("cannot pick {top_k} of {experts} experts")]
    TopK {
        /// Experts of a token.
        top_k: usize,
        /// Experts of the layer.
        experts: usize,
    },
    /// An expert that the layer does not have.
    #[error("token {token} goes to expert {expert}, but there are {experts} experts")]
    Expert {
        /// The token.
        token: usize,
        /// Its expert.
        expert: u32,
        /// Experts of the layer.
        experts: usize,
    },
    /// A weight that is not finite.
    #[error("token {token} has a router weight of {weight}")]
    Weight {
        /// The token.
        token: usize,
        /// Its weight.
        weight: f32,
    },
    /// A logit that has no softmax.
    #[error("token {token} has a router logit of {logit}")]
    Logit {
        /// The token.
        token: usize,
        /// Its logit.
        logit: f32,
    },
}

/// How logits become the weights of `top_k` experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Softmax {
    /// Softmax over all experts, then top-k; the weights sum to less than 1.
    BeforeTopK,
    /// The same, then scaled to a sum of 1.
    BeforeTopKRenormalized,
    /// Top-k, then softmax over the k (gpt-oss).
    AfterTopK,
}

impl Routing {
    /// Takes ids and weights as a router gave them, `tokens` × `top_k`, of a layer with `experts`
    /// experts.
    ///
    /// # Errors
    /// [`RoutingError`] if a buffer has another size, an id is not below `experts`, a weight is not
    /// finite, or `top_k` is 0.
    pub fn new(
        tokens: usize,
        top_k: usize,
        experts: usize,
        ids: Vec<u32>,
        weights: Vec<f32>,
    ) -> Result<Self, RoutingError> {
        if top_k == 0 {
            return Err(RoutingError::TopK { top_k, experts });
        }
        let expected = tokens.saturating_mul(top_k);
        for (what, got) in [("ids", ids.len()), ("weights", weights.len())] {
            if got != expected {
                return Err(RoutingError::Size { what, rows: tokens, expected, got });
            }
        }
        if let Some(at) = ids.iter().position(|id| *id as usize >= experts) {
            return Err(RoutingError::Expert { token: at / top_k, expert: ids[at], experts });
        }
        if let Some(at) = weights.iter().position(|weight| !weight.is_finite()) {
            return Err(RoutingError::Weight { token: at / top_k, weight: weights[at] });
        }
        Ok(Self { tokens, top_k, experts, ids, weights })
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Experts of a token.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Experts of the layer.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// The experts of each token, `tokens` × `top_k`.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The weights of each token, `tokens` × `top_k`.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The routed rows sorted by expert.
    pub fn by_expert(&self) -> Permutation {
        let mut counts = vec![0; self.experts];
        for id in &self.ids {
            counts[*id as usize] += 1;
        }
        let mut offsets = vec![0; self.experts + 1];
        for (expert, count) in counts.iter().enumerate() {
            offsets[expert + 1] = offsets[expert] + count;
        }
        let mut next = offsets.clone();
        let mut pairs = vec![Pair { token: 0, slot: 0 }; self.ids.len()];
        for (at, id) in self.ids.iter().enumerate() {
            let place = &mut next[*id as usize];
            pairs[*place] = Pair { token: at / self.top_k, slot: at % self.top_k };
            *place += 1;
        }
        Permutation { tokens: self.tokens, top_k: self.top_k, counts, offsets, pairs }
    }
}

/// One routed row: a token and which of its experts it goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The token.
    pub token: usize,
    /// The place in the token's list of experts.
    pub slot: usize,
}

/// Routed rows sorted by expert, then token, then slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutation {
    tokens: usize,
    top_k: usize,
    counts: Vec<usize>,
    offsets: Vec<usize>,
    pairs: Vec<Pair>,
}

impl Permutation {
    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Experts of a token.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Routed rows of each expert.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The first routed row of each expert, and their total at the end.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// All routed rows, experts ascending.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }
}

/// Routes by the softmax of `logits`, `tokens` × `experts`, in f32. Of equal logits the one with the
/// lowest index wins.
///
/// # Errors
/// [`RoutingError`] if `logits` has another size, holds NaN or positive infinity, or `top_k` is 0
/// or more than `experts`.
pub fn softmax_top_k(
    logits: &[f32],
    tokens: usize,
    experts: usize,
    top_k: usize,
    method: Softmax,
) -> Result<Routing, RoutingError> {
    let expected = tokens.saturating_mul(experts);
    if logits.len() != expected {
        return Err(RoutingError::Size { what: "logits", rows: tokens, expected, got: logits.len() });
    }
    if top_k == 0 || top_k > experts {
        return Err(RoutingError::TopK { top_k, experts });
    }
    if let Some(at) = logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        return Err(RoutingError::Logit { token: at / experts, logit: logits[at] });
    }
    let mut ids = Vec::with_capacity(tokens * top_k);
    let mut weights = Vec::with_capacity(tokens * top_k);
    for logits in logits.chunks_exact(experts) {
        let mut order: Vec<u32> = (0..experts as u32).collect();
        // The sort is stable, so equal logits keep the order of their indices.
        let logit = |id: &u32| logits[*id as usize];
        order.sort_by(|a, b| logit(b).partial_cmp(&logit(a)).unwrap_or(std::cmp::Ordering::Equal));
        let exponential = |id: &u32| (logit(id) - logit(&order[0])).exp();
        let top = &order[..top_k];
        let sum: f32 = match method {
            Softmax::BeforeTopK => (0..experts as u32).map(|id| exponential(&id)).sum(),
            Softmax::BeforeTopKRenormalized | Softmax::AfterTopK => top.iter().map(exponential).sum(),
        };
        weights.extend(top.iter().map(|id| exponential(id) / sum));
        ids.extend_from_slice(top);
    }
    Routing::new(tokens, top_k, experts, ids, weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_index_wins_ties() {
        let logits = [1.0, 2.0, 2.0, 0.0, -0.0, 0.0, 0.0, 0.0];
        let routing = softmax_top_k(&logits, 2, 4, 2, Softmax::AfterTopK).unwrap();
        assert_eq!(routing.ids(), [1, 2, 0, 1]);
        assert_eq!(routing.weights(), [0.5; 4]);
    }

    #[test]
    fn softmax_before_and_after() {
        // Exponentials 1, 2, 4, 1 of a sum of 8.
        let logits = [0.0, 2f32.ln(), 4f32.ln(), 0.0];
        let weights = |method| softmax_top_k(&logits, 1, 4, 2, method).unwrap().weights().to_vec();
        let close = |a: Vec<f32>, b: [f32; 2]| std::iter::zip(a, b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close(weights(Softmax::BeforeTopK), [0.5, 0.25]));
        assert!(close(weights(Softmax::BeforeTopKRenormalized), [2.0 / 3.0, 1.0 / 3.0]));
        assert!(close(weights(Softmax::AfterTopK), [2.0 / 3.0, 1.0 / 3.0]));
    }

    #[test]
    fn sorted_by_expert() {
        let routing = Routing::new(3, 2, 4, vec![3, 0, 0, 3, 3, 1], vec![1.0; 6]).unwrap();
        let permutation = routing.by_expert();
        assert_eq!(permutation.counts(), [2, 1, 0, 3]);
        assert_eq!(permutation.offsets(), [0, 2, 3, 3, 6]);
        let pairs: Vec<_> = permutation.pairs().iter().map(|pair| (pair.token, pair.slot)).collect();
        assert_eq!(pairs, [(0, 1), (1, 0), (2, 1), (0, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn bad_routing_is_refused() {
        let error = |ids, weights| Routing::new(1, 2, 4, ids, weights).unwrap_err();
        assert_eq!(error(vec![0, 4], vec![1.0; 2]), RoutingError::Expert { token: 0, expert: 4, experts: 4 });
        assert!(matches!(error(vec![0, 1], vec![1.0, f32::NAN]), RoutingError::Weight { token: 0, .. }));
        assert!(matches!(error(vec![0], vec![1.0; 2]), RoutingError::Size { what: "ids", .. }));
        let top_k = |top_k| softmax_top_k(&[0.0; 4], 1, 4, top_k, Softmax::AfterTopK).is_err();
        assert!(top_k(0) && top_k(5) && !top_k(4));
        assert!(softmax_top_k(&[0.0, f32::NAN], 1, 2, 1, Softmax::AfterTopK).is_err());
        assert!(Routing::new(1 << 63, 2, 4, Vec::new(), Vec::new()).is_err());
        assert!(softmax_top_k(&[], 1 << 63, 2, 1, Softmax::AfterTopK).is_err());
    }
}
