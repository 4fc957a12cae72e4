//! Quantises rows of 16- or 32-bit numbers and puts the scales where a layout says.
//!
//! Bytes are those of FlashInfer's exact reference for e8m0 scales and of vLLM's per-token groups for
//! f32 scales, except that a NaN is never lost: its block gets a NaN scale, and NaN elements where
//! the element type has one.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod blocks;
mod choose;
pub mod global;
mod loops;
mod steps;
mod theirs;
mod vector;

use rayon::prelude::*;

use crate::backend::{Contract, InputContract, Known, QuantizeAt, Reads};
use crate::config::QuantConfig;
use crate::format::{ElementType, Format, FormatSpec, Reach, Rounding};
use crate::layout::{Extent, Layout, ScaleLayout, UNSCALED};
use crate::recipe::Recipe;
use crate::scale::{Calibrated, Divisor};
use crate::tensor::{Quantized, RawQuantized, Real, Tokens, WrongSize};
use crate::weights::canonical::Stack;

use super::dequantize::dequantize_matrix;
use super::relayout::into_layout;
use super::scales::ROW_MAJOR;
use blocks::{Job, quantize_blocks};
use choose::Scheme;
use vector::VectorUnit;

/// Why rows were not quantised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantizeError {
    /// The CPU engine has no quantiser for the format.
    #[error("the CPU engine does not quantise to `{format}`: {why}")]
    Format {
        /// The format.
        format: &'static str,
        /// What is in the way.
        why: &'static str,
    },
    /// Nothing says how a power-of-two scale is chosen.
    #[error("`{format}` has power-of-two scales, and no rounding rule was given to choose them by")]
    NoRounding {
        /// The format.
        format: &'static str,
    },
    /// A rule for power-of-two scales was given for others.
    #[error("`{format}` has scales of any size; the rounding rule {rounding:?} is for powers of two")]
    Rounding {
        /// The format.
        format: &'static str,
        /// The rule.
        rounding: Rounding,
    },
    /// The backend reads no tokens in the format.
    #[error("backend `{row}` does not read tokens in `{format}`")]
    NotRead {
        /// The row.
        row: &'static str,
        /// The format.
        format: &'static str,
    },
    /// Only the vendor's library knows the layout.
    #[error("only the vendor's library knows what layout backend `{row}` reads: {why}")]
    Vendor {
        /// The row.
        row: &'static str,
        /// The table's words.
        why: &'static str,
    },
    /// A scale that is not chosen from the numbers, and is not given.
    #[error("`{format}` is quantised by a calibrated scale here, and none was given")]
    NoScale {
        /// The format.
        format: &'static str,
    },
    /// A calibrated scale that nothing reads.
    #[error("a calibrated scale was given that `{format}` is not quantised by here")]
    Scale {
        /// The format.
        format: &'static str,
    },
    /// The layout cannot take the scales.
    #[error(transparent)]
    Size(#[from] WrongSize),
}

/// Quantises `tokens` into what backend `B` is handed, in format `F`: the row's rounding rule, padding
/// and prepared layout, and the calibrated scale of `config`. vLLM's `moe_kernel_quantize_input`.
///
/// # Errors
/// [`QuantizeError`] if the CPU engine does not quantise to `F` or the layout refuses the size.
pub fn quantize_input<B, F, T>(
    config: &QuantConfig<B>,
    tokens: Tokens<'_, T>,
) -> Result<Quantized<F, <B as Reads<F>>::Prepared>, QuantizeError>
where
    B: Reads<F>,
    F: Format,
    T: Real,
{
    let input = &B::CONTRACT.gemm1_input;
    let layout = <<B as Reads<F>>::Prepared as ScaleLayout>::LAYOUT;
    let recipe = recipe(input, F::SPEC, config.layer().gemm1)?;
    Ok(Quantized::from_engine(quantize(tokens, F::SPEC, recipe, layout, input.multiple)?))
}

/// [`quantize_input`] for a row that is known at run time only. A row whose experts quantise is handed
/// tokens in any format without scales.
///
/// # Errors
/// [`QuantizeError`], also if the row is not handed `format`, leaves its layout to the vendor, or lacks
/// the calibrated scale that it reads or has one that it does not read.
pub fn quantize_prepared<T: Real>(
    contract: &Contract,
    format: &'static FormatSpec,
    calibrated: Option<Calibrated>,
    tokens: Tokens<'_, T>,
) -> Result<RawQuantized, QuantizeError> {
    let input = &contract.gemm1_input;
    let recipe = handed_recipe(contract, format, calibrated)?;
    let layout = match (format.block, input.layout) {
        (None, _) => &UNSCALED,
        (Some(_), Known::Is(layout)) => layout.prepared,
        (Some(_), Known::Vendor(why)) => return Err(QuantizeError::Vendor { row: contract.name, why }),
    };
    quantize(tokens, format, recipe, layout, input.multiple)
}

/// How tokens are quantised that `contract` is handed in `format`.
///
/// # Errors
/// [`QuantizeError`] if the row is not handed `format`, or lacks the calibrated scale that it reads or
/// has one that it does not read.
pub(crate) fn handed_recipe(
    contract: &Contract,
    format: &'static FormatSpec,
    calibrated: Option<Calibrated>,
) -> Result<Recipe, QuantizeError> {
    let input = &contract.gemm1_input;
    let is_handed = match input.quantize {
        Some(QuantizeAt::Expert) => format.block.is_none(),
        Some(QuantizeAt::Prepare) | None => input.handed().contains(&format),
    };
    if !is_handed {
        return Err(QuantizeError::NotRead { row: contract.name, format: format.name });
    }
    recipe(input, format, calibrated)
}

/// How tokens that are handed over in `format` are quantised. What `input` says of scales is for the
/// format that the kernel reads; tokens without scales, which the experts quantise, need nothing of it.
fn recipe(
    input: &InputContract,
    format: &'static FormatSpec,
    calibrated: Option<Calibrated>,
) -> Result<Recipe, QuantizeError> {
    if input.calibrated().is_none() && calibrated.is_some() {
        return Err(QuantizeError::Scale { format: format.name });
    }
    if format.block.is_none() {
        return Ok(Recipe::default());
    }
    if input.calibrated().is_some() && calibrated.is_none() {
        return Err(QuantizeError::NoScale { format: format.name });
    }
    Ok(Recipe { rounding: input.rounding, calibrated, ..Recipe::default() })
}

/// Quantises `tokens` to `format` with block scales in `layout`. Rows are padded with zeros to a
/// multiple of `multiple` elements and of the block; padding bytes of the layout are zero. Formats
/// without block scales are cast; a rounding rule does not concern them.
///
/// # Errors
/// [`QuantizeError`] if the CPU engine does not quantise to `format`, `recipe` does not fit it, or
/// `layout` does not take its scales.
pub fn quantize<T: Real>(
    tokens: Tokens<'_, T>,
    format: &'static FormatSpec,
    recipe: Recipe,
    layout: &'static Layout,
    multiple: usize,
) -> Result<RawQuantized, QuantizeError> {
    quantize_reusing(tokens, format, recipe, layout, multiple, Vec::new())
}

/// [`quantize`] into the allocation of `payload`, whose bytes do not matter. Fresh pages cost more time
/// than quantising does, so whoever quantises again and again passes the payload of an earlier result.
///
/// # Errors
/// As [`quantize`]; `payload` is lost then.
pub fn quantize_reusing<T: Real>(
    tokens: Tokens<'_, T>,
    format: &'static FormatSpec,
    recipe: Recipe,
    layout: &'static Layout,
    multiple: usize,
    payload: Vec<u8>,
) -> Result<RawQuantized, QuantizeError> {
    let cols = padded(tokens.cols(), format, multiple);
    let stack = quantize_padded(VectorUnit::detect(), tokens, format, recipe, cols, payload)?;
    let row_major = RawQuantized {
        format,
        layout: &ROW_MAJOR,
        rows: stack.rows,
        cols,
        payload: stack.payload,
        scales: stack.scales,
        zero_points: stack.zero_points,
        global: global(recipe),
    };
    Ok(into_layout(row_major, layout)?)
}

/// Quantises one matrix to `format`, scales linear. Blocks at the lower and right edge may be cut.
///
/// # Errors
/// [`QuantizeError`] if the CPU engine does not quantise to `format` or `recipe` does not fit it.
pub fn quantize_matrix<T: Real>(
    matrix: Tokens<'_, T>,
    format: &'static FormatSpec,
    recipe: Recipe,
) -> Result<Stack, QuantizeError> {
    let stack = quantize_padded(VectorUnit::detect(), matrix, format, recipe, matrix.cols(), Vec::new())?;
    Ok(Stack { globals: global(recipe).map(Divisor::to_multiplier).into_iter().collect(), ..stack })
}

/// `tokens` as a kernel that reads `format` sees them, in their own type: quantised and dequantised.
/// What vLLM calls emulation, for devices without such a kernel.
///
/// # Errors
/// As [`quantize_matrix`].
pub fn quantize_dequantize<T: Real>(
    tokens: Tokens<'_, T>,
    format: &'static FormatSpec,
    recipe: Recipe,
) -> Result<Vec<T>, QuantizeError> {
    let stack = quantize_matrix(tokens, format, recipe)?;
    let values = dequantize_matrix(format, stack.matrix(format, 0))?;
    Ok(values.into_iter().map(T::from_f32).collect())
}

fn global(recipe: Recipe) -> Option<Divisor> {
    match recipe.calibrated {
        Some(Calibrated::Global(global)) => Some(global),
        Some(Calibrated::Static(_)) | None => None,
    }
}

/// The elements of a row of `cols` after padding to `multiple` and to the block.
pub(crate) fn padded(cols: usize, format: &FormatSpec, multiple: usize) -> usize {
    let block = match format.block.map(|block| block.cols) {
        Some(Reach::Of(block)) => block.max(1),
        Some(Reach::Whole) | None => 1,
    };
    let multiple = multiple.max(1);
    cols.next_multiple_of(multiple / gcd(multiple, block) * block)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn quantize_padded<T: Real>(
    unit: VectorUnit,
    tokens: Tokens<'_, T>,
    format: &'static FormatSpec,
    recipe: Recipe,
    cols: usize,
    payload: Vec<u8>,
) -> Result<Stack, QuantizeError> {
    match format.block {
        None if recipe.calibrated.is_some() => Err(QuantizeError::Scale { format: format.name }),
        None => cast_rows(tokens, format, cols),
        Some(block) => {
            let size = block.size(Extent { rows: tokens.rows(), cols });
            if format.element.bits() == 4 && size.cols < cols && !size.cols.is_multiple_of(2) {
                let why = "its blocks end inside a byte";
                return Err(QuantizeError::Format { format: format.name, why });
            }
            let scheme = Scheme::new(format, block, recipe)?;
            let element = format.element;
            Ok(quantize_blocks(Job { unit, scheme: &scheme, element, block, tokens, cols }, payload))
        }
    }
}

/// Rows of a format without block scales.
fn cast_rows<T: Real>(
    tokens: Tokens<'_, T>,
    format: &'static FormatSpec,
    cols: usize,
) -> Result<Stack, QuantizeError> {
    if format.element.bits() < 16 {
        return Err(QuantizeError::Format { format: format.name, why: "it has no block scale" });
    }
    let row_bytes = format.element.bytes(cols);
    let mut payload = vec![0; tokens.rows() * row_bytes];
    payload.par_chunks_mut(row_bytes.max(1)).enumerate().for_each(|(row, bytes)| {
        cast(format.element, tokens.row(row), bytes);
    });
    Ok(Stack::new(tokens.rows(), cols, payload, Vec::new()))
}

fn cast<T: Real>(element: ElementType, values: &[T], bytes: &mut [u8]) {
    let values = values.iter().map(|value| value.to_f32());
    match element {
        ElementType::Bf16 => {
            for (value, bytes) in values.zip(bytes.as_chunks_mut().0) {
                *bytes = half::bf16::from_f32(value).to_le_bytes();
            }
        }
        ElementType::F16 => {
            for (value, bytes) in values.zip(bytes.as_chunks_mut().0) {
                *bytes = half::f16::from_f32(value).to_le_bytes();
            }
        }
        _ => {
            for (value, bytes) in values.zip(bytes.as_chunks_mut().0) {
                *bytes = value.to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests;
