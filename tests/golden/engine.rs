//! What is tested: the CPU engine, the reference and the generated tables, by name.

use safetensors::Dtype;
use scalewright::cpu::{dequantize, quantize, relayout};
use scalewright::format::FormatSpec;
use scalewright::generated::formats::FORMATS;
use scalewright::generated::layouts::{LAYOUTS, ORDERS, PAYLOADS};
use scalewright::layout::{Layout, Order, Payload};
use scalewright::recipe::Recipe;
use scalewright::reference;
use scalewright::tensor::{RawQuantized, Tokens};
use scalewright::weights::canonical::{Matrix, Stack};

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

pub(crate) fn payload(name: &str) -> &'static Payload {
    PAYLOADS.iter().find(|payload| payload.name == name).unwrap_or_else(|| panic!("no payload `{name}`"))
}

/// Quantises a matrix of bf16 or f32, scales linear.
pub(crate) fn quantize_matrix(
    values: &Tensor,
    format: &'static FormatSpec,
    recipe: Recipe,
) -> Result<Stack, String> {
    let (rows, cols) = (values.shape[0], values.cols());
    let stack = if values.dtype == Dtype::BF16 {
        quantize::quantize_matrix(Tokens::new(&values.bf16(), rows, cols).unwrap(), format, recipe)
    } else {
        quantize::quantize_matrix(Tokens::new(&values.reals(), rows, cols).unwrap(), format, recipe)
    };
    stack.map_err(|error| error.to_string())
}

/// Quantises a matrix of bf16 or f32, scales in `layout`.
pub(crate) fn quantize(
    values: &Tensor,
    format: &'static FormatSpec,
    recipe: Recipe,
    layout: &'static Layout,
) -> Result<RawQuantized, String> {
    let (rows, cols) = (values.shape[0], values.cols());
    let raw = if values.dtype == Dtype::BF16 {
        quantize::quantize(Tokens::new(&values.bf16(), rows, cols).unwrap(), format, recipe, layout, 1)
    } else {
        quantize::quantize(Tokens::new(&values.reals(), rows, cols).unwrap(), format, recipe, layout, 1)
    };
    raw.map_err(|error| error.to_string())
}

/// The same by the reference.
pub(crate) fn reference_matrix(
    values: &Tensor,
    format: &'static FormatSpec,
    recipe: Recipe,
) -> Result<Stack, String> {
    reference::quantize_rows(&values.doubles(), values.cols(), format, recipe)
        .map_err(|error| error.to_string())
}

pub(crate) fn dequantize_matrix(format: &'static FormatSpec, matrix: Matrix<'_>) -> Result<Vec<f32>, String> {
    dequantize::dequantize_matrix(format, matrix).map_err(|error| error.to_string())
}

pub(crate) fn relayout(from: &RawQuantized, to: &'static Layout) -> RawQuantized {
    relayout::relayout(from, to).unwrap()
}
