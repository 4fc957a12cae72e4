//! From a format and a recipe to the scale of a block, and to what becomes of its elements.

use std::slice;

use crate::element::{
    e2m3_encode, e3m2_encode, e4m3_decode, e4m3_encode, e5m2_encode, e8m0_decode, e8m0_scale, largest,
};
use crate::format::{BlockScale, ElementType, FormatSpec, Reach, Rounding, ScaleType};
use crate::recipe::Recipe;
use crate::recipe::conventions::{Conventions, Maximum};
use crate::scale::{Calibrated, Divisor, Multiplier};

use super::QuantizeError;
use super::loops::{each, magnitude_bits, nibbles};
use super::steps::{GROUP_OF_4_BITS, GROUP_OF_8_BITS, Operation, Step, Steps, integer};
use super::theirs;
use super::vector::VectorUnit;

/// vLLM's per-token groups take no smaller largest magnitude, so that a zero block has a scale.
const SMALLEST_AMAX: f32 = 1e-10;

/// How the blocks of one format are quantised: a format and a recipe that fit together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scheme {
    element: ElementType,
    scale: ScaleType,
    choice: Choice,
    operation: Operation,
    /// Another producer's conventions. Ours are compiled into the loops over elements below.
    theirs: Option<Conventions>,
}

/// How a block's scale is chosen.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// A power of two.
    PowerOfTwo(Rounding),
    /// The largest magnitude over the element's largest, in the stored type.
    Quotient,
    /// The same, then a power of two by the rule.
    QuotientPowerOfTwo(Rounding),
    /// The block's share of a second-level scale.
    TwoLevel(Divisor),
    /// Given, one for the tensor.
    Static(Multiplier),
    /// The distance of smallest and largest number over that of smallest and largest code.
    Affine,
}

impl Choice {
    /// What the chosen number does to elements.
    fn operation(self, theirs: Option<&Conventions>) -> Operation {
        match (self, theirs) {
            (Choice::Affine, _) => Operation::Shift,
            (Choice::PowerOfTwo(_) | Choice::Static(_), _) => Operation::Multiply,
            (Choice::Quotient, Some(theirs)) => theirs::by_quotient(theirs.quotient),
            (Choice::TwoLevel(_), Some(theirs)) => theirs::by_two_levels(theirs.two_level),
            (Choice::QuotientPowerOfTwo(_), Some(_)) | (Choice::TwoLevel(_), None) => Operation::Multiply,
            (Choice::Quotient | Choice::QuotientPowerOfTwo(_), None) => Operation::Divide,
        }
    }
}

impl Scheme {
    /// # Errors
    /// [`QuantizeError`] if no rule quantises to `format`, or `recipe` lacks what it needs or has
    /// what it would ignore.
    pub(super) fn new(
        format: &'static FormatSpec,
        block: BlockScale,
        recipe: Recipe,
    ) -> Result<Self, QuantizeError> {
        let name = format.name;
        let refuse = |why| Err(QuantizeError::Format { format: name, why });
        if matches!(format.element, ElementType::Bf16 | ElementType::F16 | ElementType::F32) {
            return refuse("16- and 32-bit elements are not scaled by block");
        }
        let is_whole = block.rows == Reach::Whole && block.cols == Reach::Whole;
        let choice = match (format.global, recipe.calibrated) {
            (Some(_), Some(Calibrated::Global(divisor))) => Choice::TwoLevel(divisor),
            (Some(_), _) => {
                return Err(QuantizeError::NoScale { format: name });
            }
            (None, Some(Calibrated::Static(scale))) if is_whole => Choice::Static(scale),
            (None, Some(_)) => return Err(QuantizeError::Scale { format: name }),
            (None, None) => match (block.scale, block.zero_point, recipe.rounding) {
                (ScaleType::E8m0, None, Some(rounding)) => Choice::PowerOfTwo(rounding),
                (ScaleType::E8m0, None, None) => return Err(QuantizeError::NoRounding { format: name }),
                (ScaleType::E4m3, _, _) => {
                    return refuse("e4m3 scales need a second level to choose them by");
                }
                (_, None, None) => Choice::Quotient,
                (ScaleType::F32, None, Some(rounding)) => Choice::QuotientPowerOfTwo(rounding),
                (_, _, Some(rounding)) => return Err(QuantizeError::Rounding { format: name, rounding }),
                (ScaleType::E8m0, Some(_), _) => return refuse("power-of-two scales have no zero points"),
                (_, Some(_), None) => Choice::Affine,
            },
        };
        match (choice, block.scale, recipe.rounding) {
            (Choice::TwoLevel(_), ScaleType::E4m3, None) | (Choice::Static(_), ScaleType::F32, None) => {}
            (Choice::TwoLevel(_) | Choice::Static(_), _, Some(rounding)) => {
                return Err(QuantizeError::Rounding { format: name, rounding });
            }
            (Choice::TwoLevel(_), _, None) => return refuse("only e4m3 scales have a second level"),
            (Choice::Static(_), _, None) => return refuse("the static scale of a tensor is an f32"),
            _ => {}
        }
        if matches!(choice, Choice::Affine) != (format.element == ElementType::Uint4) {
            return refuse("zero points belong to unsigned elements, and to them only");
        }
        let theirs = (recipe.conventions != Conventions::OURS).then_some(recipe.conventions);
        let operation = choice.operation(theirs.as_ref());
        Ok(Self { element: format.element, scale: block.scale, choice, operation, theirs })
    }

    /// Whether blocks have zero points: [`choose_affine`](Self::choose_affine) then takes the place
    /// of [`choose`](Self::choose).
    pub(super) fn is_affine(&self) -> bool {
        matches!(self.choice, Choice::Affine)
    }

    /// The element and the rule, if [`choose`](Self::choose) is [`power_of_two`].
    pub(super) fn power_of_two(&self) -> Option<(ElementType, Rounding)> {
        match self.choice {
            Choice::PowerOfTwo(rounding) if self.theirs.is_none() => Some((self.element, rounding)),
            _ => None,
        }
    }

    /// Bytes of a stored scale.
    pub(super) fn scale_bytes(&self) -> usize {
        self.scale.bytes()
    }

    /// The largest magnitude of `values`; NaN if one is, unless conventions differ.
    #[inline(always)]
    pub(super) fn magnitude(&self, values: &[f32]) -> f32 {
        let largest = f32::from_bits(magnitude_bits(values));
        if largest.is_nan() && self.theirs.is_some_and(|theirs| theirs.maximum == Maximum::OfNumbers) {
            values.iter().fold(f32::NAN, |largest, value| largest.max(value.abs()))
        } else {
            largest
        }
    }

    /// Writes the scale of a block whose largest magnitude is `amax`, NaN if it holds one, and says
    /// by what number the elements change.
    #[inline(always)]
    pub(super) fn choose(&self, amax: f32, scale: &mut [u8]) -> f32 {
        if let Some(theirs) = &self.theirs {
            return self.choose_as(theirs, amax, scale);
        }
        match self.choice {
            Choice::PowerOfTwo(rounding) => {
                let (byte, factor) = power_of_two(amax, self.element, rounding);
                scale[0] = byte;
                factor
            }
            Choice::Quotient | Choice::Affine => self.divide(bounded(amax) / largest(self.element), scale),
            Choice::QuotientPowerOfTwo(rounding) => {
                self.divide(e8m0_decode(e8m0_scale(bounded(amax), self.element, rounding)), scale)
            }
            Choice::TwoLevel(global) => {
                // vLLM's order of operations.
                let share = global.get() * (amax * (1.0 / largest(self.element)));
                let code = e4m3_encode(share) & 0x7F;
                scale[0] = code;
                match code {
                    0x7F => f32::NAN,
                    0 => 0.0,
                    _ => 1.0 / (e4m3_decode(code) * global.to_multiplier().get()),
                }
            }
            Choice::Static(multiplier) => {
                store(self.scale, multiplier.get(), scale);
                1.0 / multiplier.get()
            }
        }
    }

    /// [`choose`](Self::choose) by other conventions than ours.
    #[inline(never)]
    fn choose_as(&self, theirs: &Conventions, amax: f32, scale: &mut [u8]) -> f32 {
        match self.choice {
            Choice::PowerOfTwo(rounding) => {
                let (byte, factor) = theirs::power_of_two(amax, self.element, rounding, theirs.power_of_two);
                scale[0] = byte;
                factor
            }
            Choice::QuotientPowerOfTwo(rounding) => {
                let (value, factor) = theirs::quotient_power_of_two(amax, self.element, rounding, theirs);
                store(self.scale, value, scale);
                factor
            }
            Choice::Quotient | Choice::Affine => {
                let chosen = theirs::quotient(amax, self.element, theirs.quotient);
                chosen.by(store(self.scale, chosen.scale, scale))
            }
            Choice::TwoLevel(global) => {
                let (code, by) = theirs::two_level(amax, self.element, global, theirs.two_level);
                scale[0] = code;
                by
            }
            Choice::Static(multiplier) => {
                store(self.scale, multiplier.get(), scale);
                1.0 / multiplier.get()
            }
        }
    }

    /// [`choose`](Self::choose) for a block with a zero point, which lies between `least` and
    /// `greatest`, both NaN if it holds one.
    pub(super) fn choose_affine(
        &self,
        least: f32,
        greatest: f32,
        scale: &mut [u8],
        zero_point: &mut u8,
    ) -> f32 {
        // Zero is representable, so that padding is. Not `min` and `max`, which would lose a NaN.
        let least = if least > 0.0 { 0.0 } else { least };
        let greatest = if greatest < 0.0 { 0.0 } else { greatest };
        let codes = largest(self.element);
        let divisor = self.divide(bounded(greatest - least) / codes, scale);
        *zero_point = (-least / divisor).round_ties_even().clamp(0.0, codes) as u8;
        divisor
    }

    /// Stores `quotient` in the scale type. Elements are divided by what is stored; where that is zero,
    /// they become zero.
    #[inline(always)]
    fn divide(&self, quotient: f32, scale: &mut [u8]) -> f32 {
        let stored = store(self.scale, quotient, scale);
        if stored == 0.0 { f32::INFINITY } else { stored }
    }

    /// Writes the codes of blocks of `block` values each, two to a byte where they have 4 bits. `by` and
    /// `zero_points` are those chosen for the blocks.
    #[inline(always)]
    pub(super) fn encode(
        &self,
        unit: VectorUnit,
        (by, zero_points): (&[f32], &[u8]),
        block: usize,
        values: &[f32],
        bytes: &mut [u8],
    ) {
        let (element, operation) = (self.element, self.operation);
        let group = if element.bits() == 4 { GROUP_OF_4_BITS } else { GROUP_OF_8_BITS };
        // Groups that do not reach over the end of a block are taken through the whole row at once.
        let is_row = block.is_multiple_of(group) && self.theirs.is_none();
        let (span, blocks) = if is_row { (values.len().max(1), by.len().max(1)) } else { (block, 1) };
        let spans = values.chunks(span).zip(bytes.chunks_mut(element.bytes(span)));
        for ((values, bytes), (by, zero_points)) in
            spans.zip(by.chunks(blocks).zip(zero_points.chunks(blocks)))
        {
            let (Some(by_last), Some(zero_point)) = (by.last(), zero_points.last()) else { continue };
            let last = Step { operation, by: *by_last, zero_point: *zero_point };
            if let Some(theirs) = &self.theirs {
                theirs::encode(element, theirs.elements, &last, values, bytes);
                continue;
            }
            let steps = Steps { operation, by, zero_points, groups: block / group };
            if element.bits() == 4 {
                let ((groups, rest), (coded, rest_coded)) = (values.as_chunks(), bytes.as_chunks_mut());
                encode_4_bits(unit, element, steps, groups, coded);
                if !rest.is_empty() {
                    encode_rest_of_4_bits(unit, element, &last, rest, rest_coded);
                }
            } else {
                let ((groups, rest), (coded, rest_coded)) = (values.as_chunks(), bytes.as_chunks_mut());
                encode_8_bits(unit, element, steps, groups, coded);
                if !rest.is_empty() {
                    encode_rest_of_8_bits(unit, element, &last, rest, rest_coded);
                }
            }
        }
    }
}

/// The codes of whole groups, two to a byte, the even one in the low nibble.
#[inline(always)]
fn encode_4_bits(
    unit: VectorUnit,
    element: ElementType,
    steps: Steps<'_>,
    groups: &[[f32; GROUP_OF_4_BITS]],
    coded: &mut [[u8; GROUP_OF_4_BITS / 2]],
) {
    match element {
        ElementType::Int4 => steps.encode(groups, coded, |step, values| {
            nibbles(&step.scaled(values), |value| integer(value, -8.0, 7.0) & 0xF)
        }),
        ElementType::Uint4 => steps.encode(groups, coded, |step, values| {
            nibbles(&step.scaled(values), |value| integer(value, 0.0, 15.0))
        }),
        _ => unit.e2m1(steps, groups, coded),
    }
}

/// The codes of whole groups, one to a byte.
#[inline(always)]
fn encode_8_bits(
    unit: VectorUnit,
    element: ElementType,
    steps: Steps<'_>,
    groups: &[[f32; GROUP_OF_8_BITS]],
    coded: &mut [[u8; GROUP_OF_8_BITS]],
) {
    match element {
        ElementType::E2m3 => {
            steps.encode(groups, coded, |step, values| each(&step.scaled(values), e2m3_encode))
        }
        ElementType::E3m2 => {
            steps.encode(groups, coded, |step, values| each(&step.scaled(values), e3m2_encode))
        }
        ElementType::E5m2 => {
            steps.encode(groups, coded, |step, values| each(&step.scaled(values), e5m2_encode))
        }
        ElementType::Int8 => steps.encode(groups, coded, |step, values| {
            each(&step.scaled(values), |value| integer(value, -128.0, 127.0))
        }),
        _ => unit.e4m3(steps, groups, coded),
    }
}

/// The codes of the last values of a row or block, fewer than a group.
#[inline(never)]
fn encode_rest_of_4_bits(
    unit: VectorUnit,
    element: ElementType,
    step: &Step,
    rest: &[f32],
    coded: &mut [u8],
) {
    let (mut group, mut codes) = ([0.0; GROUP_OF_4_BITS], [0; GROUP_OF_4_BITS / 2]);
    group[..rest.len()].copy_from_slice(rest);
    encode_4_bits(unit, element, Steps::one(step), &[group], slice::from_mut(&mut codes));
    coded.copy_from_slice(&codes[..coded.len()]);
    if let Some(last) = coded.last_mut().filter(|_| !rest.len().is_multiple_of(2)) {
        *last &= 0xF;
    }
}

/// The codes of the last values of a row or block, fewer than a group.
#[inline(never)]
fn encode_rest_of_8_bits(
    unit: VectorUnit,
    element: ElementType,
    step: &Step,
    rest: &[f32],
    coded: &mut [u8],
) {
    let (mut group, mut codes) = ([0.0; GROUP_OF_8_BITS], [0; GROUP_OF_8_BITS]);
    group[..rest.len()].copy_from_slice(rest);
    encode_8_bits(unit, element, Steps::one(step), &[group], slice::from_mut(&mut codes));
    coded.copy_from_slice(&codes[..coded.len()]);
}

/// The e8m0 scale of a block whose largest magnitude is `amax`, and the factor of its elements.
#[inline(always)]
pub(super) fn power_of_two(amax: f32, element: ElementType, rounding: Rounding) -> (u8, f32) {
    let byte = e8m0_scale(amax, element, rounding);
    let factor = match byte {
        255 => f32::NAN,
        // As FlashInfer does: what is too small for a scale is zero, its sign kept.
        0 => 0.0,
        _ => e8m0_decode(254 - byte),
    };
    (byte, factor)
}

/// Keeps a NaN; an infinity is saturated, so that it does not turn its whole block into NaN.
#[inline(always)]
fn bounded(amax: f32) -> f32 {
    let amax = if amax > f32::MAX { f32::MAX } else { amax };
    if amax < SMALLEST_AMAX { SMALLEST_AMAX } else { amax }
}

/// Stores `value`, saturated, and returns what is stored.
#[inline(always)]
fn store(scale: ScaleType, value: f32, bytes: &mut [u8]) -> f32 {
    // One NaN for all: payload bits of a NaN are not significant, and have to be equal on every engine.
    let value = if value.is_nan() { f32::NAN } else { value };
    match scale {
        ScaleType::Bf16 => {
            let stored = half::bf16::from_f32(value);
            let stored = if stored > half::bf16::MAX { half::bf16::MAX } else { stored };
            bytes.copy_from_slice(&stored.to_le_bytes());
            stored.to_f32()
        }
        ScaleType::F16 => {
            let stored = half::f16::from_f32(value);
            let stored = if stored > half::f16::MAX { half::f16::MAX } else { stored };
            bytes.copy_from_slice(&stored.to_le_bytes());
            stored.to_f32()
        }
        _ => {
            bytes.copy_from_slice(&value.to_le_bytes());
            value
        }
    }
}
