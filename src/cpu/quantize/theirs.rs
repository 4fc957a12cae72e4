//! Scales and elements by any producer's conventions, one block and one element at a time. What this
//! crate does by its own conventions is in [`choose`](super::choose), compiled for speed; with
//! [`Conventions::OURS`](crate::recipe::conventions::Conventions::OURS) both give the same bytes.

use half::bf16;

use crate::element::{
    e4m3_decode, e4m3_encode, e8m0_decode, largest, mantissa_bits, round_up, rounded_to, top_exponent,
};
use crate::format::{ElementType, Rounding};
use crate::recipe::conventions::{
    Arithmetic, BlockFloor, BlockShare, Conventions, Elements, ElementsBy, ElementsUnder, EvenTo, Exponent,
    Floor, Infinity, InfinityBlock, NanBlock, PowerOfTwo, Quotient, QuotientOf, Range, Smallest,
    SmallestScale, TwoLevel,
};
use crate::scale::Divisor;

use super::steps::{Operation, Step};

const MANTISSA_BITS: u32 = f32::MANTISSA_DIGITS - 1;
const MANTISSA: u32 = (1 << MANTISSA_BITS) - 1;

/// The smallest normal e4m3 number, 2^-6, and the smallest of all, 2^-9.
const SMALLEST_NORMAL_E4M3: f32 = 0.015625;
const SMALLEST_E4M3: f32 = 0.001953125;

/// An eighth in e4m3.
const EIGHTH: u8 = 0x20;

/// vLLM's reciprocal of zero in NVFP4.
const TINY: f32 = 1e-8;

/// The byte of a block whose largest magnitude is `amax`, and by what its elements change.
pub(super) fn power_of_two(
    amax: f32,
    element: ElementType,
    rounding: Rounding,
    conventions: PowerOfTwo,
) -> (u8, f32) {
    let smallest = (0, below_all(conventions.smallest));
    let Some(amax) = floored(amax, conventions.floor) else { return (127, 1.0) };
    if amax.is_nan() {
        return match conventions.nan {
            NanBlock::Lost => (255, f32::NAN),
            NanBlock::Infinite => (255, 0.0),
            NanBlock::LostAtZero => (0, f32::NAN),
            NanBlock::Smallest => smallest,
        };
    }
    let even_bits = match conventions.even {
        EvenTo::Element => mantissa_bits(element),
        EvenTo::Fp4 => mantissa_bits(ElementType::E2m1),
    };
    // Of finite magnitudes only `even` rounds some to infinity.
    let once_rounded = match rounding {
        Rounding::Even => rounded_to(even_bits, amax),
        Rounding::Rceil | Rounding::Floor | Rounding::Ceil => amax.to_bits(),
    };
    if let Some(infinite) = at_infinity(amax, f32::from_bits(once_rounded), conventions) {
        return infinite;
    }
    let biased = match rounding {
        Rounding::Rceil => exponent(amax * (1.0 / largest(element)), conventions.exponent),
        Rounding::Floor => (amax.to_bits() >> MANTISSA_BITS).saturating_sub(top_exponent(element)),
        Rounding::Even => {
            (rounded_to(even_bits, amax) >> MANTISSA_BITS).saturating_sub(top_exponent(element))
        }
        Rounding::Ceil => round_up(amax).saturating_sub(top_exponent(element)),
    };
    match biased.min(254) as u8 {
        0 => smallest,
        byte => (byte, e8m0_decode(254 - byte)),
    }
}

/// The byte of a block whose largest magnitude is `amax`, and `once_rounded` before its exponent is
/// taken, if that is infinite to the producer; `None` if it is not, or the rule is followed there too.
fn at_infinity(amax: f32, once_rounded: f32, conventions: PowerOfTwo) -> Option<(u8, f32)> {
    let zeroed = 0.0;
    let largest = (254, e8m0_decode(0));
    let is_rounded_so = !once_rounded.is_finite();
    match conventions.infinity {
        InfinityBlock::Rule => None,
        InfinityBlock::Largest => amax.is_infinite().then_some(largest),
        InfinityBlock::LargestOnceRounded => is_rounded_so.then_some(largest),
        InfinityBlock::Infinite => amax.is_infinite().then_some((255, zeroed)),
        InfinityBlock::One => is_rounded_so.then_some((127, zeroed)),
        InfinityBlock::Smallest => amax.is_infinite().then_some((0, below_all(conventions.smallest))),
        InfinityBlock::Zeroed => amax.is_infinite().then_some((0, zeroed)),
    }
}

/// The power of two that is the scale of a block whose largest magnitude is `amax`, stored in a type for
/// scales of any size, with their floor and their infinity; and by what its elements change.
pub(super) fn quotient_power_of_two(
    amax: f32,
    element: ElementType,
    rounding: Rounding,
    conventions: &Conventions,
) -> (f32, f32) {
    let Quotient { floor, infinity, .. } = conventions.quotient;
    let conventions = PowerOfTwo { floor, ..conventions.power_of_two };
    match power_of_two(finite(amax, infinity), element, rounding, conventions) {
        (_, factor) if factor.is_nan() => (f32::NAN, factor),
        // Where the byte reads as infinity, wider types have one.
        (255, factor) => (f32::INFINITY, factor),
        (byte, factor) => (e8m0_decode(byte), factor),
    }
}

fn finite(amax: f32, infinity: Infinity) -> f32 {
    match infinity {
        Infinity::Saturated if amax.is_infinite() => f32::MAX,
        Infinity::Saturated | Infinity::Kept => amax,
    }
}

/// The biased exponent of the power of two at or above `quotient`.
fn exponent(quotient: f32, by: Exponent) -> u32 {
    match by {
        Exponent::Bits => round_up(quotient),
        Exponent::NormalBits => (quotient.to_bits() + MANTISSA) >> MANTISSA_BITS,
        // By libm, so that all processors agree; rounded to f32, as the source's logarithm is.
        Exponent::Logarithm => {
            let logarithm = libm::log2(f64::from(quotient)) as f32;
            (logarithm.ceil().clamp(-127.0, 127.0) as i32 + 127) as u32
        }
    }
}

fn below_all(smallest: Smallest) -> f32 {
    match smallest {
        Smallest::Zeros => 0.0,
        Smallest::Exact => e8m0_decode(254),
        Smallest::SmallestNormal => e8m0_decode(253),
        Smallest::One => 1.0,
    }
}

/// `amax`, not below the floor; `None` if the scale is 1 whatever the rule says.
fn floored(amax: f32, floor: Floor) -> Option<f32> {
    match floor {
        Floor::None => Some(amax),
        // Not `max`, which would lose a NaN.
        Floor::AtLeast(least) => Some(if amax < least { least } else { amax }),
        Floor::One => (amax > 0.0).then_some(amax),
    }
}

fn rounded(value: f32, arithmetic: Arithmetic) -> f32 {
    match arithmetic {
        Arithmetic::Single => value,
        Arithmetic::Bfloat16 => bf16::from_f32(value).to_f32(),
    }
}

/// A scale of any size, not yet stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen {
    pub(super) scale: f32,
    inverse: f32,
    elements: ElementsBy,
}

impl Chosen {
    /// By what elements change if the scale is stored as `stored`.
    pub(super) fn by(self, stored: f32) -> f32 {
        match self.elements {
            _ if stored.is_nan() => f32::NAN,
            ElementsBy::Division => stored,
            ElementsBy::Reciprocal => 1.0 / stored,
            ElementsBy::Inverse => self.inverse,
        }
    }
}

/// How elements change by a scale of any size.
pub(super) fn by_quotient(conventions: Quotient) -> Operation {
    match conventions.elements {
        ElementsBy::Division => Operation::Divide,
        ElementsBy::Reciprocal | ElementsBy::Inverse => Operation::Multiply,
    }
}

/// How elements change by a scale with a second level.
pub(super) fn by_two_levels(conventions: TwoLevel) -> Operation {
    match conventions.elements {
        ElementsUnder::DivisionByProduct | ElementsUnder::DivisionByQuotient => Operation::Divide,
        ElementsUnder::Reciprocal
        | ElementsUnder::ReciprocalOrTiny
        | ElementsUnder::ReciprocalOrLargest
        | ElementsUnder::Quotient => Operation::Multiply,
    }
}

/// The scale of a block whose largest magnitude is `amax`.
pub(super) fn quotient(amax: f32, element: ElementType, conventions: Quotient) -> Chosen {
    let elements = conventions.elements;
    let in_type = |value| rounded(value, conventions.arithmetic);
    let Some(amax) = floored(amax, conventions.floor) else {
        return Chosen { scale: 1.0, inverse: 1.0, elements };
    };
    let amax = in_type(finite(amax, conventions.infinity));
    let range = match conventions.range {
        Range::Largest => largest(element),
        Range::HalfOfCodes => largest(element) + 0.5,
    };
    let (scale, inverse) = match conventions.scale {
        QuotientOf::Division => (in_type(amax / range), range / amax),
        QuotientOf::Multiplication => (in_type(amax * in_type(1.0 / range)), range / amax),
        QuotientOf::Inverse => {
            let inverse = in_type(range * in_type(1.0 / amax));
            (1.0 / inverse, inverse)
        }
    };
    let scale = match conventions.smallest {
        SmallestScale::AtLeast(least) if scale < least => least,
        SmallestScale::ZeroBecomes(least) if scale == 0.0 => least,
        _ => scale,
    };
    Chosen { scale, inverse, elements }
}

/// The e4m3 code of a block whose largest magnitude is `amax`, and by what its elements change.
pub(super) fn two_level(
    amax: f32,
    element: ElementType,
    global: Divisor,
    conventions: TwoLevel,
) -> (u8, f32) {
    let (g, largest) = (global.get(), largest(element));
    let d = global.to_multiplier().get();
    let share = match conventions.scale {
        BlockShare::OfProduct => g * rounded(amax * (1.0 / largest), conventions.arithmetic),
        BlockShare::OfQuotient => g * rounded(amax / largest, conventions.arithmetic),
        BlockShare::ByFactor => amax * (g * (1.0 / largest)),
        BlockShare::ByDivision => rounded(amax / largest, conventions.arithmetic) / d,
        BlockShare::ByDivisor => amax / (largest * d),
    };
    let share = match conventions.floor {
        BlockFloor::SmallestNormal if share < SMALLEST_NORMAL_E4M3 => SMALLEST_NORMAL_E4M3,
        BlockFloor::SmallestOrOne if share == 0.0 => 1.0,
        BlockFloor::SmallestOrOne if share < SMALLEST_E4M3 => SMALLEST_E4M3,
        _ => share,
    };
    let code = match e4m3_encode(share) & 0x7F {
        0 if conventions.floor == BlockFloor::Eighth => EIGHTH,
        0x7F => return (0x7F, f32::NAN),
        code => code,
    };
    let s = e4m3_decode(code);
    let product = s * d;
    let by = match conventions.elements {
        ElementsUnder::Reciprocal if product == 0.0 => 0.0,
        ElementsUnder::ReciprocalOrTiny if product == 0.0 => TINY,
        ElementsUnder::ReciprocalOrLargest => (1.0 / product).min(f32::MAX),
        ElementsUnder::Reciprocal | ElementsUnder::ReciprocalOrTiny => 1.0 / product,
        ElementsUnder::Quotient => 1.0 / d / s,
        ElementsUnder::DivisionByProduct => product,
        ElementsUnder::DivisionByQuotient => s / g,
    };
    (code, by)
}

/// Writes the codes of `values`, two to a byte where they have 4 bits.
#[inline(never)]
pub(super) fn encode(
    element: ElementType,
    conventions: Elements,
    step: &Step,
    values: &[f32],
    bytes: &mut [u8],
) {
    let code = |value: f32| {
        let scaled = match step.operation {
            _ if step.by.is_nan() => f32::NAN,
            Operation::Multiply => value * step.by,
            Operation::Divide => value / step.by,
            Operation::Shift => (value / step.by).round_ties_even() + f32::from(step.zero_point),
        };
        // `Scheme::new` refuses the types that have no code of a byte.
        crate::element::encode(element, rounded(scaled, conventions.arithmetic), conventions).unwrap_or(0)
    };
    if element.bits() == 4 {
        for (pair, byte) in values.chunks(2).zip(bytes) {
            *byte = code(pair[0]) | pair.get(1).map_or(0, |value| code(*value)) << 4;
        }
    } else {
        for (value, byte) in values.iter().zip(bytes) {
            *byte = code(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::quantize_matrix;
    use super::*;
    use crate::generated::formats::FORMATS;
    use crate::recipe::Recipe;
    use crate::recipe::conventions::SmallestInteger;
    use crate::scale::Calibrated;
    use crate::tensor::Tokens;

    /// Rows of 256: all magnitudes, ties, zeros, subnormals, infinities, NaN.
    fn edges() -> Vec<f32> {
        let exponents = (0..256u32).flat_map(|exponent| {
            (0..8u32).map(move |step| f32::from_bits(exponent << MANTISSA_BITS | step << 20 | (step & 1)))
        });
        let mut values: Vec<f32> =
            exponents.enumerate().map(|(at, x)| if at % 3 == 0 { -x } else { x }).collect();
        values.extend([0.0; 128]);
        values.extend([-0.0; 128]);
        // Blocks whose largest magnitudes stand apart by much.
        let spread = (0..1024)
            .map(|at| ((at * 2_654_435_761_u64 % 10_007) as f32 - 5003.0) * 2f32.powi(at as i32 / 16 - 32));
        values.extend(spread);
        values
    }

    /// The loops compiled for speed and the general path are two programs for one thing. The smallest
    /// integer, which no finite number reaches by our scales, has the second one run.
    #[test]
    fn our_conventions_are_what_the_loops_do() {
        let values = edges();
        let tokens = Tokens::new(&values, values.len() / 256, 256).unwrap();
        let general = Conventions {
            elements: Elements { smallest: SmallestInteger::Symmetric, ..Elements::OURS },
            ..Conventions::OURS
        };
        let mut compared = 0;
        for format in FORMATS.iter().copied().filter(|format| format.block.is_some()) {
            for rounding in [
                None,
                Some(Rounding::Rceil),
                Some(Rounding::Floor),
                Some(Rounding::Even),
                Some(Rounding::Ceil),
            ] {
                let calibrated = format.global.map(|_| Calibrated::Global(Divisor::new(3.0).unwrap()));
                let fast = Recipe { calibrated, ..Recipe::dynamic(rounding) };
                let slow = Recipe { conventions: general, ..fast };
                let (fast, slow) =
                    match (quantize_matrix(tokens, format, fast), quantize_matrix(tokens, format, slow)) {
                        (Ok(fast), Ok(slow)) => (fast, slow),
                        (fast, slow) => {
                            assert_eq!(fast.err(), slow.err());
                            continue;
                        }
                    };
                assert!(fast.scales == slow.scales, "scales of {} by {rounding:?}", format.name);
                assert!(fast.payload == slow.payload, "elements of {} by {rounding:?}", format.name);
                compared += 1;
            }
        }
        assert!(compared >= 20, "{compared}");
    }
}
