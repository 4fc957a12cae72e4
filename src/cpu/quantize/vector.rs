//! Loops over elements, compiled for the vector units that a processor may have.
//!
//! One body is compiled several times; which is called is decided once, at run time. Bodies ask the
//! vector unit for the casts that compilers leave too slow. All units give the same bytes.

use crate::element::{e2m1_encode, e4m3_encode};

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::loops::{each, nibbles};
use super::steps::{GROUP_OF_4_BITS, GROUP_OF_8_BITS, Steps};

/// The instructions that loops over elements use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VectorUnit(Instructions);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl VectorUnit {
    /// What every processor of the target has.
    #[cfg(test)]
    pub(super) const PORTABLE: Self = Self(Instructions::Portable);

    /// The best that this processor has.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            return Self(Instructions::Avx2);
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Self(Instructions::Neon);
        }
        Self(Instructions::Portable)
    }

    /// Its instructions; only [`detect`](Self::detect) makes others than the portable ones, so the
    /// processor has them.
    pub(super) fn instructions(self) -> Instructions {
        self.0
    }

    /// Elements of FP8 e4m3.
    #[inline(always)]
    pub(super) fn e4m3(
        self,
        steps: Steps<'_>,
        groups: &[[f32; GROUP_OF_8_BITS]],
        coded: &mut [[u8; GROUP_OF_8_BITS]],
    ) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a unit with these instructions exists only where the processor has AVX2.
            Instructions::Avx2 => unsafe { avx2::e4m3(steps, groups, coded) },
            _ => steps.encode(groups, coded, |step, values| each(&step.scaled(values), e4m3_encode)),
        }
    }

    /// Elements of FP4 e2m1, two to a byte.
    #[inline(always)]
    pub(super) fn e2m1(
        self,
        steps: Steps<'_>,
        groups: &[[f32; GROUP_OF_4_BITS]],
        coded: &mut [[u8; GROUP_OF_4_BITS / 2]],
    ) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a unit with these instructions exists only where the processor has AVX2.
            Instructions::Avx2 => unsafe { avx2::e2m1(steps, groups, coded) },
            _ => steps.encode(groups, coded, |step, values| nibbles(&step.scaled(values), e2m1_encode)),
        }
    }

    /// Says that `values` are read soon. Rows are read in short bursts, which processors do not foresee.
    #[inline(always)]
    pub(super) fn prefetch<T>(self, values: &[T]) {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Instructions::Avx2 {
            avx2::prefetch(values);
        }
    }
}

/// Defines a function that is compiled for each vector unit and takes the unit as its first argument.
/// What its body calls has to be inlined to be compiled with it.
macro_rules! for_vector_units {
    ($(#[$attribute:meta])* fn $name:ident $(<$type:ident: $bound:ident>)? (
        $unit:ident, $($argument:ident: $of:ty),* $(,)?
    ) $body:block) => {
        $(#[$attribute])*
        fn $name $(<$type: $bound>)?($unit: VectorUnit, $($argument: $of),*) {
            #[inline(always)]
            fn portable $(<$type: $bound>)?($unit: VectorUnit, $($argument: $of),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2 $(<$type: $bound>)?($unit: VectorUnit, $($argument: $of),*) {
                portable($unit, $($argument),*)
            }

            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            fn neon $(<$type: $bound>)?($unit: VectorUnit, $($argument: $of),*) {
                portable($unit, $($argument),*)
            }

            match $unit.instructions() {
                Instructions::Portable => portable($unit, $($argument),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a unit with these instructions exists only where the processor has AVX2.
                Instructions::Avx2 => unsafe { avx2($unit, $($argument),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: a unit with these instructions exists only where the processor has NEON.
                Instructions::Neon => unsafe { neon($unit, $($argument),*) },
            }
        }
    };
}

pub(super) use for_vector_units;
