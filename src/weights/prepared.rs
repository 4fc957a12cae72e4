//! Prepared weights: as a kernel reads them. Padded, in the row's order, scales in the row's layout.

mod plan;

use std::marker::PhantomData;

use rayon::prelude::*;

use crate::backend::{Activation, Backend, BiasType, Contract};
use crate::config::QuantConfig;
use crate::cpu::dequantize::dequantize_matrix;
use crate::cpu::quantize::{QuantizeError, quantize_matrix};
use crate::format::{FormatSpec, Rounding, ScaleType};
use crate::layout::{Extent, Half, Indivisible};
use crate::moe::executable::NotExecutable;
use crate::tensor::{Tokens, WrongSize};

use super::canonical::{Canonical, Stack};

pub(crate) use plan::{Access, MatrixPlan, Plan, plan};
pub use plan::{Logical, Physical};

/// Why weights were not prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// This crate does not execute the row.
    #[error(transparent)]
    NotExecutable(#[from] NotExecutable),
    /// Weights of a format whose second-level scale nobody gave.
    #[error("weights in `{format}` have a second-level scale, which is not among them")]
    Format {
        /// The format.
        format: &'static str,
    },
    /// The row has no weight order for the activation function.
    #[error("backend `{row}` has no order of gate/up rows for {activation}")]
    Activation {
        /// The row.
        row: &'static str,
        /// The function.
        activation: Activation,
    },
    /// An order for plain weights on gated ones, or the other way round.
    #[error("backend `{row}` orders a matrix of {halves} halves by `{order}`, which is made for another")]
    Halves {
        /// The row.
        row: &'static str,
        /// The order.
        order: &'static str,
        /// 2 for gate/up, 1 for down.
        halves: usize,
    },
    /// An order that takes the rows of a scale block apart.
    #[error(
        "order `{order}` of backend `{row}` puts rows of different scale blocks into one row of scales \
         (stored row {position}; blocks of {block_rows} rows, halves of {half_rows})"
    )]
    TornBlock {
        /// The row.
        row: &'static str,
        /// The order.
        order: &'static str,
        /// Rows of a scale block.
        block_rows: usize,
        /// Padded rows of one half.
        half_rows: usize,
        /// The first stored row with another scale than its block.
        position: usize,
    },
    /// A layout that does not hold the row's scales.
    #[error("layout `{layout}` of backend `{row}` does not hold {scale:?} scales")]
    ScaleType {
        /// The row.
        row: &'static str,
        /// The layout.
        layout: &'static str,
        /// The type.
        scale: ScaleType,
    },
    /// A size beyond any model.
    #[error("{size} {what} are more than the {most} that a layer may have")]
    TooLarge {
        /// `experts`, `hidden` or `intermediate`.
        what: &'static str,
        /// The size.
        size: usize,
        /// The most.
        most: usize,
    },
    /// A size that a layout, order or payload refuses.
    #[error(transparent)]
    Indivisible(#[from] Indivisible),
    /// A projection of another shape than the layer's.
    #[error("the {projection} projection is {rows}x{cols}, not {expected_rows}x{expected_cols}")]
    Shape {
        /// `gate`, `up` or `down`.
        projection: &'static str,
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
        /// The layer's.
        expected_rows: usize,
        /// The layer's.
        expected_cols: usize,
    },
    /// A projection's buffers.
    #[error("the {projection} projection: {error}")]
    Buffer {
        /// `gate`, `up` or `down`.
        projection: &'static str,
        /// What is wrong.
        error: WrongSize,
    },
    /// A projection's biases.
    #[error("the biases of the {projection} projection are {got} values, not {expected}")]
    Biases {
        /// `gate`, `up` or `down`.
        projection: &'static str,
        /// Values it takes.
        expected: usize,
        /// Values given.
        got: usize,
    },
    /// The model has biases, the row takes none.
    #[error("backend `{row}` takes no biases, and the weights have some")]
    BiasRefused {
        /// The row.
        row: &'static str,
    },
    /// Requantisation.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
}

/// One matrix of every expert as a kernel reads it, experts outermost.
#[derive(Debug, Clone)]
pub struct PreparedMatrix {
    /// The elements.
    pub payload: Vec<u8>,
    /// The block scales; empty for formats without.
    pub scales: Vec<u8>,
    /// One value an expert and stored row, rounded to the row's bias type; zero on padding.
    pub bias: Option<Vec<f32>>,
}

/// Prepared weights without their type.
#[derive(Debug, Clone)]
pub struct RawPrepared {
    /// The row that they are prepared for.
    pub row: &'static str,
    /// The sizes that the model says.
    pub logical: Logical,
    /// The sizes that were allocated.
    pub physical: Physical,
    /// The activation function whose order the gate/up rows are in.
    pub activation: Activation,
    /// The format that the weights came in, if preparation requantised them.
    pub requantized_from: Option<&'static FormatSpec>,
    /// Gate and up, fused.
    pub gate_up: PreparedMatrix,
    /// Down.
    pub down: PreparedMatrix,
}

/// Weights prepared for backend `B`.
#[derive(Debug, Clone)]
pub struct Prepared<B: Backend> {
    raw: RawPrepared,
    backend: PhantomData<B>,
}

impl<B: Backend> Prepared<B> {
    /// Prepares `canonical` for the layer of `config`; see [`prepare`].
    ///
    /// # Errors
    /// [`PrepareError`], as [`prepare`].
    pub fn new(config: &QuantConfig<B>, canonical: &Canonical) -> Result<Self, PrepareError> {
        let raw = prepare(B::CONTRACT, config.activation().kind(), canonical)?;
        Ok(Self { raw, backend: PhantomData })
    }

    /// The same without its type.
    pub fn raw(&self) -> &RawPrepared {
        &self.raw
    }
}

/// Prepares `canonical` as `contract` says: each half padded alone, then the rows of elements,
/// scales and biases put in the order for `activation`, elements in the row's payload digits, scales
/// in its layout. Padding holds the row's fill.
///
/// Weights of another format than the row's are dequantised and quantised anew (power-of-two scales
/// by [`Rounding::Rceil`]), and [`RawPrepared::requantized_from`] says so.
///
/// # Errors
/// [`PrepareError`] if this crate does not execute the row, the row does not take these weights or
/// sizes, or a buffer does not have the size that its format asks for.
pub fn prepare(
    contract: &Contract,
    activation: Activation,
    canonical: &Canonical,
) -> Result<RawPrepared, PrepareError> {
    let Canonical { experts, hidden, intermediate, .. } = *canonical;
    let logical = Logical { experts, hidden, intermediate };
    let plan = plan(contract, activation, logical)?;
    let weight = &contract.weight;
    if canonical.format.global.is_some() {
        return Err(PrepareError::Format { format: canonical.format.name });
    }
    if canonical.biases.is_some() && weight.bias.is_none() {
        return Err(PrepareError::BiasRefused { row: contract.name });
    }
    let load = |projection, stack, rows, cols| {
        Projection::load(projection, canonical.format, weight.format, stack, experts, Extent { rows, cols })
    };
    let gate = load("gate", &canonical.gate, intermediate, hidden)?;
    let up = load("up", &canonical.up, intermediate, hidden)?;
    let down = load("down", &canonical.down, hidden, intermediate)?;

    let fill = weight.pad.map_or(0, |pad| pad.fill);
    let gate_up_sources = [(Some(Half::Gate), &gate), (Some(Half::Up), &up)];
    let mut gate_up = write_matrix(&plan.gate_up, experts, &gate_up_sources, fill);
    let mut down = write_matrix(&plan.down, experts, &[(None, &down)], fill);
    if let (Some(bias), Some(biases)) = (weight.bias, &canonical.biases) {
        let gate = ("gate", Some(Half::Gate), intermediate, biases.gate.as_slice());
        let up = ("up", Some(Half::Up), intermediate, biases.up.as_slice());
        gate_up.bias = Some(write_biases(&plan.gate_up, experts, &[gate, up], bias.dtype)?);
        let sources = [("down", None, hidden, biases.down.as_slice())];
        down.bias = Some(write_biases(&plan.down, experts, &sources, bias.dtype)?);
    }
    let requantized_from = (canonical.format != weight.format).then_some(canonical.format);
    Ok(RawPrepared {
        row: contract.name,
        logical,
        physical: plan.physical,
        activation,
        requantized_from,
        gate_up,
        down,
    })
}

/// One projection of every expert in the row's format, sizes checked.
struct Projection<'a> {
    format: &'static FormatSpec,
    stack: std::borrow::Cow<'a, Stack>,
}

impl<'a> Projection<'a> {
    fn load(
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
        let loaded = Self { format: from, stack: std::borrow::Cow::Borrowed(stack) };
        loaded.check(experts).map_err(|error| PrepareError::Buffer { projection, error })?;
        if from == to { Ok(loaded) } else { loaded.requantize(projection, to, experts) }
    }

    fn check(&self, experts: usize) -> Result<(), WrongSize> {
        let Stack { rows, cols, payload, scales } = &*self.stack;
        let (format, rows, cols) = (self.format.name, *rows, *cols);
        let expected = experts.saturating_mul(self.payload_bytes());
        if payload.len() != expected {
            return Err(WrongSize::Payload {
                format,
                rows: experts.saturating_mul(rows),
                cols,
                expected,
                got: payload.len(),
            });
        }
        let expected = experts.saturating_mul(self.scale_bytes());
        if scales.len() != expected {
            let (layout, rows, got) = ("linear", experts.saturating_mul(rows), scales.len());
            return Err(WrongSize::Scales { format, layout, rows, cols, expected, got });
        }
        Ok(())
    }

    fn requantize(
        &self,
        projection: &'static str,
        to: &'static FormatSpec,
        experts: usize,
    ) -> Result<Self, PrepareError> {
        let Stack { rows, cols, .. } = *self.stack;
        let rounding = to.block.filter(|block| block.scale == ScaleType::E8m0).map(|_| Rounding::Rceil);
        let mut stack = Stack { rows, cols, payload: Vec::new(), scales: Vec::new() };
        for expert in 0..experts {
            let (payload, scales) = self.expert(expert);
            let extent = Extent { rows, cols };
            let values = dequantize_matrix(self.format, extent, payload, scales)
                .map_err(|error| PrepareError::Buffer { projection, error })?;
            let tokens = Tokens::new(&values, rows, cols).map_err(QuantizeError::from)?;
            let quantized = quantize_matrix(tokens, to, rounding)?;
            stack.payload.extend(quantized.payload);
            stack.scales.extend(quantized.scales);
        }
        Ok(Self { format: to, stack: std::borrow::Cow::Owned(stack) })
    }

    fn row_bytes(&self) -> usize {
        self.format.element.bytes(self.stack.cols)
    }

    fn payload_bytes(&self) -> usize {
        self.stack.rows.saturating_mul(self.row_bytes())
    }

    fn scale_bytes(&self) -> usize {
        self.format.block.map_or(0, |block| {
            let scales = Extent {
                rows: self.stack.rows.div_ceil(block.rows),
                cols: self.stack.cols.div_ceil(block.cols),
            };
            scales.count().saturating_mul(block.scale.bytes())
        })
    }

    /// The elements and scales of one expert.
    fn expert(&self, expert: usize) -> (&[u8], &[u8]) {
        let (payload, scales) = (self.payload_bytes(), self.scale_bytes());
        (&self.stack.payload[expert * payload..][..payload], &self.stack.scales[expert * scales..][..scales])
    }
}

fn write_matrix(
    plan: &MatrixPlan,
    experts: usize,
    sources: &[(Option<Half>, &Projection<'_>)],
    fill: u8,
) -> PreparedMatrix {
    let scale_fill = plan.scale.as_ref().map_or(0, |scale| scale.fill);
    let mut payload = vec![fill; experts * plan.payload_bytes()];
    let mut scales = vec![scale_fill; experts * plan.scale_bytes()];
    let access = plan.access();
    payload.par_chunks_mut(plan.payload_bytes().max(1)).enumerate().for_each(|(expert, payload)| {
        for (half, projection) in sources {
            let rows = projection.expert(expert).0.chunks_exact(projection.row_bytes().max(1));
            for (row, elements) in rows.enumerate() {
                let position = plan.position(*half, row);
                plan.write_row(&access, elements, projection.stack.cols, payload, position);
            }
        }
    });
    scales.par_chunks_mut(plan.scale_bytes().max(1)).enumerate().for_each(|(expert, scales)| {
        for (half, projection) in sources {
            write_scales(plan, *half, projection, expert, scales);
        }
    });
    PreparedMatrix { payload, scales, bias: None }
}

fn write_scales(
    plan: &MatrixPlan,
    half: Option<Half>,
    projection: &Projection<'_>,
    expert: usize,
    scales: &mut [u8],
) {
    let Some(scale) = &plan.scale else { return };
    let size = scale.block.scale.bytes();
    let source_cols = projection.stack.cols.div_ceil(scale.block.cols);
    let source = projection.expert(expert).1;
    for row in 0..projection.stack.rows {
        let stored = plan.position(half, row) / scale.rows_per_scale;
        let source = &source[row / scale.block.rows * source_cols * size..][..source_cols * size];
        for (col, value) in source.chunks_exact(size).enumerate() {
            let at = (scale.layout.offset)(stored, col, scale.physical) * size;
            scales[at..at + size].copy_from_slice(value);
        }
    }
}

/// Biases of a projection: its name, half, logical rows and values.
type BiasSource<'a> = (&'static str, Option<Half>, usize, &'a [f32]);

fn write_biases(
    plan: &MatrixPlan,
    experts: usize,
    sources: &[BiasSource<'_>],
    bias_type: BiasType,
) -> Result<Vec<f32>, PrepareError> {
    let mut biases = vec![0.0; experts * plan.rows()];
    for &(projection, half, rows, values) in sources {
        let expected = experts * rows;
        if values.len() != expected {
            return Err(PrepareError::Biases { projection, expected, got: values.len() });
        }
        for (at, value) in values.iter().enumerate() {
            let (expert, row) = (at / rows, at % rows);
            biases[expert * plan.rows() + plan.position(half, row)] = match bias_type {
                BiasType::Bf16 => half::bf16::from_f32(*value).to_f32(),
                BiasType::F32 | BiasType::Model => *value,
            };
        }
    }
    Ok(biases)
}

#[cfg(test)]
mod tests;
