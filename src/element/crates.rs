//! The casts beside those of the crates float8 and float4, on every bf16 number.

use float4::F4E2M1;
use float8::{F8E4M3, F8E5M2};
use half::bf16;

use super::{e2m1_decode, e2m1_encode, e4m3_decode, e4m3_encode, e5m2_encode};

fn all() -> impl Iterator<Item = f32> {
    (0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f32())
}

#[test]
fn e4m3_of_every_bf16() {
    for x in all() {
        assert_eq!(e4m3_encode(x), F8E4M3::from_f32(x).to_bits(), "{x:e}");
    }
}

/// Of NaN, theirs keeps the top of the mantissa, ours does not.
#[test]
fn e5m2_of_every_bf16() {
    for x in all() {
        let theirs = F8E5M2::from_f32(x).to_bits();
        if x.is_nan() {
            assert_eq!((e5m2_encode(x), theirs & 0x7E), (0x7F | theirs & 0x80, 0x7E), "{x:e}");
        } else {
            assert_eq!(e5m2_encode(x), theirs, "{x:e}");
        }
    }
}

/// Theirs makes NaN the largest number, ours zero.
#[test]
fn e2m1_of_every_bf16() {
    for x in all() {
        let theirs = F4E2M1::from_f64(x.into()).to_bits();
        let expected = if x.is_nan() { (0, 0x7) } else { (theirs, theirs) };
        assert_eq!((e2m1_encode(x), theirs), expected, "{x:e}");
    }
}

#[test]
fn every_code_has_their_value() {
    for code in 0..=u8::MAX {
        let (e4m3, e5m2) = (F8E4M3::from_bits(code).to_f32(), F8E5M2::from_bits(code).to_f32());
        assert!(e4m3_decode(code) == e4m3 || (e4m3_decode(code).is_nan() && e4m3.is_nan()), "{code:#x}");
        let own = super::E5M2[usize::from(code)];
        assert!(own == e5m2 || (own.is_nan() && e5m2.is_nan()), "{code:#x}");
        let e2m1 = F4E2M1::from_bits(code & 0xF).to_f64();
        assert_eq!(f64::from(e2m1_decode(code)), e2m1, "{code:#x}");
    }
}
