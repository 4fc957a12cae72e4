//! Scalar codecs: FP8 e4m3 and e5m2, FP6, FP4 e2m1, the power-of-two scale e8m0, and the rules that
//! choose such a scale. Bit exact; the same bits come out of the generated device code.
//!
//! bf16 and f16 are the crate half's. The crates float8 0.7 and float4 0.2 are what tests compare
//! with: their casts give the codes below for every bf16 number, infinities and ties included. They
//! differ in NaN alone. float8's e5m2 keeps the top of its mantissa (0x7E or 0x7F; here always 0x7F),
//! and float4 makes it 6, here it is 0. They are not used because they have neither the scale rules
//! nor FP6, and because the casts here have no branch, so that loops over them become vector code. All
//! that is called for each element is inlined always, so that engines can compile their loops for the
//! vector unit at hand.

#[cfg(test)]
mod crates;
mod scale;
mod styled;

pub use scale::{e8m0_decode, e8m0_encode, e8m0_scale};
pub(crate) use scale::{round_up, rounded_to};
pub use styled::{decode, encode};

use crate::format::{ElementType, ScaleType};

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7F80_0000;
const MANTISSA_BITS: u32 = 23;
const MANTISSA: u32 = (1 << MANTISSA_BITS) - 1;
const F32_BIAS: u32 = 127;

/// FP8 e4m3 of `x`: to nearest, ties to even, saturating at ±448 (infinities too); NaN keeps its
/// sign and becomes 0x7F or 0xFF. Equal to torch's cast.
#[inline(always)]
pub fn e4m3_encode(x: f32) -> u8 {
    let magnitude = x.to_bits() & !SIGN;
    let sign = x.to_bits() >> 24 & 0x80;
    let finite = encode_magnitude::<3, 7>(magnitude.min(448f32.to_bits()));
    (sign | if x.is_nan() { 0x7F } else { finite }) as u8
}

/// FP4 e2m1 of `x` in the low nibble: to nearest, ties to even, saturating at ±6 (infinities too);
/// a negative value that rounds to zero is 0x8. NaN becomes 0: the format has none, and a block
/// that holds one says so by its scale.
#[inline(always)]
pub fn e2m1_encode(x: f32) -> u8 {
    let magnitude = x.to_bits() & !SIGN;
    let sign = x.to_bits() >> 28 & 0x8;
    let finite = encode_magnitude::<1, 1>(magnitude.min(6f32.to_bits()));
    (if x.is_nan() { 0 } else { sign | finite }) as u8
}

/// FP8 e5m2 of `x`: to nearest, ties to even, saturating at ±57344 (infinities too); NaN keeps its
/// sign and becomes 0x7F or 0xFF.
#[inline(always)]
pub fn e5m2_encode(x: f32) -> u8 {
    let magnitude = x.to_bits() & !SIGN;
    let sign = x.to_bits() >> 24 & 0x80;
    let finite = encode_magnitude::<2, 15>(magnitude.min(57344f32.to_bits()));
    (sign | if x.is_nan() { 0x7F } else { finite }) as u8
}

/// FP6 e2m3 of `x` in the low six bits, as [`e2m1_encode`], saturating at ±7.5.
#[inline(always)]
pub fn e2m3_encode(x: f32) -> u8 {
    fp6_encode::<3, 1>(x, 7.5)
}

/// FP6 e3m2 of `x` in the low six bits, as [`e2m1_encode`], saturating at ±28.
#[inline(always)]
pub fn e3m2_encode(x: f32) -> u8 {
    fp6_encode::<2, 3>(x, 28.0)
}

#[inline(always)]
fn fp6_encode<const M: u32, const BIAS: u32>(x: f32, largest: f32) -> u8 {
    let magnitude = x.to_bits() & !SIGN;
    let sign = x.to_bits() >> 26 & 0x20;
    let finite = encode_magnitude::<M, BIAS>(magnitude.min(largest.to_bits()));
    (if x.is_nan() { 0 } else { sign | finite }) as u8
}

/// The bits of 2^64, which is beyond every narrow type.
const HUGE: u32 = (F32_BIAS + 64) << MANTISSA_BITS;

/// The code of a non-negative, not-NaN f32 in a float of `M` mantissa bits and exponent bias `BIAS`,
/// exponent and mantissa as if the exponent had no end. At most [`HUGE`]. Without a branch, so that a loop
/// over a block becomes vector code.
#[inline(always)]
fn encode_magnitude<const M: u32, const BIAS: u32>(magnitude: u32) -> u32 {
    let dropped = MANTISSA_BITS - M;
    let smallest_normal = (F32_BIAS + 1 - BIAS) << MANTISSA_BITS;
    let exponent = (magnitude & INFINITY).max(smallest_normal);
    // A number so large that the last bit of its sum with the magnitude is worth one step of the target
    // type there: the addition does the rounding, and the sum's low bits count the steps.
    let base = exponent + (dropped << MANTISSA_BITS);
    let steps = (f32::from_bits(magnitude) + f32::from_bits(base)).to_bits() - base;
    // A subnormal has as many steps as its code says; a normal number has its implicit bit among them,
    // which counts one exponent more.
    (exponent >> dropped) - (smallest_normal >> dropped) + steps
}

/// The value of each e4m3 code.
pub const E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = value::<3, 7>(code as u32 & 0x7F, code >= 0x80);
        code += 1;
    }
    table[0x7F] = f32::NAN;
    table[0xFF] = -f32::NAN;
    table
};

/// The values of the two e2m1 codes in each byte, low nibble first.
pub const E2M1_PAIRS: [[f32; 2]; 256] = {
    let mut table = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [
            value::<1, 1>(byte as u32 & 0x7, byte & 0x8 != 0),
            value::<1, 1>(byte as u32 >> 4 & 0x7, byte & 0x80 != 0),
        ];
        byte += 1;
    }
    table
};

const fn value<const M: u32, const BIAS: u32>(magnitude: u32, negative: bool) -> f32 {
    let exponent = magnitude >> M;
    let mantissa = magnitude & ((1 << M) - 1);
    let magnitude = if exponent == 0 {
        let step = f32::from_bits((F32_BIAS + 1 - BIAS - M) << MANTISSA_BITS);
        mantissa as f32 * step
    } else {
        f32::from_bits((exponent + F32_BIAS - BIAS) << MANTISSA_BITS | mantissa << (MANTISSA_BITS - M))
    };
    if negative { -magnitude } else { magnitude }
}

/// The value of each e5m2 code.
pub const E5M2: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let magnitude = code as u32 & 0x7F;
        let value = match magnitude {
            0x7C => f32::INFINITY,
            0x7D..=0x7F => f32::NAN,
            _ => value::<2, 15>(magnitude, false),
        };
        table[code] = if code >= 0x80 { -value } else { value };
        code += 1;
    }
    table
};

/// The value of the e2m3 code in the low six bits of `code`.
#[inline(always)]
pub fn e2m3_decode(code: u8) -> f32 {
    value::<3, 1>(u32::from(code) & 0x1F, code & 0x20 != 0)
}

/// The value of the e3m2 code in the low six bits of `code`.
#[inline(always)]
pub fn e3m2_decode(code: u8) -> f32 {
    value::<2, 3>(u32::from(code) & 0x1F, code & 0x20 != 0)
}

/// The value of an e4m3 code.
#[inline(always)]
pub fn e4m3_decode(code: u8) -> f32 {
    E4M3[usize::from(code)]
}

/// The value of the e2m1 code in the low nibble of `code`.
#[inline(always)]
pub fn e2m1_decode(code: u8) -> f32 {
    E2M1_PAIRS[usize::from(code)][0]
}

/// The value of the scale stored (little-endian) at the start of `bytes`.
#[inline(always)]
pub(crate) fn scale_decode(scale: ScaleType, bytes: &[u8]) -> f32 {
    match scale {
        ScaleType::E8m0 => e8m0_decode(bytes[0]),
        ScaleType::E4m3 => e4m3_decode(bytes[0]),
        ScaleType::Bf16 => half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        ScaleType::F16 => half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        ScaleType::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
    }
}

/// Copies element `from` of `source` to element `to` of `target`.
pub(crate) fn copy_element(element: ElementType, source: &[u8], from: usize, target: &mut [u8], to: usize) {
    if element.bits() < 8 {
        let nibble = source[from / 2] >> (from % 2 * 4) & 0xF;
        let shift = to % 2 * 4;
        target[to / 2] = target[to / 2] & !(0xF << shift) | nibble << shift;
    } else {
        let size = element.bits() / 8;
        target[to * size..][..size].copy_from_slice(&source[from * size..][..size]);
    }
}

/// What the scale rules ask of an element type.
struct Range {
    largest: f32,
    /// The exponent of `largest`.
    exponent: u32,
    mantissa_bits: u32,
}

#[inline(always)]
fn range(element: ElementType) -> Range {
    match element {
        ElementType::E2m1 => Range { largest: 6.0, exponent: 2, mantissa_bits: 1 },
        ElementType::E2m3 => Range { largest: 7.5, exponent: 2, mantissa_bits: 3 },
        ElementType::E3m2 => Range { largest: 28.0, exponent: 4, mantissa_bits: 2 },
        ElementType::E4m3 => Range { largest: 448.0, exponent: 8, mantissa_bits: 3 },
        ElementType::E5m2 => Range { largest: 57344.0, exponent: 15, mantissa_bits: 2 },
        ElementType::Int4 => Range { largest: 7.0, exponent: 2, mantissa_bits: 2 },
        ElementType::Uint4 => Range { largest: 15.0, exponent: 3, mantissa_bits: 3 },
        ElementType::Int8 => Range { largest: 127.0, exponent: 6, mantissa_bits: 6 },
        ElementType::Bf16 => Range { largest: half::bf16::MAX.to_f32(), exponent: 127, mantissa_bits: 7 },
        ElementType::F16 => Range { largest: half::f16::MAX.to_f32(), exponent: 15, mantissa_bits: 10 },
        ElementType::F32 => Range { largest: f32::MAX, exponent: 127, mantissa_bits: 23 },
    }
}

/// The exponent of the largest finite value of `element`.
#[inline(always)]
pub(crate) fn top_exponent(element: ElementType) -> u32 {
    range(element).exponent
}

/// Mantissa bits of `element` that are stored.
#[inline(always)]
pub(crate) fn mantissa_bits(element: ElementType) -> u32 {
    range(element).mantissa_bits
}

/// The largest finite value of `element`.
#[inline(always)]
pub fn largest(element: ElementType) -> f32 {
    range(element).largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_rounds_to_even_and_saturates() {
        let cases: [(f32, u8); 14] = [
            (0.0, 0x00),
            (-0.0, 0x80),
            (1.0, 0x38),
            (-448.0, 0xFE),
            (465.0, 0x7E),
            (f32::INFINITY, 0x7E),
            (f32::NEG_INFINITY, 0xFE),
            (0.015625, 0x08),     // 2^-6, the smallest normal
            (0.001953125, 0x01),  // 2^-9, the smallest subnormal
            (0.0009765625, 0x00), // 2^-10, a tie between 0 and 2^-9
            (0.0029296875, 0x02), // 1.5 * 2^-9, a tie between 1 and 2
            (1.0625, 0x38),       // a tie between 1 and 1.125
            (1.1875, 0x3A),       // a tie between 1.125 and 1.25
            (0.0148, 0x08),       // a subnormal that rounds up to the smallest normal
        ];
        for (x, code) in cases {
            assert_eq!(e4m3_encode(x), code, "{x}");
        }
        assert_eq!(e4m3_encode(f32::NAN) & 0x7F, 0x7F);
    }

    #[test]
    fn every_code_decodes_to_a_value_that_encodes_to_it() {
        for code in 0..=255u8 {
            assert_eq!(e4m3_encode(e4m3_decode(code)), code);
        }
        for code in 0..16u8 {
            assert_eq!(e2m1_encode(e2m1_decode(code)), code);
        }
        assert_eq!((0..8).map(e2m1_decode).collect::<Vec<_>>(), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    }

    #[test]
    fn e2m1_ties_go_to_even() {
        let ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
        assert_eq!(ties.map(|x| e2m1_decode(e2m1_encode(x))), [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]);
        assert_eq!(ties.map(|x| e2m1_encode(-x) & 0x8), [0x8; 7]);
        assert_eq!([1e9, f32::INFINITY, f32::NEG_INFINITY, f32::NAN].map(e2m1_encode), [0x7, 0x7, 0xF, 0x0]);
    }
}
