//! The casts that most elements go through, in AVX2. Each does what the cast of one number in
//! [`element`](crate::element) does, and in the same way.
//!
//! Compilers make vector code of that cast too. What they do not find is that exponent and steps of a
//! number are the two halves of a lane, so that one instruction joins them, and that bytes can be
//! narrowed four vectors at a time.

use std::arch::x86_64::*;

use crate::element::{e2m1_encode, e4m3_encode};

use super::loops::{each, nibbles};
use super::steps::{Operation, Step, Steps};

const MANTISSA_BITS: i32 = 23;
const INFINITY: i32 = 0x7F80_0000;

/// Elements of FP8 e4m3.
#[target_feature(enable = "avx2")]
pub(super) fn e4m3(steps: Steps<'_>, groups: &[[f32; 32]], coded: &mut [[u8; 32]]) {
    steps.encode(groups, coded, |step, values| group_of_e4m3(step, values));
}

/// Elements of FP4 e2m1, two to a byte.
#[target_feature(enable = "avx2")]
pub(super) fn e2m1(steps: Steps<'_>, groups: &[[f32; 16]], coded: &mut [[u8; 8]]) {
    steps.encode(groups, coded, |step, values| group_of_e2m1(step, values));
}

#[inline]
#[target_feature(enable = "avx2")]
fn group_of_e4m3(step: Step, values: &[f32; 32]) -> [u8; 32] {
    let numbers = [load(values, 0), load(values, 1), load(values, 2), load(values, 3)];
    let by = _mm256_set1_ps(step.by);
    let [a, b, c, d] = match step.operation {
        Operation::Multiply => numbers.map(|values| _mm256_mul_ps(values, by)),
        Operation::Divide => numbers.map(|values| _mm256_div_ps(values, by)),
        Operation::Shift => return one_by_one_e4m3(step, values),
    };
    if has_nan(a, b) | has_nan(c, d) {
        return one_by_one_e4m3(step, values);
    }
    let codes = _mm256_packus_epi16(codes::<3, 7>(a, b, 448.0), codes::<3, 7>(c, d, 448.0));
    let signs = _mm256_packs_epi16(signs(a, b), signs(c, d));
    let signed = _mm256_or_si256(codes, _mm256_and_si256(signs, _mm256_set1_epi8(i8::MIN)));
    // Narrowing works on each half of a vector by itself.
    let ordered = _mm256_permutevar8x32_epi32(signed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    let mut bytes = [0; 32];
    // SAFETY: 32 bytes are written, which there are; they need no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), ordered) };
    bytes
}

#[inline]
#[target_feature(enable = "avx2")]
fn group_of_e2m1(step: Step, values: &[f32; 16]) -> [u8; 8] {
    let numbers = [load(values, 0), load(values, 1)];
    let by = _mm256_set1_ps(step.by);
    let [a, b] = match step.operation {
        Operation::Multiply => numbers.map(|values| _mm256_mul_ps(values, by)),
        Operation::Divide => numbers.map(|values| _mm256_div_ps(values, by)),
        Operation::Shift => return one_by_one_e2m1(step, values),
    };
    if has_nan(a, b) {
        return one_by_one_e2m1(step, values);
    }
    let signs = _mm256_and_si256(_mm256_srli_epi16::<12>(signs(a, b)), _mm256_set1_epi16(8));
    let signed = _mm256_or_si256(codes::<1, 1>(a, b, 6.0), signs);
    // Narrowing works on each half of a vector by itself.
    let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(signed);
    let pairs = _mm256_madd_epi16(ordered, _mm256_set1_epi32(0x0010_0001));
    let words = _mm_packus_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
    _mm_cvtsi128_si64(_mm_packus_epi16(words, words)).to_le_bytes()
}

/// A group with a NaN, or with a zero point.
#[cold]
fn one_by_one_e4m3(step: Step, values: &[f32; 32]) -> [u8; 32] {
    each(&step.scaled(values), e4m3_encode)
}

/// A group with a NaN, or with a zero point.
#[cold]
fn one_by_one_e2m1(step: Step, values: &[f32; 16]) -> [u8; 8] {
    nibbles(&step.scaled(values), e2m1_encode)
}

/// Has the processor fetch `values` from memory while it computes something else.
#[inline(always)]
pub(super) fn prefetch<T>(values: &[T]) {
    const LINE: usize = 64;
    for line in values.chunks(LINE / size_of::<T>()) {
        // SAFETY: every processor of the target has the instruction, which changes no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
}

/// Numbers `8 * index` and on.
#[inline]
#[target_feature(enable = "avx2")]
fn load<const N: usize>(values: &[f32; N], index: usize) -> __m256 {
    let values = &values[8 * index..][..8];
    // SAFETY: 32 bytes are read, which there are; they need no alignment.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn has_nan(a: __m256, b: __m256) -> bool {
    _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, b)) != 0
}

/// 16-bit lanes whose top bits are the numbers' signs.
#[inline]
#[target_feature(enable = "avx2")]
fn signs(a: __m256, b: __m256) -> __m256i {
    // What is too large saturates, and keeps its sign.
    _mm256_packs_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b))
}

/// The codes of the numbers' magnitudes, 16 bits each, in a float of `M` mantissa bits and exponent bias
/// `BIAS` whose largest number is `largest`.
#[inline]
#[target_feature(enable = "avx2")]
fn codes<const M: i32, const BIAS: i32>(a: __m256, b: __m256, largest: f32) -> __m256i {
    let dropped = MANTISSA_BITS - M;
    let smallest_normal = 128 - BIAS;
    // A lane's upper half is an exponent, whose last bit is bit 7 there.
    let steps = _mm256_set1_epi32(0x0001_0000 | 1 << (7 - M));
    let a = _mm256_madd_epi16(rounded(a, largest, dropped, smallest_normal), steps);
    let b = _mm256_madd_epi16(rounded(b, largest, dropped, smallest_normal), steps);
    let zero = _mm256_set1_epi16(((smallest_normal + dropped) << 7) as i16);
    let codes = _mm256_sub_epi16(_mm256_packus_epi32(a, b), zero);
    _mm256_srl_epi16(codes, _mm_cvtsi32_si128(7 - M))
}

/// The magnitudes, as steps of the target type in the low bits of each lane. The exponent above them is
/// the magnitude's, or that of the smallest normal number if it is greater, plus `dropped`.
#[inline]
#[target_feature(enable = "avx2")]
fn rounded(values: __m256, largest: f32, dropped: i32, smallest_normal: i32) -> __m256i {
    let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), values);
    let magnitude = _mm256_min_ps(magnitude, _mm256_set1_ps(largest));
    let exponent = _mm256_and_si256(_mm256_castps_si256(magnitude), _mm256_set1_epi32(INFINITY));
    let exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32(smallest_normal << MANTISSA_BITS));
    let base = _mm256_add_epi32(exponent, _mm256_set1_epi32(dropped << MANTISSA_BITS));
    // The addition rounds: the last bit of a number of this size is worth one step.
    _mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_castsi256_ps(base)))
}
