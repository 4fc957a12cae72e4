//! How router logits become experts and weights, as a value.

/// How router logits become the experts of a token and their weights.
///
/// Experts are scored by [`score`](Self::score); the `top_k` largest of score plus correction are
/// chosen, in that order, of equal ones the one with the lowest index; weights are made from the scores
/// of the chosen, without the correction. The constructors are vLLM's `RoutingMethodType`s.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// Experts of a token.
    pub top_k: usize,
    /// What an expert is scored by.
    pub score: Score,
    /// One value an expert, added to its score for the choice only (`e_score_correction_bias`).
    pub correction: Option<Vec<f32>>,
    /// The choice is among the experts of the best groups only.
    pub groups: Option<Groups>,
    /// How the scores of the chosen become weights.
    pub weights: Weights,
    /// What all weights are multiplied by at the end (`routed_scaling_factor`).
    pub factor: f32,
    /// What the weights multiply.
    pub weight_on: WeightOn,
}

/// What an expert is scored by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Score {
    /// Its logit.
    Logit,
    /// The softmax over all experts.
    Softmax,
    /// The sigmoid of its logit.
    Sigmoid,
}

/// How the scores of the chosen become weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Weights {
    /// They are the weights.
    AsScored,
    /// Divided by their sum.
    Renormalized {
        /// Added to the sum, so that scores that are all zero stay zero: 1e-20 in transformers and
        /// FlashInfer, nothing in vLLM.
        epsilon: f32,
    },
    /// Their softmax.
    Softmax,
}

/// Equal groups of neighbouring experts.
///
/// With a correction, a group is worth the sum of its two best experts; without one, its best expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Groups (`n_group`).
    pub count: usize,
    /// Groups that a token's experts come from (`topk_group`).
    pub kept: usize,
}

/// What a router weight multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightOn {
    /// What the expert makes of the token.
    Output,
    /// The token, before it is quantised (Llama 4; vLLM's `apply_router_weight_on_input`).
    Input,
}

/// What transformers and FlashInfer add to a sum of scores.
const EPSILON: f32 = 1e-20;

impl Method {
    fn new(top_k: usize, score: Score, weights: Weights) -> Self {
        let (correction, groups) = (None, None);
        Self { top_k, score, correction, groups, weights, factor: 1.0, weight_on: WeightOn::Output }
    }

    /// `default`: softmax, then top-k; weights sum to less than 1 (Qwen2-MoE).
    pub fn default_softmax(top_k: usize) -> Self {
        Self::new(top_k, Score::Softmax, Weights::AsScored)
    }

    /// `renormalize`: top-k, then the softmax of the chosen (gpt-oss).
    pub fn renormalize(top_k: usize) -> Self {
        Self::new(top_k, Score::Logit, Weights::Softmax)
    }

    /// `renormalize_naive`: softmax, top-k, then a sum of 1 (Mixtral, Qwen3-MoE). The same as
    /// [`renormalize`](Self::renormalize) but for rounding.
    pub fn renormalize_naive(top_k: usize) -> Self {
        Self::new(top_k, Score::Softmax, Weights::Renormalized { epsilon: 0.0 })
    }

    /// `topk`: top-k; the logits are the weights.
    pub fn topk(top_k: usize) -> Self {
        Self::new(top_k, Score::Logit, Weights::AsScored)
    }

    /// `sigmoid`: sigmoid, then top-k.
    pub fn sigmoid(top_k: usize) -> Self {
        Self::new(top_k, Score::Sigmoid, Weights::AsScored)
    }

    /// `sigmoid_renorm`: sigmoid, top-k, then a sum of 1.
    pub fn sigmoid_renorm(top_k: usize) -> Self {
        Self::new(top_k, Score::Sigmoid, Weights::Renormalized { epsilon: EPSILON })
    }

    /// `minimax2`: the same, chosen with a correction, one value an expert (MiniMax-M2).
    pub fn minimax2(top_k: usize, correction: Vec<f32>) -> Self {
        Self { correction: Some(correction), ..Self::sigmoid_renorm(top_k) }
    }

    /// `deepseek_v3`: the same among the best groups, and all weights times `factor`.
    pub fn deepseek_v3(top_k: usize, correction: Vec<f32>, groups: Groups, factor: f32) -> Self {
        Self { groups: Some(groups), factor, ..Self::minimax2(top_k, correction) }
    }

    /// `llama4`: the sigmoid of the best expert multiplies its input.
    pub fn llama4() -> Self {
        Self { weight_on: WeightOn::Input, ..Self::sigmoid(1) }
    }
}
