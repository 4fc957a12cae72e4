//! What is tested: the CPU engine and the generated tables, by name.

use half::bf16;
use scalewright::backend::{Contract, Kernel};
use scalewright::config::ActivationFunction;
use scalewright::cpu::{self, quantize, relayout};
use scalewright::element;
use scalewright::format::{ElementType, FormatSpec, Rounding};
use scalewright::generated::backends::CONTRACTS;
use scalewright::generated::formats::FORMATS;
use scalewright::generated::layouts::{LAYOUTS, ORDERS};
use scalewright::layout::{Layout, Order};
use scalewright::moe::activation;
use scalewright::moe::routing::Routing;
use scalewright::tensor::{RawQuantized, Tokens};
use scalewright::weights::canonical::Canonical;
use scalewright::weights::prepared::prepare;

use crate::data::Tensor;

pub(crate) fn format(name: &str) -> &'static FormatSpec {
    FORMATS.iter().find(|format| format.name == name).unwrap_or_else(|| panic!("no format `{name}`"))
}

pub(crate) fn layout(name: &str) -> &'static Layout {
    LAYOUTS.iter().find(|layout| layout.name == name).unwrap_or_else(|| panic!("no layout `{name}`"))
}

pub(crate) fn order(name: &str) -> &'static Order {
    ORDERS.iter().find(|order| order.name == name).unwrap_or_else(|| panic!("no order `{name}`"))
}

pub(crate) fn decode(element: ElementType, code: u8) -> f32 {
    match element {
        ElementType::E2m1 => element::e2m1_decode(code),
        ElementType::E4m3 => element::e4m3_decode(code),
        other => panic!("{other:?} is not narrow"),
    }
}

pub(crate) fn decode_e8m0(byte: u8) -> f32 {
    element::e8m0_decode(byte)
}

pub(crate) fn encode(element: ElementType, value: f32) -> u8 {
    match element {
        ElementType::E2m1 => element::e2m1_encode(value),
        ElementType::E4m3 => element::e4m3_encode(value),
        other => panic!("{other:?} is not narrow"),
    }
}

/// Quantises a matrix of bf16 or f32.
pub(crate) fn quantize(
    values: &Tensor,
    format: &'static FormatSpec,
    rounding: Rounding,
    layout: &'static Layout,
) -> RawQuantized {
    let (rows, cols) = (values.shape[0], values.cols());
    let rounding = Some(rounding);
    match values.dtype {
        safetensors::Dtype::BF16 => {
            let values: Vec<bf16> = values.bf16();
            quantize::quantize(Tokens::new(&values, rows, cols).unwrap(), format, rounding, layout, 1)
        }
        _ => {
            let values: Vec<f32> = values.reals();
            quantize::quantize(Tokens::new(&values, rows, cols).unwrap(), format, rounding, layout, 1)
        }
    }
    .unwrap()
}

pub(crate) fn relayout(from: &RawQuantized, to: &'static Layout) -> RawQuantized {
    relayout::relayout(from, to).unwrap()
}

pub(crate) fn activate(function: ActivationFunction, gate: f32, up: f32) -> f32 {
    activation::activate(function, gate, up)
}

/// The rows that this crate executes on weights in `format` with `function`.
pub(crate) fn contracts(format: &'static FormatSpec, function: ActivationFunction) -> Vec<&'static Contract> {
    let fits = |contract: &&&Contract| {
        contract.kernel == Kernel::Generated
            && contract.weight.format == format
            && scalewright::config::check(contract, function).is_ok()
    };
    CONTRACTS.iter().filter(fits).copied().collect()
}

/// The layer as `contract` says, from bf16 tokens to bf16 outputs.
pub(crate) fn layer(
    contract: &'static Contract,
    function: ActivationFunction,
    weights: &Canonical,
    tokens: &[bf16],
    routing: &Routing,
) -> Result<Vec<bf16>, String> {
    let text = |error: &dyn std::error::Error| format!("{}: {error}", contract.name);
    let prepared = prepare(contract, function.kind(), weights).map_err(|error| text(&error))?;
    let tokens = Tokens::new(tokens, routing.tokens(), weights.hidden).map_err(|error| text(&error))?;
    let input = quantize::quantize_prepared(contract, contract.gemm1_input.formats[0], tokens)
        .map_err(|error| text(&error))?;
    cpu::layer::forward(contract, function, &prepared, &input, routing).map_err(|error| text(&error))
}
