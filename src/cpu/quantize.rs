//! Quantises rows of 16- or 32-bit numbers and puts the scales where a layout says.
//!
//! Bytes are those of FlashInfer's exact reference for e8m0 scales and of vLLM's per-token groups for
//! f32 scales, except that a NaN is never lost: its block gets a NaN scale, and NaN elements where
//! the element type has one.

use rayon::prelude::*;

use crate::backend::{Contract, Known, QuantizeAt, Reads};
use crate::element::{e2m1_encode, e4m3_encode, e8m0_decode, e8m0_scale, largest};
use crate::format::{BlockScale, ElementType, Format, FormatSpec, Rounding, ScaleType};
use crate::layout::{Layout, ScaleLayout, UNSCALED};
use crate::moe::executable::converts_scales;
use crate::tensor::{Quantized, RawQuantized, Real, Tokens, WrongSize};
use crate::weights::canonical::Stack;

use super::relayout::into_layout;
use super::scales::ROW_MAJOR;

/// vLLM's per-token groups take no smaller largest magnitude, so that a zero block has a scale.
const SMALLEST_AMAX: f32 = 1e-10;

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
    /// The layout cannot take the scales.
    #[error(transparent)]
    Size(#[from] WrongSize),
}

/// Quantises `tokens` into what backend `B` is handed, in format `F`: the row's rounding rule,
/// padding and prepared layout.
///
/// # Errors
/// [`QuantizeError`] if the CPU engine does not quantise to `F` or the layout refuses the size.
pub fn quantize_input<B, F, T>(
    tokens: Tokens<'_, T>,
) -> Result<Quantized<F, <B as Reads<F>>::Prepared>, QuantizeError>
where
    B: Reads<F>,
    F: Format,
    T: Real,
{
    let input = &B::CONTRACT.gemm1_input;
    let layout = <<B as Reads<F>>::Prepared as ScaleLayout>::LAYOUT;
    let raw = quantize(tokens, F::SPEC, input.rounding, layout, input.multiple)?;
    Ok(Quantized::from_engine(raw))
}

/// [`quantize_input`] for a row that is known at run time only. A row whose experts quantise is handed
/// tokens in any format without scales.
///
/// # Errors
/// [`QuantizeError`], also if the row does not read `format` or leaves its layout to the vendor.
pub fn quantize_prepared<T: Real>(
    contract: &Contract,
    format: &'static FormatSpec,
    tokens: Tokens<'_, T>,
) -> Result<RawQuantized, QuantizeError> {
    let input = &contract.gemm1_input;
    let reads = match input.quantize {
        Some(QuantizeAt::Expert) => format.block.is_none(),
        Some(QuantizeAt::Prepare) | None => input.formats.contains(&format),
    };
    if !reads {
        return Err(QuantizeError::NotRead { row: contract.name, format: format.name });
    }
    if converts_scales(input) {
        let why = "the row is handed scales of another type than the format's";
        return Err(QuantizeError::Format { format: format.name, why });
    }
    let layout = match (format.block, input.layout) {
        (None, _) => &UNSCALED,
        (Some(_), Known::Is(layout)) => layout.prepared,
        (Some(_), Known::Vendor(why)) => return Err(QuantizeError::Vendor { row: contract.name, why }),
    };
    quantize(tokens, format, input.rounding, layout, input.multiple)
}

/// Quantises `tokens` to `format` with block scales in `layout`. Rows are padded with zeros to a
/// multiple of `multiple` elements and of the block; padding bytes of the layout are zero. Formats
/// without block scales are cast; `rounding` does not concern them.
///
/// # Errors
/// [`QuantizeError`] if the CPU engine does not quantise to `format`, `rounding` does not fit it, or
/// `layout` does not take its scales.
pub fn quantize<T: Real>(
    tokens: Tokens<'_, T>,
    format: &'static FormatSpec,
    rounding: Option<Rounding>,
    layout: &'static Layout,
    multiple: usize,
) -> Result<RawQuantized, QuantizeError> {
    if format.block.is_some_and(|block| block.rows != 1) {
        return Err(QuantizeError::Format {
            format: format.name,
            why: "a block spans rows of different tokens",
        });
    }
    let linear = quantize_padded(tokens, format, rounding, padded(tokens.cols(), format, multiple))?;
    let row_major = RawQuantized {
        format,
        layout: &ROW_MAJOR,
        rows: linear.rows,
        cols: linear.cols,
        payload: linear.payload,
        scales: linear.scales,
    };
    Ok(into_layout(row_major, layout)?)
}

/// Quantises one weight matrix to `format`, blocks of several rows included, with linear scales.
/// Blocks at the lower and right edge may be cut.
///
/// # Errors
/// [`QuantizeError`] if the CPU engine does not quantise to `format` or `rounding` does not fit it.
pub fn quantize_matrix<T: Real>(
    matrix: Tokens<'_, T>,
    format: &'static FormatSpec,
    rounding: Option<Rounding>,
) -> Result<Stack, QuantizeError> {
    quantize_padded(matrix, format, rounding, matrix.cols())
}

/// The elements of a row of `cols` after padding to `multiple` and to the block.
pub(crate) fn padded(cols: usize, format: &FormatSpec, multiple: usize) -> usize {
    let block = format.block.map_or(1, |block| block.cols);
    let multiple = multiple.max(1);
    cols.next_multiple_of(multiple / gcd(multiple, block) * block)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn quantize_padded<T: Real>(
    tokens: Tokens<'_, T>,
    format: &'static FormatSpec,
    rounding: Option<Rounding>,
    cols: usize,
) -> Result<Stack, QuantizeError> {
    let rows = tokens.rows();
    let row_bytes = format.element.bytes(cols);
    let mut payload = vec![0; rows * row_bytes];
    let Some(block) = format.block else {
        if matches!(format.element, ElementType::E2m1 | ElementType::E4m3) {
            return Err(QuantizeError::Format { format: format.name, why: "it has no block scale" });
        }
        payload.par_chunks_mut(row_bytes.max(1)).enumerate().for_each(|(row, bytes)| {
            cast(format.element, tokens.row(row), bytes);
        });
        return Ok(Stack { rows, cols, payload, scales: Vec::new() });
    };
    let scheme = Scheme::new(format, block, rounding)?;
    let scale_cols = cols.div_ceil(block.cols);
    let scale_bytes = scale_cols * block.scale.bytes();
    let mut scales = vec![0; rows.div_ceil(block.rows) * scale_bytes];
    // One band is one row of blocks.
    payload
        .par_chunks_mut((block.rows * row_bytes).max(1))
        .zip(scales.par_chunks_mut(scale_bytes.max(1)))
        .enumerate()
        .for_each_init(
            || vec![0.0; block.rows * cols],
            |values, (band, (payload, scales))| {
                let rows = payload.len() / row_bytes;
                for (row, values) in values.chunks_mut(cols).take(rows).enumerate() {
                    for (value, token) in values.iter_mut().zip(tokens.row(band * block.rows + row)) {
                        *value = token.to_f32();
                    }
                }
                scheme.quantize_band(&values[..rows * cols], cols, payload, scales);
            },
        );
    Ok(Stack { rows, cols, payload, scales })
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

/// How the blocks of one format are quantised.
struct Scheme {
    element: ElementType,
    block: BlockScale,
    choice: Choice,
}

/// How a block's scale is chosen.
enum Choice {
    PowerOfTwo(Rounding),
    Quotient,
}

/// What happens to the elements of a block before they are rounded.
enum Step {
    Multiply(f32),
    Divide(f32),
    AllNan,
}

impl Scheme {
    fn new(
        format: &'static FormatSpec,
        block: BlockScale,
        rounding: Option<Rounding>,
    ) -> Result<Self, QuantizeError> {
        let format_name = format.name;
        let refuse = |why| Err(QuantizeError::Format { format: format_name, why });
        if format.global.is_some() {
            return refuse("its second-level scale is chosen over the whole tensor");
        }
        match format.element {
            ElementType::E4m3 => {}
            ElementType::E2m1 if block.cols.is_multiple_of(2) => {}
            ElementType::E2m1 => return refuse("its blocks end inside a byte"),
            _ => return refuse("16- and 32-bit elements are not scaled by block"),
        }
        let choice = match (block.scale, rounding) {
            (ScaleType::E8m0, Some(rounding)) => Choice::PowerOfTwo(rounding),
            (ScaleType::E8m0, None) => return Err(QuantizeError::NoRounding { format: format_name }),
            (ScaleType::F32, None) => Choice::Quotient,
            (ScaleType::F32, Some(rounding)) => {
                return Err(QuantizeError::Rounding { format: format_name, rounding });
            }
            (ScaleType::E4m3 | ScaleType::Bf16, _) => {
                return refuse("no rule chooses block scales of its type");
            }
        };
        Ok(Self { element: format.element, block, choice })
    }

    /// Quantises rows of `cols` values that share one row of blocks.
    fn quantize_band(&self, values: &[f32], cols: usize, payload: &mut [u8], scales: &mut [u8]) {
        let row_bytes = self.element.bytes(cols);
        for (block, scale) in scales.chunks_exact_mut(self.block.scale.bytes()).enumerate() {
            let start = block * self.block.cols;
            let end = (start + self.block.cols).min(cols);
            // Magnitudes compare as integers, and NaN is the largest of them.
            let rows = values.chunks_exact(cols).map(|row| &row[start..end]);
            let amax = rows.clone().flatten().fold(0, |amax, value| amax.max(value.abs().to_bits()));
            let step = self.choose(f32::from_bits(amax), scale);
            let bytes = self.element.bytes(start)..self.element.bytes(end);
            for (values, payload) in rows.zip(payload.chunks_exact_mut(row_bytes)) {
                encode(self.element, &step, values, &mut payload[bytes.clone()]);
            }
        }
    }

    /// Writes the scale of a block and says what it does to the elements.
    fn choose(&self, amax: f32, scale: &mut [u8]) -> Step {
        match self.choice {
            Choice::PowerOfTwo(rounding) => {
                let byte = e8m0_scale(amax, self.element, rounding);
                scale[0] = byte;
                match byte {
                    255 => Step::AllNan,
                    // As FlashInfer does: what is too small for a scale is zero, its sign kept.
                    0 => Step::Multiply(0.0),
                    _ => Step::Multiply(e8m0_decode(254 - byte)),
                }
            }
            Choice::Quotient => {
                // Saturates an infinity, so that it does not turn its whole block into NaN.
                let amax = if amax.is_infinite() { f32::MAX } else { amax };
                // Not `max`, which would lose a NaN.
                let amax = if amax < SMALLEST_AMAX { SMALLEST_AMAX } else { amax };
                let quotient = amax / largest(self.element);
                // One NaN for all: payload bits of a NaN are not significant, and have to be equal
                // on every engine.
                let quotient = if quotient.is_nan() { f32::NAN } else { quotient };
                scale.copy_from_slice(&quotient.to_le_bytes());
                if quotient.is_nan() { Step::AllNan } else { Step::Divide(quotient) }
            }
        }
    }
}

fn encode(element: ElementType, step: &Step, values: &[f32], bytes: &mut [u8]) {
    match *step {
        Step::Multiply(factor) => encode_each(element, values, bytes, |value| value * factor),
        Step::Divide(divisor) => encode_each(element, values, bytes, |value| value / divisor),
        Step::AllNan => encode_each(element, values, bytes, |_| f32::NAN),
    }
}

fn encode_each(element: ElementType, values: &[f32], bytes: &mut [u8], scaled: impl Fn(f32) -> f32) {
    if element == ElementType::E2m1 {
        for (pair, byte) in values.chunks(2).zip(bytes) {
            let high = pair.get(1).map_or(0, |value| e2m1_encode(scaled(*value)));
            *byte = e2m1_encode(scaled(pair[0])) | high << 4;
        }
    } else {
        for (value, byte) in values.iter().zip(bytes) {
            *byte = e4m3_encode(scaled(*value));
        }
    }
}

#[cfg(test)]
mod tests;
