//! How a producer chooses numbers: everything that a format does not say.

pub mod conventions;
pub mod producers;

use crate::format::Rounding;
use crate::scale::Calibrated;
use conventions::Conventions;

/// What a quantiser decides besides the format: how scales are chosen, and which it is given.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Recipe {
    /// How power-of-two scales are chosen; none for other formats.
    pub rounding: Option<Rounding>,
    /// A scale that is not chosen from the numbers.
    pub calibrated: Option<Calibrated>,
    /// Where producers differ in last bits and at the edges. Ours, unless a checkpoint's bytes have
    /// to be made again.
    pub conventions: Conventions,
}

impl Recipe {
    /// Scales chosen from the numbers, powers of two by `rounding`.
    pub fn dynamic(rounding: Option<Rounding>) -> Self {
        Self { rounding, calibrated: None, conventions: Conventions::OURS }
    }
}
