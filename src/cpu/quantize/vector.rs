//! Loops over elements, compiled for the vector units that a processor may have.
//!
//! One body is compiled several times; which is called is decided once, at run time. No body has
//! anything of a particular processor in it, so that all give the same bytes.

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
}

/// Defines a function that is compiled for each vector unit and takes the unit as its first argument.
/// What its body calls has to be inlined to be compiled with it.
macro_rules! for_vector_units {
    ($(#[$attribute:meta])* fn $name:ident $(<$type:ident: $bound:ident>)? (
        unit, $($argument:ident: $of:ty),* $(,)?
    ) $body:block) => {
        $(#[$attribute])*
        fn $name $(<$type: $bound>)?(unit: VectorUnit, $($argument: $of),*) {
            #[inline(always)]
            fn portable $(<$type: $bound>)?($($argument: $of),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2 $(<$type: $bound>)?($($argument: $of),*) {
                portable($($argument),*)
            }

            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            fn neon $(<$type: $bound>)?($($argument: $of),*) {
                portable($($argument),*)
            }

            match unit.instructions() {
                Instructions::Portable => portable($($argument),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a unit with these instructions exists only where the processor has AVX2.
                Instructions::Avx2 => unsafe { avx2($($argument),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: a unit with these instructions exists only where the processor has NEON.
                Instructions::Neon => unsafe { neon($($argument),*) },
            }
        }
    };
}

pub(super) use for_vector_units;
