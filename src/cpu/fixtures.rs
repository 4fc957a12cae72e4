//! Contracts by hand, for the tests of this engine.

use crate::backend::{
    Activation, Bias, BiasOrder, BiasType, Contract, Encoding, Grouping, Honoured, InputContract,
    InputLayout, Kernel, Known, Parameter, QuantizeAt, WeightContract, WeightPad, WeightScale,
};
use crate::digits::{Axis, Digit};
use crate::format::{BlockScale, ElementType, FormatSpec, Reach, Rounding, ScaleType};
use crate::layout::{Extent, Fit, Half, Layout, Order, Payload};
use crate::weights::canonical::Stack;

const fn last(axis: Axis, divisor: usize) -> Digit {
    Digit { axis, divisor, radix: None }
}

const fn inner(axis: Axis, divisor: usize, radix: usize) -> Digit {
    Digit { axis, divisor, radix: Some(radix) }
}

const ANY: Extent = Extent { rows: 1, cols: 1 };

pub(crate) static LINEAR: Layout = Layout {
    name: "linear",
    digits: &[last(Axis::Row, 1), last(Axis::Col, 1)],
    fit: Fit::Pad(ANY),
    scales: &[ScaleType::E8m0, ScaleType::F32, ScaleType::E4m3],
    aliases: &[],
    offset: |row, col, size| row * size.cols + col,
    locate: |offset, size| (offset / size.cols, offset % size.cols),
};

pub(crate) static SWIZZLED: Layout = Layout {
    name: "swizzled_128x4",
    digits: &[
        last(Axis::Row, 128),
        last(Axis::Col, 4),
        inner(Axis::Row, 1, 32),
        inner(Axis::Row, 32, 4),
        inner(Axis::Col, 1, 4),
    ],
    fit: Fit::Pad(Extent { rows: 128, cols: 4 }),
    scales: &[ScaleType::E8m0],
    aliases: &[],
    offset: |row, col, size| SWIZZLED.offset_by_digits(row, col, size),
    locate: |offset, size| SWIZZLED.locate_by_digits(offset, size),
};

/// Rows innermost.
pub(crate) static COLUMNS: Layout = Layout {
    name: "columns",
    digits: &[last(Axis::Col, 1), last(Axis::Row, 1)],
    fit: Fit::Pad(Extent { rows: 4, cols: 1 }),
    scales: &[ScaleType::E8m0, ScaleType::F32],
    aliases: &[],
    offset: |row, col, size| col * size.rows + row,
    locate: |offset, size| (offset % size.rows, offset / size.rows),
};

const fn scaled(
    name: &'static str,
    element: ElementType,
    scale: ScaleType,
    rows: usize,
    cols: usize,
) -> FormatSpec {
    FormatSpec::blocks(name, element, scale, rows, cols)
}

pub(crate) static BF16: FormatSpec =
    FormatSpec { name: "bf16", element: ElementType::Bf16, block: None, global: None };
pub(crate) static MXFP8: FormatSpec = scaled("mxfp8", ElementType::E4m3, ScaleType::E8m0, 1, 32);
pub(crate) static MXFP4: FormatSpec = scaled("mxfp4", ElementType::E2m1, ScaleType::E8m0, 1, 32);
pub(crate) static FP8_ROWS: FormatSpec = scaled("fp8_1x4", ElementType::E4m3, ScaleType::F32, 1, 4);
pub(crate) static FP8_TILES: FormatSpec = scaled("fp8_2x4", ElementType::E4m3, ScaleType::F32, 2, 4);
pub(crate) static FP8_TENSOR: FormatSpec = FormatSpec {
    block: Some(BlockScale {
        scale: ScaleType::F32,
        rows: Reach::Whole,
        cols: Reach::Whole,
        zero_point: None,
    }),
    ..FormatSpec::unscaled("fp8_tensor", ElementType::E4m3)
};
pub(crate) static NVFP4: FormatSpec = FormatSpec {
    global: Some(ScaleType::F32),
    ..FormatSpec::blocks("nvfp4", ElementType::E2m1, ScaleType::E4m3, 1, 16)
};

const fn gated(name: &'static str, digits: &'static [Digit], first: Half) -> Order {
    Order { name, digits, first: Some(first), multiple: 1 }
}

pub(crate) static UP_GATE: Order = gated("up_gate", &[last(Axis::Half, 1), last(Axis::Row, 1)], Half::Up);
pub(crate) static GATE_UP: Order = gated("gate_up", &[last(Axis::Half, 1), last(Axis::Row, 1)], Half::Gate);
pub(crate) static INTERLEAVED: Order =
    gated("gate_up_interleaved", &[last(Axis::Row, 1), last(Axis::Half, 1)], Half::Gate);

/// Rows as they come, of plain weights.
pub(crate) static ROWS: Order =
    Order { name: "plain", digits: &[last(Axis::Row, 1)], first: None, multiple: 1 };

pub(crate) static BY_ROWS: Payload = Payload {
    name: "row_major",
    digits: &[last(Axis::Row, 1), last(Axis::Col, 1)],
    fit: Fit::Pad(ANY),
    word: None,
};

/// Pairs of rows side by side.
pub(crate) static TILED: Payload = Payload {
    name: "tiled",
    digits: &[last(Axis::Row, 2), last(Axis::Col, 1), inner(Axis::Row, 1, 2)],
    fit: Fit::Pad(Extent { rows: 2, cols: 1 }),
    word: None,
};

/// How a contract orders gate/up rows, for every activation function.
pub(crate) type Orders = &'static [(Activation, &'static Order)];
pub(crate) static BY_UP_GATE: Orders = &[(Activation::Silu, &UP_GATE), (Activation::Swigluoai, &UP_GATE)];
pub(crate) static BY_GATE_UP: Orders = &[(Activation::Silu, &GATE_UP)];
pub(crate) static BY_PAIRS: Orders = &[(Activation::Silu, &INTERLEAVED)];
pub(crate) static BY_ROW: Orders = &[(Activation::Relu2NoMul, &ROWS)];

pub(crate) type Formats = &'static [&'static FormatSpec];
pub(crate) static IN_BF16: Formats = &[&BF16];
pub(crate) static IN_MXFP8: Formats = &[&MXFP8];
pub(crate) static IN_FP8: Formats = &[&FP8_ROWS];
pub(crate) static IN_FP8_TENSOR: Formats = &[&FP8_TENSOR];

/// Nothing padded, nothing scaled: bf16 through and through, up first.
pub(crate) fn plain() -> Contract {
    let input = InputContract {
        formats: IN_BF16,
        rounding: None,
        quantize: None,
        layout: Known::Is(InputLayout { prepared: &LINEAR, kernel: &LINEAR }),
        prepared_format: None,
        source: None,
        grouping: None,
        multiple: 1,
        global: None,
        alpha: None,
    };
    Contract {
        name: "by_hand",
        vllm: None,
        kernel: Kernel::Generated,
        facts: &[],
        weight: WeightContract {
            format: &BF16,
            requantize_from: None,
            payload: Known::Is(&BY_ROWS),
            scale: None,
            gate_up: BY_UP_GATE,
            down: None,
            pad: None,
            bias: Some(Bias { dtype: BiasType::F32, order: BiasOrder::AsRows }),
        },
        gemm1_input: input.clone(),
        gemm2_input: Some(input),
        activations: &[
            Honoured { function: Activation::Silu, parameters: &[] },
            Honoured {
                function: Activation::Swigluoai,
                parameters: &[Parameter::Alpha, Parameter::Beta, Parameter::Limit],
            },
        ],
        serves: &[],
        devices: None,
        experts: &[],
        classes: &[],
        routes: &[],
    }
}

/// mxfp4 weights, mxfp8 tokens, all scales in `layout`.
pub(crate) fn mx(layout: &'static Layout, grouping: Grouping) -> Contract {
    let plain = plain();
    let input = InputContract {
        formats: IN_MXFP8,
        rounding: Some(Rounding::Rceil),
        quantize: Some(QuantizeAt::Prepare),
        layout: Known::Is(InputLayout { prepared: &LINEAR, kernel: layout }),
        grouping: Some(grouping),
        ..plain.gemm1_input
    };
    Contract {
        weight: WeightContract {
            format: &MXFP4,
            scale: Some(weight_scale(layout)),
            pad: Some(WeightPad { hidden: 64, gated: 64, plain: 64, fill: 0 }),
            ..plain.weight
        },
        gemm1_input: InputContract { multiple: 64, ..input.clone() },
        gemm2_input: Some(input),
        ..plain
    }
}

pub(crate) fn weight_scale(layout: &'static Layout) -> WeightScale {
    WeightScale {
        layout: Known::Is(layout),
        encoding: Known::Is(Encoding::AsStored),
        repeat_rows: 1,
        fill: 0,
        global: None,
    }
}

/// A bf16 matrix of every expert.
pub(crate) fn bf16_stack(rows: usize, cols: usize, values: &[f32]) -> Stack {
    let payload = values.iter().flat_map(|value| half::bf16::from_f32(*value).to_le_bytes()).collect();
    Stack::new(rows, cols, payload, Vec::new())
}
