//! Canonical weights: as loaded, logical sizes, one matrix a projection, nothing padded or reordered.

use crate::format::FormatSpec;

/// `experts` matrices of `rows` × `cols` elements, row-major, each row packed; block scales linear,
/// (rows / block rows, rounded up) × (cols / block cols, rounded up) for each expert.
#[derive(Debug, Clone)]
pub struct Stack {
    /// Output channels.
    pub rows: usize,
    /// Elements along K.
    pub cols: usize,
    /// The elements of all experts.
    pub payload: Vec<u8>,
    /// The block scales of all experts; empty for formats without.
    pub scales: Vec<u8>,
}

/// The weights of one MoE layer as loaded, gate and up apart.
#[derive(Debug, Clone)]
pub struct Canonical {
    /// The format of all three stacks.
    pub format: &'static FormatSpec,
    /// Experts.
    pub experts: usize,
    /// The hidden size: columns of `gate` and `up`, rows of `down`.
    pub hidden: usize,
    /// The intermediate size: rows of `gate` and `up`, columns of `down`.
    pub intermediate: usize,
    /// The gate projection (w1), `intermediate` × `hidden`.
    pub gate: Stack,
    /// The up projection (w3), `intermediate` × `hidden`.
    pub up: Stack,
    /// The down projection (w2), `hidden` × `intermediate`.
    pub down: Stack,
    /// Biases, if the model has them.
    pub biases: Option<Biases>,
}

/// Biases of one layer, one value an expert and output channel, expert outermost.
#[derive(Debug, Clone)]
pub struct Biases {
    /// Of the gate projection.
    pub gate: Vec<f32>,
    /// Of the up projection.
    pub up: Vec<f32>,
    /// Of the down projection; added before the router weight.
    pub down: Vec<f32>,
}
