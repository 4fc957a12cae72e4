//! The matrices of one projection in the row's format, sizes checked.

use std::borrow::Cow;

use super::PrepareError;
use crate::format::{FormatSpec, Reach, ScaleType};
use crate::layout::{Extent, Half};
use crate::recipe::Recipe;
use crate::scale::{Calibrated, Multiplier};
use crate::tensor::WrongSize;
use crate::weights::canonical::{Matrix, Stack};
use crate::weights::requantize;

/// Halves that a kernel reads as one matrix have one scale where the format has one a matrix, and one
/// second-level scale: both halves are requantised with the larger of two first-level scales, and
/// second-level scales have to be equal, as checkpoints have them.
pub(super) fn share_scales(
    halves: &mut [(Option<Half>, Projection<'_>)],
    experts: usize,
) -> Result<(), PrepareError> {
    let [(_, gate), (_, up)] = halves else { return Ok(()) };
    let differs = |expert: &usize| gate.stack.globals.get(*expert) != up.stack.globals.get(*expert);
    let differing: Vec<_> = (0..experts).filter(differs).collect();
    if !differing.is_empty() {
        return Err(PrepareError::GlobalsDiffer { experts: differing });
    }
    if gate.format.block.is_none_or(|block| block.rows != Reach::Whole) {
        return Ok(());
    }
    let scale = |half: &Projection<'_>, expert| half.only_scale(expert);
    let larger = |expert| -> Result<Multiplier, PrepareError> {
        let (gate, up) = (scale(gate, expert)?, scale(up, expert)?);
        Ok(if up > gate { up } else { gate })
    };
    let shared = (0..experts).map(larger).collect::<Result<Vec<_>, _>>()?;
    let given =
        |scale: &Multiplier| Recipe { calibrated: Some(Calibrated::Static(*scale)), ..Recipe::dynamic(None) };
    let recipes: Vec<Recipe> = shared.iter().map(given).collect();
    *gate = gate.requantize(gate.format, &recipes)?;
    *up = up.requantize(up.format, &recipes)?;
    Ok(())
}

/// One projection of every expert in the row's format, sizes checked.
pub(super) struct Projection<'a> {
    format: &'static FormatSpec,
    pub(super) stack: Cow<'a, Stack>,
}

impl<'a> Projection<'a> {
    pub(super) fn load(
        projection: &'static str,
        from: &'static FormatSpec,
        to: &'static FormatSpec,
        stack: &'a Stack,
        experts: usize,
        expected: Extent,
    ) -> Result<Self, PrepareError> {
        let Stack { rows, cols, .. } = *stack;
        if (Extent { rows, cols }) != expected {
            let Extent { rows: expected_rows, cols: expected_cols } = expected;
            return Err(PrepareError::Shape { projection, rows, cols, expected_rows, expected_cols });
        }
        let loaded = Self { format: from, stack: Cow::Borrowed(stack) };
        loaded.check(experts).map_err(|error| PrepareError::Buffer { projection, error })?;
        if from == to {
            return Ok(loaded);
        }
        loaded.requantize(to, &vec![requantize::weight_recipe(to); experts])
    }

    fn check(&self, experts: usize) -> Result<(), WrongSize> {
        let Stack { rows, cols, payload, scales, zero_points, globals } = &*self.stack;
        let (format, rows, cols) = (self.format.name, *rows, *cols);
        let (payload_bytes, scale_bytes) = self.format.matrix_bytes(self.stack.extent());
        let expected = experts.saturating_mul(payload_bytes);
        if payload.len() != expected {
            return Err(WrongSize::Payload {
                format,
                rows: experts.saturating_mul(rows),
                cols,
                expected,
                got: payload.len(),
            });
        }
        let expected = experts.saturating_mul(scale_bytes);
        if globals.len() != if self.format.global.is_some() { experts } else { 0 } {
            return Err(WrongSize::Levels { format });
        }
        if scales.len() != expected {
            let (layout, rows, got) = ("linear", experts.saturating_mul(rows), scales.len());
            return Err(WrongSize::Scales { format, layout, rows, cols, expected, got });
        }
        let (expected, got) = (experts * self.format.zero_points(self.stack.extent()), zero_points.len());
        if got != expected {
            return Err(WrongSize::ZeroPointBytes { format, rows, cols, expected, got });
        }
        Ok(())
    }

    /// The same numbers in another format, or under other scales: each expert by its recipe.
    fn requantize(&self, to: &'static FormatSpec, recipes: &[Recipe]) -> Result<Self, PrepareError> {
        let stack = requantize::stack(self.format, &self.stack, to, recipes)?;
        Ok(Self { format: to, stack: Cow::Owned(stack) })
    }

    /// The scale of an expert whose matrix has one.
    fn only_scale(&self, expert: usize) -> Result<Multiplier, PrepareError> {
        let block = self.format.block.map_or(ScaleType::F32, |block| block.scale);
        let value = crate::element::scale_decode(block, self.matrix(expert).scales);
        Multiplier::new(value).map_err(|error| PrepareError::Scale { expert, error })
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.format.element.bytes(self.stack.cols)
    }

    pub(super) fn matrix(&self, expert: usize) -> Matrix<'_> {
        self.stack.matrix(self.format, expert)
    }
}
