//! The step after a payload's digits: bits of a 32-bit word of elements put where a kernel unpacks
//! them with the fewest instructions.

use crate::layout::PayloadWord;

/// Puts the bits of each word of `bytes`, little-endian, where `word` says.
pub(crate) fn apply(word: PayloadWord, bytes: &mut [u8]) {
    let PayloadWord::Fp4HopperTwiddle = word;
    for bytes in bytes.as_chunks_mut().0 {
        *bytes = map(u32::from_le_bytes(*bytes), |from, to, word| (word >> from & 1) << to).to_le_bytes();
    }
}

/// The inverse of [`apply`].
pub(crate) fn undo(word: PayloadWord, bytes: &mut [u8]) {
    let PayloadWord::Fp4HopperTwiddle = word;
    for bytes in bytes.as_chunks_mut().0 {
        *bytes = map(u32::from_le_bytes(*bytes), |from, to, word| (word >> to & 1) << from).to_le_bytes();
    }
}

/// Where the four bits of the low nibble of byte `i` go in the low half-word, lowest bit first; high
/// nibbles go to the high half-word alike. Each of the first three elements keeps sign and magnitude
/// as far apart as they are in a bfloat16 (sign 15, exponent and mantissa 8 to 6), so that one mask
/// and one multiplication unpack it; the fourth takes the bits that are left.
/// triton_kernels, `hopper_value.py`; FlashInfer's mixed-input GEMM for sm_90 has the same.
const TARGETS: [[u32; 4]; 4] = [[6, 7, 8, 15], [3, 4, 5, 12], [0, 1, 2, 9], [13, 10, 11, 14]];

fn map(word: u32, bit: impl Fn(u32, u32, u32) -> u32) -> u32 {
    let mut mapped = 0;
    for (byte, targets) in (0u32..).zip(TARGETS) {
        for (index, target) in (0u32..).zip(targets) {
            for half in 0..2 {
                mapped |= bit(8 * byte + 4 * half + index, 16 * half + target, word);
            }
        }
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWIDDLE: PayloadWord = PayloadWord::Fp4HopperTwiddle;

    fn applied(word: u32) -> u32 {
        let mut bytes = word.to_le_bytes();
        apply(TWIDDLE, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn every_bit_has_a_place_of_its_own() {
        let places: u32 = (0..32).map(|bit| applied(1 << bit)).fold(0, |all, one| {
            assert_eq!(one.count_ones(), 1);
            all | one
        });
        assert_eq!(places, u32::MAX);
        for word in [0x1234_5678u32, 0xDEAD_BEEF, 0x8000_0001] {
            let mut bytes = word.to_le_bytes();
            apply(TWIDDLE, &mut bytes);
            undo(TWIDDLE, &mut bytes);
            assert_eq!(u32::from_le_bytes(bytes), word);
        }
    }

    #[test]
    fn signs_and_magnitudes() {
        // The low nibbles of bytes 0 to 2: sign at 15, 12, 9, magnitude from 6, 3, 0.
        assert_eq!(applied(0x0000_0008), 1 << 15);
        assert_eq!(applied(0x0000_0007), 0b111 << 6);
        assert_eq!(applied(0x0000_0800), 1 << 12);
        assert_eq!(applied(0x0000_0700), 0b111 << 3);
        assert_eq!(applied(0x0008_0000), 1 << 9);
        assert_eq!(applied(0x0007_0000), 0b111);
        // That of byte 3: sign 14, the two upper magnitude bits 11 and 10, the last one 13.
        assert_eq!(applied(0x0800_0000), 1 << 14);
        assert_eq!(applied(0x0600_0000), 0b11 << 10);
        assert_eq!(applied(0x0100_0000), 1 << 13);
        // A high nibble goes to the high half-word.
        assert_eq!(applied(0x0000_0080), 1 << 31);
    }
}
