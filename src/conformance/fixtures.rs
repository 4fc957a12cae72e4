//! Inputs on which a misplaced byte shows: neighbouring blocks have different scales, sizes where
//! padding is not zero, halves that differ, more than one expert.

use half::bf16;

use crate::backend::{Activation, Contract, Grouping, Parameter, QuantizeAt};
use crate::config::ActivationFunction;
use crate::cpu::scales::ROW_MAJOR;
use crate::digits::{Axis, Digit};
use crate::format::{BlockScale, ElementType, FormatSpec, Rounding, ScaleType};
use crate::layout::{Extent, Fit, Layout};
use crate::moe::routing::Routing;
use crate::reference;
use crate::tensor::Tokens;
use crate::weights::canonical::Canonical;
use crate::weights::synthetic::{self, Shape};

use super::Case;

/// Rows and columns of scales: K of 96, 160 and 2880 at blocks of 32.
pub(super) const SCALE_SHAPES: [Extent; 5] = [
    Extent { rows: 1, cols: 3 },
    Extent { rows: 5, cols: 5 },
    Extent { rows: 127, cols: 90 },
    Extent { rows: 129, cols: 5 },
    Extent { rows: 130, cols: 23 },
];

/// Tokens and hidden sizes.
pub(super) const TOKEN_SHAPES: [(usize, usize); 4] = [(1, 96), (5, 160), (127, 256), (129, 2880)];

/// The format of the weights that fixtures are made in; rows with another requantise them.
static MXFP4: FormatSpec = FormatSpec {
    name: "mxfp4",
    element: ElementType::E2m1,
    block: Some(BlockScale { scale: ScaleType::E8m0, rows: 1, cols: 32 }),
    global: None,
};

static BF16: FormatSpec = FormatSpec { name: "bf16", element: ElementType::Bf16, block: None, global: None };

/// The format of the tokens that the row is handed: its own, or 16 bits where its experts quantise.
pub(super) fn handed(contract: &Contract) -> &'static FormatSpec {
    match contract.gemm1_input.quantize {
        Some(QuantizeAt::Expert) => &BF16,
        Some(QuantizeAt::Prepare) | None => contract.gemm1_input.formats[0],
    }
}

/// What the layouts of the row's tokens ask to divide rows and columns of scales; 1 where they pad.
fn divisor(contract: &Contract) -> Extent {
    let inputs = std::iter::once(&contract.gemm1_input).chain(&contract.gemm2_input);
    let layouts =
        inputs.filter_map(|input| input.layout.is()).flat_map(|layout| [layout.prepared, layout.kernel]);
    layouts.fold(Extent { rows: 1, cols: 1 }, |all, layout| match layout.fit {
        Fit::Pad(_) => all,
        Fit::Divide(own) => Extent { rows: lcm(all.rows, own.rows), cols: lcm(all.cols, own.cols) },
    })
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut gcd, mut rest) = (a, b);
    while rest != 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    a / gcd * b
}

/// `rows` tokens of `cols` values, both rounded up to what the layouts of the row take.
pub(super) fn taken(contract: &Contract, rows: usize, cols: usize) -> (usize, usize) {
    let step = divisor(contract);
    let block = contract.gemm1_input.formats[0].block.map_or(1, |block| block.cols);
    let cols_step = if step.cols == 1 { 1 } else { lcm(step.cols * block, contract.gemm1_input.multiple) };
    (rows.next_multiple_of(step.rows), cols.next_multiple_of(cols_step))
}

/// As [`taken`], for a layer: each expert's rows have to end on a multiple too.
fn taken_by_layer(contract: &Contract, tokens: usize, shape: Shape) -> (usize, Shape) {
    let step = divisor(contract);
    let start = match contract.gemm1_input.grouping {
        Some(Grouping::Ranges { start_multiple } | Grouping::SpreadRanges { start_multiple }) => {
            start_multiple
        }
        _ => 1,
    };
    let rows_step = if step.rows == 1 { 1 } else { shape.experts * lcm(step.rows, start) };
    let gemm2 = contract.gemm2_input.as_ref().and_then(|input| input.formats[0].block);
    let block = gemm2.map_or(1, |block| block.cols);
    let padded = contract.weight.pad.map_or(1, |pad| pad.gated);
    let cols_step = if step.cols == 1 { 1 } else { lcm(step.cols * block, padded) };
    let (_, hidden) = taken(contract, tokens, shape.hidden);
    let intermediate = shape.intermediate.next_multiple_of(cols_step);
    (tokens.next_multiple_of(rows_step), Shape { hidden, intermediate, ..shape })
}

/// Tokens whose blocks all have amax of their own: a power of two apart within a row and a column,
/// and a mantissa of their own beyond that, so that scales of any type tell blocks apart.
pub(super) fn distinct_tokens(rows: usize, cols: usize, block: usize) -> Vec<bf16> {
    let blocks = cols.div_ceil(block);
    let value = |row: usize, col: usize| {
        let (index, within) = (row * blocks + col / block, col % block);
        let exponent = (index % 61) as i32 - 30;
        let mantissa = 1.0 + (index / 61 % 128) as f32 / 128.0;
        let sign = if within.is_multiple_of(2) { 1.0 } else { -1.0 };
        let fraction = if within == 0 { 1.0 } else { (within % 7) as f32 / 8.0 };
        bf16::from_f32(sign * fraction * mantissa * (exponent as f32).exp2())
    };
    (0..rows * cols).map(|index| value(index / cols, index % cols)).collect()
}

/// The bytes of the scale that the reference chooses for one block.
pub(super) fn reference_scale(format: &FormatSpec, rounding: Option<Rounding>, values: &[bf16]) -> Vec<u8> {
    let block = format.block.map_or(1, |block| block.cols);
    let mut padded = vec![0.0; block];
    for (padded, value) in padded.iter_mut().zip(values) {
        *padded = f64::from(value.to_f32());
    }
    let quantized = reference::quantize_rows(&padded, block, format, rounding);
    quantized.unwrap_or_else(|error| panic!("{error}")).1
}

/// A layer to run on a row.
pub(super) struct Fixture {
    pub(super) name: String,
    pub(super) weights: Canonical,
    tokens: Vec<bf16>,
    routing: Routing,
    activation: ActivationFunction,
}

impl Fixture {
    /// The layers that a row is tried on.
    pub(super) fn all(contract: &Contract, activation: Activation) -> Vec<Self> {
        let shape = |experts, hidden, intermediate, top_k| Shape { experts, hidden, intermediate, top_k };
        let shapes = [(5, shape(3, 160, 96, 2)), (129, shape(4, 96, 352, 2)), (1, shape(2, 288, 704, 1))];
        // Rounded up, one layer is as good as another.
        let count = if divisor(contract).rows == 1 { shapes.len() } else { 1 };
        let taken = shapes.into_iter().take(count);
        taken.map(|(tokens, shape)| Self::new(contract, activation, tokens, shape)).collect()
    }

    /// A layer of these sizes, rounded up where a layout of the row takes multiples only.
    pub(super) fn new(contract: &Contract, activation: Activation, tokens: usize, shape: Shape) -> Self {
        let (tokens, shape) = taken_by_layer(contract, tokens, shape);
        let weights = synthetic::weights(shape, 7, &MXFP4).unwrap_or_else(|error| panic!("{error}"));
        let biases = contract.weight.bias.and(weights.biases.clone());
        // Every third token skips an expert, so that experts differ in size; not where all sizes have to
        // be multiples.
        let skips = |token: usize| usize::from(divisor(contract).rows == 1 && token.is_multiple_of(3));
        let choice = |token: usize, k: usize| ((token + k + skips(token)) % shape.experts) as u32;
        let ids = (0..tokens).flat_map(|token| (0..shape.top_k).map(move |k| choice(token, k))).collect();
        let weights_of = (0..tokens * shape.top_k).map(|slot| 0.25 + (slot % 5) as f32 * 0.125).collect();
        let routing = Routing::new(tokens, shape.top_k, shape.experts, ids, weights_of);
        Self {
            name: format!("{tokens} tokens, {shape:?}"),
            weights: Canonical { biases, ..weights },
            tokens: synthetic::tokens(shape, tokens, 11),
            routing: routing.unwrap_or_else(|error| panic!("{error}")),
            activation: function(activation, contract),
        }
    }

    pub(super) fn case(&self) -> Case<'_> {
        self.with(&self.weights)
    }

    /// The same layer with other weights.
    pub(super) fn with<'a>(&'a self, weights: &'a Canonical) -> Case<'a> {
        let rows = self.routing.tokens();
        let tokens = Tokens::new(&self.tokens, rows, self.tokens.len() / rows);
        Case {
            weights,
            tokens: tokens.unwrap_or_else(|error| panic!("{error}")),
            routing: &self.routing,
            activation: self.activation,
        }
    }
}

/// `activation` with gpt-oss's parameters where the row honours them, neutral ones where it does not.
pub(super) fn function(activation: Activation, contract: &Contract) -> ActivationFunction {
    let honours = |parameter| {
        let honoured = contract.activations.iter().find(|honoured| honoured.function == activation);
        honoured.is_some_and(|honoured| honoured.parameters.contains(&parameter))
    };
    match activation {
        Activation::Silu => ActivationFunction::Silu,
        Activation::Swigluoai => ActivationFunction::Swigluoai {
            alpha: if honours(Parameter::Alpha) { 1.702 } else { 1.0 },
            beta: if honours(Parameter::Beta) { 1.0 } else { 0.0 },
            limit: if honours(Parameter::Limit) { 7.0 } else { f32::INFINITY },
        },
    }
}

/// The layout that the scales of `layout` are misread in: row by row, or, where that is what they
/// are in, the 128x4 swizzle.
pub(super) fn misreading(layout: &Layout) -> &'static Layout {
    if layout.digits == ROW_MAJOR.digits { &SWIZZLE } else { &ROW_MAJOR }
}

static SWIZZLE: Layout = Layout {
    name: "128x4 swizzle",
    digits: &[
        Digit::new(Axis::Row, 128, None),
        Digit::new(Axis::Col, 4, None),
        Digit::new(Axis::Row, 1, Some(32)),
        Digit::new(Axis::Row, 32, Some(4)),
        Digit::new(Axis::Col, 1, Some(4)),
    ],
    fit: Fit::Pad(Extent { rows: 128, cols: 4 }),
    scales: ROW_MAJOR.scales,
    aliases: &[],
    offset: |row, col, physical| SWIZZLE.offset_by_digits(row, col, physical),
    locate: |offset, physical| SWIZZLE.locate_by_digits(offset, physical),
};
