//! What scales do to elements before they are rounded, block by block.

use std::slice;

use super::loops::each;

/// Values that are encoded at once: as many codes as vector units narrow together.
pub(super) const GROUP_OF_4_BITS: usize = 16;
pub(super) const GROUP_OF_8_BITS: usize = 32;

/// What happens to elements before they are rounded, by one number for each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Times the number.
    Multiply,
    /// Divided by the number.
    Divide,
    /// Divided by the number and rounded, then the zero point is added.
    Shift,
}

/// What happens to the elements of a block before they are rounded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) operation: Operation,
    /// NaN if the block holds one: then all its elements become NaN.
    pub(super) by: f32,
    /// Added by [`Operation::Shift`] only.
    pub(super) zero_point: u8,
}

impl Step {
    /// The values before they are rounded to elements.
    #[inline(always)]
    pub(super) fn scaled<const N: usize>(self, values: &[f32; N]) -> [f32; N] {
        let by = self.by;
        if by.is_nan() {
            return [f32::NAN; N];
        }
        match self.operation {
            Operation::Multiply => each(values, |value| value * by),
            Operation::Divide => each(values, |value| value / by),
            Operation::Shift => {
                let shift = f32::from(self.zero_point);
                each(values, |value| round(value / by) + shift)
            }
        }
    }
}

/// What happens to the elements of successive blocks, which are taken in groups of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) operation: Operation,
    /// Of each block.
    pub(super) by: &'a [f32],
    /// Of each block.
    pub(super) zero_points: &'a [u8],
    /// Of each block, so many.
    pub(super) groups: usize,
}

impl<'a> Steps<'a> {
    /// One step for one group.
    pub(super) fn one(step: &'a Step) -> Self {
        let (by, zero_points) = (slice::from_ref(&step.by), slice::from_ref(&step.zero_point));
        Self { operation: step.operation, by, zero_points, groups: 1 }
    }

    /// Encodes group by group.
    #[inline(always)]
    pub(super) fn encode<const VALUES: usize, const BYTES: usize>(
        self,
        groups: &[[f32; VALUES]],
        coded: &mut [[u8; BYTES]],
        codes: impl Fn(Step, &[f32; VALUES]) -> [u8; BYTES],
    ) {
        match self.groups {
            // A loop over blocks that has no loop within.
            1 => self.encode_blocks(1, groups, coded, codes),
            several => self.encode_blocks(several, groups, coded, codes),
        }
    }

    #[inline(always)]
    fn encode_blocks<const VALUES: usize, const BYTES: usize>(
        self,
        size: usize,
        groups: &[[f32; VALUES]],
        coded: &mut [[u8; BYTES]],
        codes: impl Fn(Step, &[f32; VALUES]) -> [u8; BYTES],
    ) {
        let blocks = groups.chunks(size.max(1)).zip(coded.chunks_mut(size.max(1)));
        for ((groups, coded), (by, zero_point)) in blocks.zip(self.by.iter().zip(self.zero_points)) {
            let step = Step { operation: self.operation, by: *by, zero_point: *zero_point };
            for (group, coded) in groups.iter().zip(coded) {
                *coded = codes(step, group);
            }
        }
    }
}

/// Added to a number of magnitude below 2^22, it makes 1 the worth of the sum's last bit: so the number
/// is rounded, ties to even, without a branch or a call, and loops become vector code.
const ONE_IS_LAST: f32 = 12_582_912.0;

#[inline(always)]
fn round(value: f32) -> f32 {
    value.clamp(-4e6, 4e6) + ONE_IS_LAST - ONE_IS_LAST
}

/// The nearest integer from `least` to `greatest` in two's complement; NaN is 0.
#[inline(always)]
pub(super) fn integer(value: f32, least: f32, greatest: f32) -> u8 {
    let rounded = (value.clamp(least, greatest) + ONE_IS_LAST).to_bits() as u8;
    if value.is_nan() { 0 } else { rounded }
}
