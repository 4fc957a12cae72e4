//! Why something routes nowhere.

/// Ids, weights, logits or a method that route nowhere.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RoutingError {
    /// A buffer of another size.
    #[error("{what} of {rows} tokens take {expected} values, not {got}")]
    Size {
        /// `ids`, `weights`, `logits` or `tokens`.
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
        /// Experts to choose from: of the layer, or of the groups that are kept.
        experts: usize,
    },
    /// Groups that experts do not fall into.
    #[error("cannot keep {kept} of {count} equal groups of {experts} experts")]
    Groups {
        /// Groups.
        count: usize,
        /// Groups kept.
        kept: usize,
        /// Experts of the layer.
        experts: usize,
    },
    /// Correction biases of another number than experts.
    #[error("{experts} experts take as many correction biases, not {got}")]
    Corrections {
        /// Experts of the layer.
        experts: usize,
        /// Biases given.
        got: usize,
    },
    /// A correction bias that is not finite.
    #[error("expert {expert} has a correction bias of {bias}")]
    Correction {
        /// The expert.
        expert: usize,
        /// Its bias.
        bias: f32,
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
    /// A layer is run before the router's weights multiplied its tokens.
    #[error(
        "the router's weights multiply the tokens, and have not: call `Routing::weigh` before quantising"
    )]
    Unweighed,
    /// A weight that is not finite.
    #[error("token {token} has a router weight of {weight}")]
    Weight {
        /// The token.
        token: usize,
        /// Its weight.
        weight: f32,
    },
    /// A logit that makes no score.
    #[error("token {token} has a router logit of {logit}")]
    Logit {
        /// The token.
        token: usize,
        /// Its logit.
        logit: f32,
    },
    /// Weights on the input of tokens that go to several experts.
    #[error("router weights can multiply the input of one expert a token, not of {top_k}")]
    InputWeights {
        /// Experts of a token.
        top_k: usize,
    },
}
