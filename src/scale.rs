//! Scales that are chosen before the numbers are seen: second-level (global) scales and static ones,
//! in the two conventions that checkpoints and engines store them in.
//!
//! ModelOpt stores the factor that dequantising multiplies by (`weight_scale_2`, `input_scale`);
//! compressed-tensors and vLLM's `a1_gscale` hold its reciprocal, the factor that quantising
//! multiplies by. Both are a small positive f32, so mixing them up is silent; here they are two types.

/// A number that is no scale: zero, negative, not finite, or so small or large that its reciprocal
/// is not a normal f32.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0:e} is no scale: a scale is positive, and both it and its reciprocal are normal f32 numbers")]
pub struct NotAScale(pub f32);

/// Experts without a usable scale.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "no usable {what} for {}: a scale is positive, and both it and its reciprocal are normal f32 numbers",
    listed(experts)
)]
pub struct BadScales {
    /// What the scales are of.
    pub what: &'static str,
    /// The experts, ascending, each with what it has; `None` where a scale is missing.
    pub experts: Vec<(usize, Option<f32>)>,
}

fn listed(experts: &[(usize, Option<f32>)]) -> String {
    let one = |(expert, value): &(usize, Option<f32>)| match value {
        Some(value) => format!("expert {expert} ({value:e})"),
        None => format!("expert {expert} (missing)"),
    };
    experts.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `value` and its reciprocal.
fn sound(value: f32) -> Result<(f32, f32), NotAScale> {
    let reciprocal = 1.0 / value;
    let is_scale = value > 0.0 && value.is_normal() && reciprocal.is_normal();
    if is_scale { Ok((value, reciprocal)) } else { Err(NotAScale(value)) }
}

/// A scale in one convention, and its reciprocal, so that there and back it is the same number, which
/// the reciprocal of a reciprocal need not be. Two scales are equal if their values are.
macro_rules! convention {
    ($(#[$doc:meta])* $name:ident, $to_other:ident: $other:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            value: f32,
            reciprocal: f32,
        }

        impl $name {
            /// `value` as a scale in this convention.
            ///
            /// # Errors
            /// [`NotAScale`] if it is none.
            pub fn new(value: f32) -> Result<Self, NotAScale> {
                sound(value).map(|(value, reciprocal)| Self { value, reciprocal })
            }

            /// One for each expert, from what a checkpoint holds.
            ///
            /// # Errors
            /// [`BadScales`] naming every expert whose scale is missing or none.
            pub fn of_experts(what: &'static str, values: &[Option<f32>]) -> Result<Vec<Self>, BadScales> {
                of_experts(what, values, Self::new)
            }

            /// The factor.
            pub fn get(self) -> f32 {
                self.value
            }

            /// The same scale in the other convention.
            pub fn $to_other(self) -> $other {
                $other { value: self.reciprocal, reciprocal: self.value }
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.value == other.value
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.value.partial_cmp(&other.value)
            }
        }
    };
}

convention! {
    /// What dequantising multiplies by: ModelOpt's convention.
    Multiplier, to_divisor: Divisor
}

convention! {
    /// What dequantising divides by: compressed-tensors' convention, and FlashInfer's `global_scale`.
    Divisor, to_multiplier: Multiplier
}

fn of_experts<S>(
    what: &'static str,
    values: &[Option<f32>],
    scale: impl Fn(f32) -> Result<S, NotAScale>,
) -> Result<Vec<S>, BadScales> {
    let scales: Vec<Option<S>> =
        values.iter().map(|value| value.and_then(|value| scale(value).ok())).collect();
    let bad = |(expert, (value, scale)): (usize, (&Option<f32>, &Option<S>))| {
        scale.is_none().then_some((expert, *value))
    };
    let experts: Vec<_> = values.iter().zip(&scales).enumerate().filter_map(bad).collect();
    if experts.is_empty() {
        Ok(scales.into_iter().flatten().collect())
    } else {
        Err(BadScales { what, experts })
    }
}

/// The largest magnitude of `values`: NaN if there is one, 0 if there are none.
pub(crate) fn magnitude(values: impl Iterator<Item = f32>) -> f32 {
    // Magnitudes compare as integers, and NaN is the largest of them.
    f32::from_bits(values.map(|value| value.abs().to_bits()).max().unwrap_or(0))
}

/// The largest of the experts' scales, which they then share; `None` if there are none.
pub fn max_over_experts(scales: &[Multiplier]) -> Option<Multiplier> {
    scales.iter().copied().reduce(|a, b| if b > a { b } else { a })
}

/// A scale that a quantiser is given instead of choosing it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Calibrated {
    /// The second-level scale of a format that has one (NVFP4).
    Global(Divisor),
    /// The one scale of a tensor, chosen when the model was calibrated (static fp8 and int8).
    Static(Multiplier),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_scale_is_refused() {
        // The reciprocal of 1e-39 overflows, that of 3e38 is subnormal.
        for value in [0.0, -1.0, 1e-39, 3e38, f32::NAN, f32::INFINITY] {
            assert!(Multiplier::new(value).is_err() && Divisor::new(value).is_err(), "{value}");
        }
        assert_eq!(Multiplier::new(4.0).unwrap().to_divisor(), Divisor::new(0.25).unwrap());
        let value = 5.0 / 2688.0;
        assert_ne!(1.0f32 / (1.0 / value), value);
        assert_eq!(Multiplier::new(value).unwrap().to_divisor().to_multiplier().get(), value);
        // Whichever convention a checkpoint has, equal values are equal.
        let divisor = Divisor::new(3696.3).unwrap();
        assert_eq!(Multiplier::new(divisor.to_multiplier().get()).unwrap(), divisor.to_multiplier());
    }

    #[test]
    fn experts_without_a_scale_are_named() {
        let error =
            Multiplier::of_experts("input scale", &[Some(1.0), Some(0.0), Some(1e-39), None]).unwrap_err();
        let named: Vec<_> = error.experts.iter().map(|(expert, _)| *expert).collect();
        assert_eq!(named, [1, 2, 3]);
        assert!(error.to_string().contains("expert 3 (missing)"), "{error}");
    }
}
