//! Canonical weights: as loaded, logical sizes, one matrix a projection, nothing padded or reordered.

use crate::format::FormatSpec;
use crate::layout::Extent;
use crate::scale::Multiplier;

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
    /// The zero points of all experts, one byte a block in the order of the scales; empty for formats
    /// without.
    pub zero_points: Vec<u8>,
    /// The second-level scale of each expert; empty for formats without.
    pub globals: Vec<Multiplier>,
}

impl Stack {
    /// Matrices without zero points and second-level scales.
    pub fn new(rows: usize, cols: usize, payload: Vec<u8>, scales: Vec<u8>) -> Self {
        Self { rows, cols, payload, scales, zero_points: Vec::new(), globals: Vec::new() }
    }

    /// One stack of the matrices of all experts, each a stack of one.
    pub(crate) fn of_experts<'a>(rows: usize, cols: usize, experts: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Self::new(rows, cols, Vec::new(), Vec::new());
        for expert in experts {
            all.payload.extend(&expert.payload);
            all.scales.extend(&expert.scales);
            all.zero_points.extend(&expert.zero_points);
            all.globals.extend(&expert.globals);
        }
        all
    }

    /// Rows and columns of each matrix.
    pub fn extent(&self) -> Extent {
        Extent { rows: self.rows, cols: self.cols }
    }

    /// The matrix of expert `index`, elements in `format`. What the stack is too short for is empty,
    /// which whoever reads the matrix refuses.
    pub fn matrix(&self, format: &FormatSpec, index: usize) -> Matrix<'_> {
        let extent = self.extent();
        let (payload, scales) = format.matrix_bytes(extent);
        let zero_points = format.zero_points(extent);
        Matrix {
            rows: self.rows,
            cols: self.cols,
            payload: part(&self.payload, payload, index),
            scales: part(&self.scales, scales, index),
            zero_points: part(&self.zero_points, zero_points, index),
            global: self.globals.get(index).copied(),
        }
    }
}

/// The stored numbers of one matrix: elements row-major, each row packed; block scales and zero points
/// linear.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// Output channels.
    pub rows: usize,
    /// Elements along K.
    pub cols: usize,
    /// The elements.
    pub payload: &'a [u8],
    /// The block scales; empty for formats without.
    pub scales: &'a [u8],
    /// The zero points, one byte a block in the order of the scales; empty for formats without.
    pub zero_points: &'a [u8],
    /// The second-level scale, for formats that have one.
    pub global: Option<Multiplier>,
}

fn part(bytes: &[u8], size: usize, index: usize) -> &[u8] {
    let start = index.saturating_mul(size);
    bytes.get(start..start.saturating_add(size)).unwrap_or_default()
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
    /// The gate projection (w1), `intermediate` × `hidden`; `None` for plain (not gated) layers.
    pub gate: Option<Stack>,
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
    /// Of the gate projection; empty for plain layers.
    pub gate: Vec<f32>,
    /// Of the up projection.
    pub up: Vec<f32>,
    /// Of the down projection; added before the router weight.
    pub down: Vec<f32>,
}
