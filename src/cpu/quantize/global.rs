//! Second-level scales, chosen from the numbers they are for.

use rayon::prelude::*;

use crate::element::largest;
use crate::format::ElementType;
use crate::scale::Divisor;
use crate::tensor::{Real, Tokens};

/// What shares one second-level scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All rows. Of a stack of experts' matrices this is the largest of the experts' magnitudes.
    Tensor,
    /// One row.
    Token,
    /// The rows of one expert: so many of the first, then so many of the second, and so on.
    Expert(&'a [usize]),
}

/// Numbers that no second-level scale follows from.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoGlobalScale {
    /// The largest magnitude is zero, not finite, or so small or large that the scale is not a normal
    /// number.
    #[error(
        "part {part} of the rows has the largest magnitude {amax:e}, which no second-level scale follows \
         from; give one from calibration"
    )]
    Magnitude {
        /// The token, the expert, or 0 for the tensor.
        part: usize,
        /// The largest magnitude; NaN if there is one.
        amax: f32,
    },
    /// Experts with more or fewer rows than there are.
    #[error("the experts have {experts} rows, and there are {rows}")]
    Rows {
        /// Rows of all experts.
        experts: usize,
        /// Rows given.
        rows: usize,
    },
}

/// The second-level scale of numbers whose largest magnitude is `amax`: the largest e4m3 times the
/// largest e2m1 over it, so that the largest block scale is the largest e4m3. vLLM's and FlashInfer's
/// `448 * 6 / amax`.
///
/// # Errors
/// [`NoGlobalScale::Magnitude`] for zero, infinity, NaN, and what is too small or too large.
pub fn global_scale(amax: f32) -> Result<Divisor, NoGlobalScale> {
    let range = largest(ElementType::E4m3) * largest(ElementType::E2m1);
    Divisor::new(range / amax).map_err(|_| NoGlobalScale::Magnitude { part: 0, amax })
}

/// [`global_scale`] of each part of `tokens`: one for the tensor, each token or each expert.
///
/// # Errors
/// [`NoGlobalScale`], naming the first part that has none; an expert without rows is such a part.
pub fn global_scales<T: Real>(
    tokens: Tokens<'_, T>,
    scope: Scope<'_>,
) -> Result<Vec<Divisor>, NoGlobalScale> {
    let rows: Vec<f32> = (0..tokens.rows()).into_par_iter().map(|row| magnitude(tokens.row(row))).collect();
    let parts = match scope {
        Scope::Tensor => vec![magnitude(&rows)],
        Scope::Token => rows,
        Scope::Expert(counts) => {
            let experts = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
            if experts != rows.len() {
                return Err(NoGlobalScale::Rows { experts, rows: rows.len() });
            }
            let mut rest = rows.as_slice();
            let of_expert = |count: &usize| {
                let (expert, others) = rest.split_at(*count);
                rest = others;
                magnitude(expert)
            };
            counts.iter().map(of_expert).collect()
        }
    };
    let scale = |(part, amax)| global_scale(amax).map_err(|_| NoGlobalScale::Magnitude { part, amax });
    parts.into_iter().enumerate().map(scale).collect()
}

/// The largest magnitude of `values`; NaN if there is one, 0 if there are none.
fn magnitude<T: Real>(values: &[T]) -> f32 {
    // Magnitudes compare as integers, and NaN is the largest of them.
    let bits = values.iter().map(|value| value.to_f32().abs().to_bits()).max();
    f32::from_bits(bits.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_its_own_magnitudes() {
        let values = [1.0f32, -2.0, 6.0, 0.5, -48.0, 3.0];
        let of = |scope| {
            let scales = global_scales(Tokens::new(&values, 3, 2).unwrap(), scope).unwrap();
            scales.into_iter().map(Divisor::get).collect::<Vec<_>>()
        };
        assert_eq!(of(Scope::Tensor), [56.0]);
        assert_eq!(of(Scope::Token), [1344.0, 448.0, 56.0]);
        assert_eq!(of(Scope::Expert(&[2, 1])), [448.0, 56.0]);
    }

    #[test]
    fn what_has_no_scale_is_named() {
        let of = |values: &[f32], scope| global_scales(Tokens::new(values, values.len(), 1).unwrap(), scope);
        assert_eq!(of(&[1.0, 0.0], Scope::Token), Err(NoGlobalScale::Magnitude { part: 1, amax: 0.0 }));
        assert_eq!(
            of(&[1.0, 2.0], Scope::Expert(&[2, 0])),
            Err(NoGlobalScale::Magnitude { part: 1, amax: 0.0 })
        );
        assert_eq!(of(&[1.0, 2.0], Scope::Expert(&[1])), Err(NoGlobalScale::Rows { experts: 1, rows: 2 }));
        for bad in [f32::NAN, f32::INFINITY, 1e-42] {
            assert!(of(&[bad, 1e-43], Scope::Tensor).is_err(), "{bad}");
        }
        assert!(of(&[], Scope::Tensor).is_err());
    }
}
