//! Power-of-two scales: bytes, values, and the rules that choose them.

use crate::format::{ElementType, Rounding};

use super::{MANTISSA, MANTISSA_BITS, SIGN, range};

/// The value of an e8m0 scale: `2^(byte - 127)`, exactly, down to 2^-127; 0xFF is NaN.
#[inline(always)]
pub fn e8m0_decode(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(1 << (MANTISSA_BITS - 1)),
        0xFF => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << MANTISSA_BITS),
    }
}

/// The e8m0 scale byte of a block whose largest magnitude is `amax`, under `rule`. Zero and what is
/// too small give 0, infinity 254, NaN 255; the sign of `amax` is ignored.
///
/// The rules by bits are those of FlashInfer (`rceil`), the OCP specification (`floor`), vLLM's
/// MXFP4 activations (`even`) and torchao (`ceil`).
#[inline(always)]
pub fn e8m0_scale(amax: f32, element: ElementType, rule: Rounding) -> u8 {
    let amax = amax.abs();
    let range = range(element);
    let byte = match rule {
        Rounding::Rceil => round_up(amax * (1.0 / range.largest)),
        Rounding::Floor => (amax.to_bits() >> MANTISSA_BITS).saturating_sub(range.exponent),
        Rounding::Even => {
            (rounded_to(range.mantissa_bits, amax) >> MANTISSA_BITS).saturating_sub(range.exponent)
        }
        Rounding::Ceil => round_up(amax).saturating_sub(range.exponent),
    };
    // Chosen last, so that a loop over blocks has no branch.
    let byte = if amax.is_infinite() { 254 } else { byte.min(254) };
    (if amax.is_nan() { 255 } else { byte }) as u8
}

/// The bits of `x`, which is not negative, rounded to `mantissa_bits` with ties away from zero; those
/// below are noise. Beyond the largest f32 this is infinity.
#[inline(always)]
pub(crate) fn rounded_to(mantissa_bits: u32, x: f32) -> u32 {
    x.to_bits() + (1 << (MANTISSA_BITS - 1) >> mantissa_bits)
}

/// The e8m0 byte nearest to the magnitude of `x`, exact halves up, as torch casts: what lies above
/// 2^-127 is at least 2^-126; zero is 0; infinity, NaN and what rounds to 2^128 are 255.
pub fn e8m0_encode(x: f32) -> u8 {
    let magnitude = x.to_bits() & !SIGN;
    let exponent = magnitude >> MANTISSA_BITS;
    let half = 1 << (MANTISSA_BITS - 1);
    let is_up = if exponent == 0 { magnitude > half } else { magnitude & MANTISSA >= half };
    (exponent + u32::from(is_up)).min(255) as u8
}

/// The biased exponent of the smallest power of two that is at least `x`, which is not negative; 0
/// stands for 2^-127.
#[inline(always)]
pub(crate) fn round_up(x: f32) -> u32 {
    let exponent = x.to_bits() >> MANTISSA_BITS;
    let mantissa = x.to_bits() & MANTISSA;
    // A subnormal with the top mantissa bit alone is 2^-127 exactly.
    let above = if exponent == 0 { mantissa > 1 << (MANTISSA_BITS - 1) } else { mantissa != 0 };
    exponent + u32::from(above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Rounding::{Ceil, Even, Floor, Rceil};

    #[test]
    fn scale_rules_at_their_boundaries() {
        let e4m3 = [
            (448.0, [127, 127, 127, 128]),
            (450.0, [127, 127, 128, 128]),
            (480.0, [127, 127, 128, 128]),
            (496.0, [127, 128, 128, 128]),
            (512.0, [128, 128, 128, 128]),
        ];
        let e2m1 = [
            (6.0, [127, 127, 127, 128]),
            (6.5, [127, 127, 128, 128]),
            (7.0, [127, 128, 128, 128]),
            (7.5, [127, 128, 128, 128]),
            (8.0, [128, 128, 128, 128]),
        ];
        for (element, cases) in [(ElementType::E4m3, e4m3), (ElementType::E2m1, e2m1)] {
            for (amax, expected) in cases {
                let bytes = [Floor, Even, Rceil, Ceil].map(|rule| e8m0_scale(amax, element, rule));
                assert_eq!(bytes, expected, "{amax} in {element:?}");
            }
        }
    }

    #[test]
    fn scale_rules_at_the_ends() {
        for rule in [Floor, Even, Rceil, Ceil] {
            let byte = |amax| e8m0_scale(amax, ElementType::E4m3, rule);
            assert_eq!([0.0, 1e-45, 2e-38, f32::INFINITY, f32::NAN].map(byte), [0, 0, 0, 254, 255]);
        }
        // 448 * 2^-127 divides to 2^-127, which byte 0 is; what lies above it needs byte 1.
        let edge = 448.0 * e8m0_decode(0);
        assert_eq!(e8m0_scale(edge, ElementType::E4m3, Rceil), 0);
        assert_eq!(e8m0_scale(edge * 1.5, ElementType::E4m3, Rceil), 1);
    }

    #[test]
    fn e8m0_keeps_its_ends() {
        assert_eq!(
            [1, 120, 127, 130, 254].map(e8m0_decode),
            [2f32.powi(-126), 2f32.powi(-7), 1.0, 8.0, 2f32.powi(127)]
        );
        assert_eq!(f64::from(e8m0_decode(0)), 2f64.powi(-127));
        assert!(e8m0_decode(255).is_nan());
    }

    #[test]
    fn every_e8m0_byte_is_nearest_to_what_surrounds_it() {
        for byte in 1..=254u8 {
            let value = e8m0_decode(byte);
            let below = f32::from_bits((value * 0.75).to_bits() - u32::from(byte > 1));
            assert_eq!([value, -value, value * 1.25].map(e8m0_encode), [byte; 3]);
            assert_eq!(e8m0_encode(value * 1.5), byte + 1);
            assert_eq!(e8m0_encode(below), if byte == 1 { 1 } else { byte - 1 }, "below {value:e}");
        }
        let smallest = e8m0_decode(0);
        assert_eq!(
            [0.0, smallest, smallest * 1.25, f32::INFINITY, f32::NAN].map(e8m0_encode),
            [0, 0, 1, 255, 255]
        );
    }
}
