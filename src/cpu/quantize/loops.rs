//! Loops over the elements of a block, a fixed number of them at a time: so they become vector code
//! without a loop for what is left, which a block of 16 or 32 elements would spend most of its time in.

const STEP: usize = 16;

/// The bits of the largest magnitude; those of a NaN if there is one.
#[inline(always)]
pub(super) fn magnitude_bits(values: &[f32]) -> u32 {
    let (steps, rest) = values.as_chunks::<STEP>();
    // Magnitudes compare as integers, and NaN is the largest of them.
    let mut lanes = [0; STEP];
    for step in steps {
        for (lane, value) in lanes.iter_mut().zip(step) {
            *lane = (*lane).max(value.to_bits() & i32::MAX as u32);
        }
    }
    let largest = lanes.into_iter().fold(0, u32::max);
    rest.iter().fold(largest, |largest, value| largest.max(value.abs().to_bits()))
}

/// One code a byte.
#[inline(always)]
pub(super) fn each(values: &[f32], bytes: &mut [u8], encode: impl Fn(f32) -> u8) {
    let (steps, rest) = values.as_chunks::<STEP>();
    let (byte_steps, byte_rest) = bytes.as_chunks_mut::<STEP>();
    for (values, bytes) in steps.iter().zip(byte_steps) {
        for (value, byte) in values.iter().zip(bytes) {
            *byte = encode(*value);
        }
    }
    for (value, byte) in rest.iter().zip(byte_rest) {
        *byte = encode(*value);
    }
}

/// Two codes a byte, the even element in the low nibble. Codes have four bits, and nothing above.
#[inline(always)]
pub(super) fn nibbles(values: &[f32], bytes: &mut [u8], encode: impl Fn(f32) -> u8) {
    let (steps, rest) = values.as_chunks::<STEP>();
    let (byte_steps, byte_rest) = bytes.as_chunks_mut::<{ STEP / 2 }>();
    for (values, bytes) in steps.iter().zip(byte_steps) {
        let mut codes = [0; STEP];
        for (value, code) in values.iter().zip(&mut codes) {
            *code = encode(*value);
        }
        *bytes = packed(u128::from_le_bytes(codes)).to_le_bytes();
    }
    for (pair, byte) in rest.chunks(2).zip(byte_rest) {
        let high = pair.get(1).map_or(0, |value| encode(*value));
        *byte = encode(pair[0]) | high << 4;
    }
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
