//! Loops over the elements of a block, a fixed number of them at a time: so they become vector code
//! without a loop for what is left, which a block of 16 or 32 elements would spend most of its time in.

const LANES: usize = 16;

/// The bits of the largest magnitude; those of a NaN if there is one.
#[inline(always)]
pub(super) fn magnitude_bits(values: &[f32]) -> u32 {
    let (groups, rest) = values.as_chunks::<LANES>();
    // Magnitudes compare as integers, and NaN is the largest of them.
    let mut lanes = [0; LANES];
    for group in groups {
        for (lane, value) in lanes.iter_mut().zip(group) {
            *lane = (*lane).max(value.to_bits() & i32::MAX as u32);
        }
    }
    let largest = lanes.into_iter().fold(0, u32::max);
    rest.iter().fold(largest, |largest, value| largest.max(value.abs().to_bits()))
}

/// What `work` makes of each value: numbers, or codes of one byte.
#[inline(always)]
pub(super) fn each<R: Copy + Default, const N: usize>(values: &[f32; N], work: impl Fn(f32) -> R) -> [R; N] {
    let mut results = [R::default(); N];
    for (value, result) in values.iter().zip(&mut results) {
        *result = work(*value);
    }
    results
}

/// Two codes a byte, the even element in the low nibble. Codes have four bits, and nothing above.
#[inline(always)]
pub(super) fn nibbles(values: &[f32; 16], encode: impl Fn(f32) -> u8) -> [u8; 8] {
    packed(u128::from_le_bytes(each(values, encode))).to_le_bytes()
}

/// The low nibbles of 16 bytes, side by side.
#[inline(always)]
fn packed(codes: u128) -> u64 {
    let half = |codes: u64| {
        let pairs = (codes | codes >> 4) & 0x00FF_00FF_00FF_00FF;
        let fours = (pairs | pairs >> 8) & 0x0000_FFFF_0000_FFFF;
        (fours | fours >> 16) & 0xFFFF_FFFF
    };
    half(codes as u64) | half((codes >> 64) as u64) << 32
}
