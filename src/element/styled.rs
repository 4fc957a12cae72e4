//! Elements by the conventions of any producer. One at a time: engines' loops use the casts of
//! [`element`](super), which are those of [`Elements::OURS`].

use crate::format::ElementType;
use crate::recipe::conventions::{ElementRounding, Elements, Overflow, SmallestInteger, ZeroSign};

use super::{
    HUGE, INFINITY, SIGN, e2m1_decode, e2m3_decode, e3m2_decode, e4m3_decode, encode_magnitude, largest,
};

/// A float type of 8 bits or fewer.
#[derive(Debug, Clone, Copy)]
struct Narrow {
    /// The code of a magnitude, given as bits of f32 up to [`HUGE`], as if exponents had no end.
    nearest: fn(u32) -> u32,
    value: fn(u8) -> f32,
    /// The code of the largest number.
    largest: u32,
    /// The code of infinity or, if there is none, of NaN; that of the largest number if there is
    /// neither.
    beyond: u32,
    nan: u32,
    sign: u32,
}

const E2M1: Narrow = Narrow {
    nearest: encode_magnitude::<1, 1>,
    value: e2m1_decode,
    largest: 0x7,
    beyond: 0x7,
    nan: 0,
    sign: 0x8,
};
const E2M3: Narrow = Narrow {
    nearest: encode_magnitude::<3, 1>,
    value: e2m3_decode,
    largest: 0x1F,
    beyond: 0x1F,
    nan: 0,
    sign: 0x20,
};
const E3M2: Narrow = Narrow { nearest: encode_magnitude::<2, 3>, value: e3m2_decode, ..E2M3 };
const E4M3: Narrow = Narrow {
    nearest: encode_magnitude::<3, 7>,
    value: e4m3_decode,
    largest: 0x7E,
    beyond: 0x7F,
    nan: 0x7F,
    sign: 0x80,
};
const E5M2: Narrow = Narrow {
    nearest: encode_magnitude::<2, 15>,
    value: |code| super::E5M2[usize::from(code)],
    largest: 0x7B,
    beyond: 0x7C,
    ..E4M3
};

/// The code of `x` in `element` by the conventions `style`, in the low bits; `None` for the types of 16
/// and 32 bits, which these conventions are not about. In a type without NaN, the code of NaN is zero's:
/// the negative one where everything but numbers above zero is negative, the positive one otherwise.
pub fn encode(element: ElementType, x: f32, style: Elements) -> Option<u8> {
    let code = match element {
        ElementType::E2m1 => float(E2M1, x, style),
        ElementType::E2m3 => float(E2M3, x, style),
        ElementType::E3m2 => float(E3M2, x, style),
        ElementType::E4m3 => float(E4M3, x, style),
        ElementType::E5m2 => float(E5M2, x, style),
        ElementType::Int4 => integer(x, lowest(element, style), largest(element), style.rounding) & 0xF,
        ElementType::Int8 => integer(x, lowest(element, style), largest(element), style.rounding),
        ElementType::Uint4 => integer(x, 0.0, largest(element), style.rounding),
        ElementType::Bf16 | ElementType::F16 | ElementType::F32 => return None,
    };
    Some(code as u8)
}

/// The value of the code of `element` in the low bits of `code`; `None` for the types of 16 and 32 bits.
pub fn decode(element: ElementType, code: u8) -> Option<f32> {
    match element {
        ElementType::E2m1 => Some(e2m1_decode(code)),
        ElementType::E2m3 => Some(e2m3_decode(code)),
        ElementType::E3m2 => Some(e3m2_decode(code)),
        ElementType::E4m3 => Some(e4m3_decode(code)),
        ElementType::E5m2 => Some(super::E5M2[usize::from(code)]),
        // A nibble shifted to the top of a signed byte and back keeps its sign.
        ElementType::Int4 => Some(f32::from((code << 4) as i8 >> 4)),
        ElementType::Uint4 => Some(f32::from(code & 0xF)),
        ElementType::Int8 => Some(f32::from(code as i8)),
        ElementType::Bf16 | ElementType::F16 | ElementType::F32 => None,
    }
}

fn float(narrow: Narrow, x: f32, style: Elements) -> u32 {
    let magnitude = x.to_bits() & !SIGN;
    if magnitude > INFINITY {
        return match style.zero {
            _ if narrow.nan != 0 && x.is_sign_negative() => narrow.nan | narrow.sign,
            ZeroSign::UnlessPositive if narrow.nan == 0 => narrow.sign,
            _ => narrow.nan,
        };
    }
    let nearest = (narrow.nearest)(magnitude.min(HUGE));
    let code = if nearest > narrow.largest {
        match style.overflow {
            Overflow::Saturates => narrow.largest,
            Overflow::Exceptional => narrow.beyond,
        }
    } else {
        rounded(narrow, nearest, x.abs(), style.rounding)
    };
    let is_negative = match style.zero {
        _ if code != 0 => x.is_sign_negative(),
        ZeroSign::Kept => x.is_sign_negative(),
        ZeroSign::OfNegative => x < 0.0,
        ZeroSign::Dropped => false,
        ZeroSign::UnlessPositive => x <= 0.0,
    };
    if is_negative { code | narrow.sign } else { code }
}

/// From the code nearest to `magnitude`, ties to even, to that of `rounding`. Sums of two neighbours
/// are exact in f32.
fn rounded(narrow: Narrow, nearest: u32, magnitude: f32, rounding: ElementRounding) -> u32 {
    let value = |code: u32| (narrow.value)(code as u8);
    let is_tie = |below: u32| value(below) + value(below + 1) == 2.0 * magnitude;
    match rounding {
        ElementRounding::NearestAway if nearest < narrow.largest && is_tie(nearest) => nearest + 1,
        ElementRounding::NearestDown if nearest > 0 && is_tie(nearest - 1) => nearest - 1,
        ElementRounding::TowardZero if value(nearest) > magnitude => nearest - 1,
        _ => nearest,
    }
}

fn lowest(element: ElementType, style: Elements) -> f32 {
    match style.smallest {
        SmallestInteger::TwosComplement => -largest(element) - 1.0,
        SmallestInteger::Symmetric => -largest(element),
    }
}

/// `x` as an integer from `lowest` to `highest`, in two's complement; NaN is 0.
fn integer(x: f32, lowest: f32, highest: f32, rounding: ElementRounding) -> u32 {
    let rounded = match rounding {
        ElementRounding::NearestEven => x.round_ties_even(),
        ElementRounding::NearestAway => x.round(),
        ElementRounding::NearestDown => (x.abs() - 0.5).ceil().copysign(x),
        ElementRounding::TowardZero => x.trunc(),
    };
    rounded.clamp(lowest, highest) as i32 as u8 as u32
}

#[cfg(test)]
mod tests {
    use super::super::{e2m1_encode, e2m3_encode, e3m2_encode, e4m3_encode, e5m2_encode};
    use super::*;

    fn code(element: ElementType, x: f32, style: Elements) -> u8 {
        encode(element, x, style).unwrap()
    }

    fn value(element: ElementType, code: u8) -> f32 {
        decode(element, code).unwrap()
    }

    type Case = (ElementType, fn(f32) -> u8, u8);

    /// Each float type, its cast, and the code of its largest number.
    const FLOATS: [Case; 5] = [
        (ElementType::E2m1, e2m1_encode, 0x7),
        (ElementType::E2m3, e2m3_encode, 0x1F),
        (ElementType::E3m2, e3m2_encode, 0x1F),
        (ElementType::E4m3, e4m3_encode, 0x7E),
        (ElementType::E5m2, e5m2_encode, 0x7B),
    ];

    const ROUNDINGS: [ElementRounding; 4] = [
        ElementRounding::NearestEven,
        ElementRounding::NearestAway,
        ElementRounding::NearestDown,
        ElementRounding::TowardZero,
    ];

    /// The middle of every two neighbours, and the next f32 below and above it, under every rule.
    #[test]
    fn between_all_neighbours() {
        for (element, cast, largest) in FLOATS {
            for below in 0..largest {
                let above = below + 1;
                let (low, high) = (value(element, below), value(element, above));
                let middle = f32::midpoint(low, high);
                assert!(low < middle && middle < high, "{element:?} {below}");
                let even = if below % 2 == 0 { below } else { above };
                for (rounding, tie) in ROUNDINGS.into_iter().zip([even, above, below, below]) {
                    let style = Elements { rounding, ..Elements::OURS };
                    let code = |x| code(element, x, style);
                    let up = if rounding == ElementRounding::TowardZero { below } else { above };
                    let around = [low, middle.next_down(), middle, middle.next_up(), high];
                    assert_eq!(
                        around.map(code),
                        [below, below, tie, up, above],
                        "{element:?} {below} {rounding:?}"
                    );
                    let sign = if element == ElementType::E2m1 {
                        0x8
                    } else if cast(-1.0) < 0x40 {
                        0x20
                    } else {
                        0x80
                    };
                    assert_eq!(around.map(|x| code(-x)), around.map(|x| code(x) | sign));
                }
                assert_eq!(cast(middle), even, "{element:?}");
            }
        }
    }

    #[test]
    fn our_style_is_the_cast() {
        for (element, cast, _) in FLOATS {
            // All exponents, a step of 2^11 ulp and its neighbours.
            for bits in (0..=u32::MAX).step_by(1 << 11).flat_map(|bits| [bits, bits | 1, bits | 0x7FF]) {
                let x = f32::from_bits(bits);
                assert_eq!(encode(element, x, Elements::OURS), Some(cast(x)), "{element:?} {x:e}");
            }
        }
    }

    #[test]
    fn beyond_the_largest() {
        let exceptional = |element, x| code(element, x, Elements::OVERFLOWING);
        // Half a step above 448 is a tie, to the even code, which is 448; above 57344, infinity.
        assert_eq!(
            [464.0, 464.1, f32::INFINITY].map(|x| exceptional(ElementType::E4m3, x)),
            [0x7E, 0x7F, 0x7F]
        );
        assert_eq!([-61439.0, -61440.0].map(|x| exceptional(ElementType::E5m2, x)), [0xFB, 0xFC]);
        assert_eq!([1e9, -1e9].map(|x| exceptional(ElementType::E2m1, x)), [0x7, 0xF]);
    }

    #[test]
    fn signs_of_zero() {
        use ZeroSign::{Dropped, Kept, OfNegative, UnlessPositive};
        let numbers = [0.0, -0.0, 0.1, -0.1, -1.0];
        for (zero, codes) in [
            (Kept, [0, 0x8, 0, 0x8, 0xA]),
            (OfNegative, [0, 0, 0, 0x8, 0xA]),
            (Dropped, [0, 0, 0, 0, 0xA]),
            (UnlessPositive, [0x8, 0x8, 0, 0x8, 0xA]),
        ] {
            let style = Elements { zero, ..Elements::OURS };
            assert_eq!(numbers.map(|x| code(ElementType::E2m1, x, style)), codes, "{zero:?}");
        }
    }

    #[test]
    fn integers() {
        let numbers = [0.5, 1.5, -1.5, 2.4, -2.6, 127.6, -200.0, f32::NAN];
        let of = |rounding, smallest| {
            let style = Elements { rounding, smallest, ..Elements::OURS };
            numbers.map(|x| code(ElementType::Int8, x, style) as i8)
        };
        use ElementRounding::{NearestAway, NearestDown, NearestEven, TowardZero};
        use SmallestInteger::{Symmetric, TwosComplement};
        assert_eq!(of(NearestEven, TwosComplement), [0, 2, -2, 2, -3, 127, -128, 0]);
        assert_eq!(of(NearestAway, Symmetric), [1, 2, -2, 2, -3, 127, -127, 0]);
        assert_eq!(of(NearestDown, Symmetric), [0, 1, -1, 2, -3, 127, -127, 0]);
        assert_eq!(of(TowardZero, Symmetric), [0, 1, -1, 2, -2, 127, -127, 0]);
        for nibble in 0..16u8 {
            for element in [ElementType::Int4, ElementType::Uint4] {
                assert_eq!(code(element, value(element, nibble), Elements::OURS), nibble);
            }
        }
    }

    #[test]
    fn wide_types_have_no_code_of_a_byte() {
        for element in [ElementType::Bf16, ElementType::F16, ElementType::F32] {
            assert_eq!((encode(element, 1.0, Elements::OURS), decode(element, 1)), (None, None));
        }
    }
}
