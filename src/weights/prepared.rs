//! Prepared weights: as a kernel reads them. Padded, in the row's order, scales in the row's layout.

mod plan;
mod projection;
pub(crate) mod word;

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use crate::backend::{Activation, Backend, Bias, Contract};
use crate::config::QuantConfig;
use crate::format::{FormatSpec, ScaleType};
use crate::layout::{Extent, Half, Indivisible};
use crate::moe::executable::NotExecutable;
use crate::scale::{Multiplier, NotAScale};
use crate::tensor::WrongSize;

use super::canonical::Canonical;
use super::requantize::RequantizeError;
use projection::{Projection, share_scales};

pub(crate) use plan::{Access, MatrixPlan, Plan, plan};
pub use plan::{Logical, Physical};

/// Why weights were not prepared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PrepareError {
    /// This crate does not execute the row.
    #[error(transparent)]
    NotExecutable(#[from] NotExecutable),
    /// Weights in a format that the row neither reads nor requantises from.
    #[error(
        "backend `{row}` reads weights in `{reads}`, not `{format}`; requantise them, if that is meant, \
         with `weights::requantize`"
    )]
    Format {
        /// The row.
        row: &'static str,
        /// What it reads.
        reads: &'static str,
        /// What the weights are in.
        format: &'static str,
    },
    /// Gate and up of an expert with second-level scales of their own, which one kernel cannot apply.
    #[error(
        "gate and up of experts {experts:?} have different second-level scales, and the kernel reads one"
    )]
    GlobalsDiffer {
        /// The experts.
        experts: Vec<usize>,
    },
    /// The one scale of an expert's matrix.
    #[error("the weight scale of expert {expert}: {error}")]
    Scale {
        /// The expert.
        expert: usize,
        /// What is wrong with it.
        error: NotAScale,
    },
    /// The row has no weight order for the activation function.
    #[error("backend `{row}` has no order of gate/up rows for {activation}")]
    Activation {
        /// The row.
        row: &'static str,
        /// The function.
        activation: Activation,
    },
    /// A plain function on gated weights, or the other way round.
    #[error("{activation} is not a function of weights with {halves} projections before it")]
    Gated {
        /// The function.
        activation: Activation,
        /// 2 for gated weights, 1 for plain ones.
        halves: usize,
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
    /// A size of nothing.
    #[error("an expert of no {what} size")]
    Empty {
        /// `hidden` or `intermediate`.
        what: &'static str,
    },
    /// Weights with zero points, which no engine here applies.
    #[error("backend `{row}` reads weights in `{format}`, whose zero points no engine here applies")]
    ZeroPoints {
        /// The row.
        row: &'static str,
        /// The format.
        format: &'static str,
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
    Requantize(#[from] RequantizeError),
}

/// One matrix of every expert as a kernel reads it, experts outermost.
#[derive(Debug, Clone)]
pub struct PreparedMatrix {
    /// The elements.
    pub payload: Vec<u8>,
    /// The block scales; empty for formats without.
    pub scales: Vec<u8>,
    /// The second-level scale of each expert; empty for formats without.
    pub globals: Vec<Multiplier>,
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
    /// The format that the weights came in, if it is not the row's and preparation requantised them.
    /// Gate and up of one format that share a scale of the row are requantised under the larger one
    /// without being named here.
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

    /// The weights of the experts in `range`, as the same kernel reads them: what is prepared stays
    /// prepared. `None` if there are not as many experts.
    pub fn experts(&self, range: Range<usize>) -> Option<Self> {
        let raw = self.raw.experts(range)?;
        Some(Self { raw, backend: PhantomData })
    }

    /// The same without its type.
    pub fn raw(&self) -> &RawPrepared {
        &self.raw
    }
}

impl RawPrepared {
    /// The weights of the experts in `range`; `None` if there are not as many.
    pub fn experts(&self, range: Range<usize>) -> Option<Self> {
        let all = self.logical.experts;
        if range.start > range.end || range.end > all {
            return None;
        }
        let logical = Logical { experts: range.len(), ..self.logical };
        let gate_up = self.gate_up.experts(all, &range);
        let down = self.down.experts(all, &range);
        Some(Self { logical, gate_up, down, ..*self })
    }
}

impl PreparedMatrix {
    /// The part of the experts in `range`, of `all`.
    fn experts(&self, all: usize, range: &Range<usize>) -> Self {
        fn part<T: Clone>(values: &[T], all: usize, range: &Range<usize>) -> Vec<T> {
            let stride = values.len() / all.max(1);
            values[range.start * stride..range.end * stride].to_vec()
        }
        Self {
            payload: part(&self.payload, all, range),
            scales: part(&self.scales, all, range),
            globals: part(&self.globals, all, range),
            bias: self.bias.as_ref().map(|bias| part(bias, all, range)),
        }
    }
}

/// Prepares `canonical` as `contract` says: each half padded alone, then the rows of elements,
/// scales and biases put in the order for `activation`, elements in the row's payload digits, scales
/// in its layout. Padding holds the row's fill.
///
/// Weights in the row's `requantize_from` are dequantised and quantised anew (power-of-two scales by
/// [`Rounding::Rceil`](crate::format::Rounding::Rceil)), and [`RawPrepared::requantized_from`] says so;
/// weights in any other format than the row's are refused.
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
    let halves = 1 + usize::from(canonical.gate.is_some());
    if halves != activation.halves() {
        return Err(PrepareError::Gated { activation, halves });
    }
    let requantized_from = (canonical.format != weight.format).then_some(canonical.format);
    if requantized_from.is_some() && requantized_from != weight.requantize_from {
        let (row, reads) = (contract.name, weight.format.name);
        return Err(PrepareError::Format { row, reads, format: canonical.format.name });
    }
    let gate_biases = canonical.biases.as_ref().map_or(0, |biases| biases.gate.len());
    if halves == 1 && gate_biases > 0 {
        return Err(PrepareError::Biases { projection: "gate", expected: 0, got: gate_biases });
    }
    if canonical.biases.is_some() && weight.bias.is_none() {
        return Err(PrepareError::BiasRefused { row: contract.name });
    }
    let load = |projection, stack, rows, cols| {
        Projection::load(projection, canonical.format, weight.format, stack, experts, Extent { rows, cols })
    };
    let gate = canonical.gate.as_ref().map(|gate| load("gate", gate, intermediate, hidden)).transpose()?;
    let up = load("up", &canonical.up, intermediate, hidden)?;
    let down = load("down", &canonical.down, hidden, intermediate)?;
    let mut halves = match gate {
        Some(gate) => vec![(Some(Half::Gate), gate), (Some(Half::Up), up)],
        None => vec![(None, up)],
    };
    share_scales(&mut halves, experts)?;

    let fill = weight.pad.map_or(0, |pad| pad.fill);
    let mut gate_up = write_matrix(&plan.gate_up, experts, &halves, fill);
    let mut down = write_matrix(&plan.down, experts, &[(None, down)], fill);
    if let (Some(bias), Some(biases)) = (weight.bias, &canonical.biases) {
        let of = |half| match half {
            Some(Half::Gate) => ("gate", half, intermediate, biases.gate.as_slice()),
            Some(Half::Up) | None => ("up", half, intermediate, biases.up.as_slice()),
        };
        let sources: Vec<_> = halves.iter().map(|(half, _)| of(*half)).collect();
        gate_up.bias = Some(write_biases(&plan.gate_up, experts, &sources, bias)?);
        let sources = [("down", None, hidden, biases.down.as_slice())];
        down.bias = Some(write_biases(&plan.down, experts, &sources, bias)?);
    }
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

fn write_matrix(
    plan: &MatrixPlan,
    experts: usize,
    sources: &[(Option<Half>, Projection<'_>)],
    fill: u8,
) -> PreparedMatrix {
    let scale_fill = plan.scale.as_ref().map_or(0, |scale| scale.fill);
    let mut payload = vec![fill; experts * plan.payload_bytes()];
    let mut scales = vec![scale_fill; experts * plan.scale_bytes()];
    let access = plan.access();
    payload.par_chunks_mut(plan.payload_bytes().max(1)).enumerate().for_each(|(expert, payload)| {
        for (half, projection) in sources {
            let rows = projection.matrix(expert).payload.chunks_exact(projection.row_bytes().max(1));
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
    if let Some(word) = plan.payload.word {
        word::apply(word, &mut payload);
    }
    let globals = sources.first().map_or(Vec::new(), |(_, projection)| projection.stack.globals.clone());
    PreparedMatrix { payload, scales, globals, bias: None }
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
    let extent = projection.stack.extent();
    let (block_rows, source_cols) = (scale.block.size(extent).rows, scale.block.scales(extent).cols);
    let source = projection.matrix(expert).scales;
    for row in 0..projection.stack.rows {
        let stored = plan.position(half, row) / scale.rows_per_scale;
        let source = &source[row / block_rows * source_cols * size..][..source_cols * size];
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
    bias: Bias,
) -> Result<Vec<f32>, PrepareError> {
    let mut biases = vec![0.0; experts * plan.rows()];
    for &(projection, half, rows, values) in sources {
        let expected = experts * rows;
        if values.len() != expected {
            return Err(PrepareError::Biases { projection, expected, got: values.len() });
        }
        for (at, value) in values.iter().enumerate() {
            let (expert, row) = (at / rows, at % rows);
            let at = bias.order.position(plan.position(half, row));
            biases[expert * plan.rows() + at] = bias.dtype.round(*value);
        }
    }
    Ok(biases)
}

#[cfg(test)]
mod tests;
