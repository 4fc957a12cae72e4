//! Codes and scales, ours beside theirs.

use scalewright::element;
use scalewright::format::{ElementType, FormatSpec, ScaleType};
use scalewright::layout::Extent;
use scalewright::weights::canonical::Stack;

use crate::data::{Outcome, Tensor, all_same, same};

/// The codes of `payload`, one a value.
pub(crate) fn codes(element: ElementType, payload: &[u8]) -> Vec<u8> {
    match element.bits() {
        4 => payload.iter().flat_map(|byte| [byte & 0xF, byte >> 4]).collect(),
        _ => payload.to_vec(),
    }
}

/// Whether NaN has a code.
fn has_nan(element: ElementType) -> bool {
    matches!(element, ElementType::E4m3 | ElementType::E5m2)
}

fn is_nan(element: ElementType, code: u8) -> bool {
    has_nan(element) && element::decode(element, code).is_some_and(f32::is_nan)
}

/// Compares elements at all indices but those in `left_out`. The sign of a NaN is not significant, nor
/// is what a type without NaN holds for one: sources make it from the bits of the NaN. There the input
/// is NaN, or infinite and lost on the way, or the scale of the block says it.
pub(crate) fn elements(
    format: &FormatSpec,
    input: &Tensor,
    ours: &Stack,
    theirs: &Tensor,
    left_out: impl Fn(usize) -> bool,
) -> Outcome {
    let element = format.element;
    let mask = if matches!(element, ElementType::E2m3 | ElementType::E3m2) { 0x3F } else { 0xFF };
    let inputs = input.reals();
    let (ours_codes, theirs) = (codes(element, &ours.payload), codes(element, &theirs.bytes));
    let is_lost = |index: usize| {
        !has_nan(element)
            && (inputs[index].is_nan()
                || (inputs[index].is_infinite() && element::decode(element, ours_codes[index]) == Some(0.0))
                || scale_is_nan(format, ours, index))
    };
    let significant = |(index, code): (usize, &u8)| match *code & mask {
        _ if left_out(index) || is_lost(index) => None,
        code if is_nan(element, code) => Some(None),
        code => Some(Some(code)),
    };
    let of = |codes: &[u8]| codes.iter().enumerate().map(significant).collect::<Vec<_>>();
    same("elements", &of(&ours_codes), &of(&theirs))
}

/// Whether the scale of the block of element `index` says that its elements are lost.
fn scale_is_nan(format: &FormatSpec, stack: &Stack, index: usize) -> bool {
    let Some(block) = format.block else { return false };
    let extent = Extent { rows: stack.rows, cols: stack.cols };
    let size = block.size(extent);
    let (row, col) = (index / stack.cols / size.rows, index % stack.cols / size.cols);
    let scale = stack.scales[(row * block.scales(extent).cols + col) * block.scale.bytes()];
    match block.scale {
        ScaleType::E8m0 => scale == 0xFF,
        ScaleType::E4m3 => scale & 0x7F == 0x7F,
        ScaleType::F32 | ScaleType::Bf16 | ScaleType::F16 => false,
    }
}

/// Compares scales in any layout, padding included; the sign of a NaN is not significant.
pub(crate) fn scales(what: &str, scale: ScaleType, ours: &[u8], theirs: &Tensor) -> Outcome {
    match scale {
        ScaleType::E4m3 => all_same(what, ours, &theirs.bytes, |ours, theirs| {
            ours == theirs || (ours & 0x7F == 0x7F && theirs & 0x7F == 0x7F)
        }),
        ScaleType::F32 => {
            let ours: Vec<f32> = ours.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            reals(what, &ours, &theirs.reals())
        }
        ScaleType::E8m0 | ScaleType::Bf16 | ScaleType::F16 => same(what, ours, &theirs.bytes),
    }
}

/// Compares values bit by bit, but for NaN.
pub(crate) fn reals(what: &str, ours: &[f32], theirs: &[f32]) -> Outcome {
    all_same(what, ours, theirs, |ours, theirs| {
        ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan())
    })
}
