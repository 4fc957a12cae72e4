//! Inputs on which a misplaced byte shows: neighbouring blocks have different scales, sizes where
//! padding is not zero, halves that differ, more than one expert.

use half::bf16;

use crate::backend::{Activation, Contract, Grouping, Parameter, QuantizeAt};
use crate::config::{ActivationFunction, LayerConfig};
use crate::cpu::scales::ROW_MAJOR;
use crate::digits::{Axis, Digit};
use crate::format::{ElementType, FormatSpec, Reach, ScaleType};
use crate::layout::{Extent, Fit, Layout, Order};
use crate::moe::routing::Routing;
use crate::tensor::Tokens;
use crate::weights::canonical::Canonical;
use crate::weights::synthetic::{self, Shape};

use super::Case;
use super::measure::{adapt, calibrate};

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

/// The format that weights are made in; for rows that take another they are requantised.
static MXFP4: FormatSpec = FormatSpec::blocks("mxfp4", ElementType::E2m1, ScaleType::E8m0, 1, 32);

static BF16: FormatSpec = FormatSpec::unscaled("bf16", ElementType::Bf16);

/// The format of the tokens that the row is handed: its own, or 16 bits where its experts quantise.
pub(super) fn handed(contract: &Contract) -> &'static FormatSpec {
    match contract.gemm1_input.quantize {
        Some(QuantizeAt::Expert) => &BF16,
        Some(QuantizeAt::Prepare) | None => contract.gemm1_input.handed()[0],
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
    let block = contract.gemm1_input.formats[0].block_size(Extent { rows, cols }).cols;
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
    let extent = Extent { rows: tokens, cols: shape.intermediate };
    let block = contract.gemm2_input.as_ref().map_or(1, |input| input.formats[0].block_size(extent).cols);
    let padded = contract.weight.pad.map_or(1, |pad| pad.gated);
    let cols_step = if step.cols == 1 { 1 } else { lcm(step.cols * block, padded) };
    let (_, hidden) = taken(contract, tokens, shape.hidden);
    let intermediate = shape.intermediate.next_multiple_of(cols_step);
    (tokens.next_multiple_of(rows_step), Shape { hidden, intermediate, ..shape })
}

/// Tokens whose blocks all have amax of their own: a power of two apart within a row and a column,
/// and a mantissa of their own beyond that, so that scales of any type tell blocks apart. Block scales
/// of e4m3 reach over fewer powers of two than others.
pub(super) fn distinct_tokens(rows: usize, cols: usize, format: &FormatSpec) -> Vec<bf16> {
    let block = match format.block.map(|block| block.cols) {
        Some(Reach::Of(block)) => block,
        Some(Reach::Whole) | None => 32,
    };
    let exponents = if format.global.is_some() { 11 } else { 61 };
    let blocks = cols.div_ceil(block);
    let value = |row: usize, col: usize| {
        let (index, within) = (row * blocks + col / block, col % block);
        let exponent = (index % exponents) as f32 - (exponents / 2) as f32;
        let mantissa = 1.0 + (index / exponents % 128) as f32 / 128.0;
        let sign = if within.is_multiple_of(2) { 1.0 } else { -1.0 };
        let fraction = if within == 0 { 1.0 } else { (within % 7) as f32 / 8.0 };
        bf16::from_f32(sign * fraction * mantissa * exponent.exp2())
    };
    (0..rows * cols).map(|index| value(index / cols, index % cols)).collect()
}

/// A layer to run on a row.
pub(super) struct Fixture {
    pub(super) name: String,
    /// The weights, in a format whose every row of every matrix has scales of its own.
    pub(super) source: Canonical,
    /// The same as the row takes them.
    pub(super) weights: Canonical,
    tokens: Vec<bf16>,
    routing: Routing,
    config: LayerConfig,
}

impl Fixture {
    /// The layers that a row is tried on: several sizes for each order of rows, one for a function
    /// whose order another function has already.
    pub(super) fn all(contract: &Contract) -> Vec<Self> {
        let shape = |experts, hidden, intermediate, top_k| Shape { experts, hidden, intermediate, top_k };
        let shapes = [(5, shape(3, 160, 96, 2)), (129, shape(4, 96, 352, 2)), (1, shape(2, 288, 704, 1))];
        let known: Vec<Activation> = orders(contract).collect();
        let mut fixtures = Vec::new();
        for honoured in contract.activations {
            // Rounded up, one layer is as good as another.
            let several = divisor(contract).rows == 1 && known.contains(&honoured.function);
            let taken = shapes.into_iter().take(if several { shapes.len() } else { 1 });
            fixtures
                .extend(taken.map(|(tokens, shape)| Self::new(contract, honoured.function, tokens, shape)));
        }
        fixtures
    }

    /// A layer of these sizes, rounded up where a layout of the row takes multiples only.
    pub(super) fn new(contract: &Contract, activation: Activation, tokens: usize, shape: Shape) -> Self {
        let (tokens, shape) = taken_by_layer(contract, tokens, shape);
        let mut source = synthetic::weights(shape, 7, &MXFP4).unwrap_or_else(|error| panic!("{error}"));
        if activation.halves() == 1 {
            source.gate = None;
            if let Some(biases) = &mut source.biases {
                biases.gate.clear();
            }
        }
        source.biases = contract.weight.bias.and(source.biases);
        // Every third token skips an expert, so that experts differ in size; not where all sizes have to
        // be multiples.
        let skips = |token: usize| usize::from(divisor(contract).rows == 1 && token.is_multiple_of(3));
        let choice = |token: usize, k: usize| ((token + k + skips(token)) % shape.experts) as u32;
        let ids = (0..tokens).flat_map(|token| (0..shape.top_k).map(move |k| choice(token, k))).collect();
        let weights_of = (0..tokens * shape.top_k).map(|slot| 0.25 + (slot % 5) as f32 * 0.125).collect();
        let routing = Routing::new(tokens, shape.top_k, shape.experts, ids, weights_of);
        let routing = routing.unwrap_or_else(|error| panic!("{error}"));
        let values = synthetic::tokens(shape, tokens, 11);
        let rows = Tokens::new(&values, tokens, shape.hidden).unwrap_or_else(|error| panic!("{error}"));
        let activation = function(activation, contract);
        let weights = taken_weights(contract, activation, &source);
        let config = calibrate(contract, &weights, rows, &routing, activation);
        let config = config.unwrap_or_else(|error| panic!("{}: {error}", contract.name));
        let name = format!("{}, {tokens} tokens, {shape:?}", activation.kind());
        Self { name, source, weights, tokens: values, routing, config }
    }

    pub(super) fn is_one_token(&self) -> bool {
        self.routing.tokens() == 1
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
            config: self.config,
        }
    }
}

/// The first function of each order of gate/up rows.
pub(super) fn orders(contract: &Contract) -> impl Iterator<Item = Activation> + '_ {
    let gate_up = contract.weight.gate_up;
    let is_first = move |(index, (_, order)): &(usize, &(Activation, &Order))| {
        gate_up[..*index].iter().all(|(_, other)| other.name != order.name)
    };
    gate_up.iter().enumerate().filter(is_first).map(|(_, (function, _))| *function)
}

/// `source` as the row takes it.
pub(super) fn taken_weights(
    contract: &Contract,
    activation: ActivationFunction,
    source: &Canonical,
) -> Canonical {
    let adapted = adapt(contract, activation, source).unwrap_or_else(|error| panic!("{error}"));
    adapted.weights.unwrap_or_else(|| source.clone())
}

/// `activation` with gpt-oss's parameters where the row honours them, neutral ones where it does not.
pub(super) fn function(activation: Activation, contract: &Contract) -> ActivationFunction {
    let honours = |parameter| {
        let honoured = contract.activations.iter().find(|honoured| honoured.function == activation);
        honoured.is_some_and(|honoured| honoured.parameters.contains(&parameter))
    };
    let or = |parameter, value, neutral| if honours(parameter) { value } else { neutral };
    let alpha = or(Parameter::Alpha, 1.702, 1.0);
    let beta = or(Parameter::Beta, 1.0, 0.0);
    let limit = or(Parameter::Limit, 7.0, f32::INFINITY);
    match activation {
        Activation::Silu => ActivationFunction::Silu { limit },
        Activation::Gelu => ActivationFunction::Gelu,
        Activation::GeluTanh => ActivationFunction::GeluTanh,
        Activation::Relu2 => ActivationFunction::Relu2,
        Activation::Swigluoai => ActivationFunction::Swigluoai { alpha, beta, limit },
        Activation::SwigluoaiUninterleave => ActivationFunction::SwigluoaiUninterleave { alpha, beta, limit },
        Activation::Swiglustep => ActivationFunction::Swiglustep { limit },
        Activation::Situ => ActivationFunction::Situ {
            beta: or(Parameter::Beta, 4.0, f32::INFINITY),
            linear_beta: or(Parameter::LinearBeta, 25.0, f32::INFINITY),
        },
        Activation::SiluNoMul => ActivationFunction::SiluNoMul,
        Activation::GeluNoMul => ActivationFunction::GeluNoMul,
        Activation::GeluTanhNoMul => ActivationFunction::GeluTanhNoMul,
        Activation::Relu2NoMul => ActivationFunction::Relu2NoMul,
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
