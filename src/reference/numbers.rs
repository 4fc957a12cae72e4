//! Formats by their definition: codes to values, values to codes, scales from magnitudes.

use rayon::prelude::*;

use super::{NoReference, sized};
use crate::format::{BlockScale, ElementType, FormatSpec, Rounding, ScaleType};

fn power_of_two(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

/// What the codes with the largest exponent stand for.
#[derive(Clone, Copy, PartialEq)]
enum Top {
    /// Numbers, all of them (e2m1).
    Numbers,
    /// Numbers, but for the largest mantissa, which is NaN (e4m3).
    NumbersAndNan,
    /// Infinity and NaN, as IEEE 754 has it.
    Ieee,
}

/// Exponent bits, mantissa bits, and the meaning of the largest exponent.
fn fields(element: ElementType) -> (u32, u32, Top) {
    match element {
        ElementType::E2m1 => (2, 1, Top::Numbers),
        ElementType::E4m3 => (4, 3, Top::NumbersAndNan),
        ElementType::Bf16 => (8, 7, Top::Ieee),
        ElementType::F16 => (5, 10, Top::Ieee),
        ElementType::F32 => (8, 23, Top::Ieee),
    }
}

/// The value of an element code: sign, exponent and mantissa put together.
pub fn decode_element(element: ElementType, code: u32) -> f64 {
    let (exponent_bits, mantissa_bits, top) = fields(element);
    let largest_exponent = (1 << exponent_bits) - 1;
    let largest_mantissa = (1 << mantissa_bits) - 1;
    let bias = largest_exponent / 2;
    let mantissa = code & largest_mantissa;
    let exponent = (code >> mantissa_bits & largest_exponent as u32) as i32;
    let fraction = f64::from(mantissa) / power_of_two(mantissa_bits as i32);
    let magnitude = match top {
        Top::NumbersAndNan if exponent == largest_exponent && mantissa == largest_mantissa => f64::NAN,
        Top::Ieee if exponent == largest_exponent && mantissa == 0 => f64::INFINITY,
        Top::Ieee if exponent == largest_exponent => f64::NAN,
        _ if exponent == 0 => fraction * power_of_two(1 - bias),
        _ => (1.0 + fraction) * power_of_two(exponent - bias),
    };
    if code >> (exponent_bits + mantissa_bits) & 1 == 1 { -magnitude } else { magnitude }
}

/// The value of a scale stored as `bytes`, little-endian; an e8m0 byte `b` is `2^(b - 127)`.
pub fn decode_scale(scale: ScaleType, bytes: &[u8]) -> f64 {
    let code = bytes.iter().rev().fold(0, |code, byte| code << 8 | u32::from(*byte));
    match scale {
        ScaleType::E8m0 if code == 255 => f64::NAN,
        ScaleType::E8m0 => power_of_two(code as i32 - 127),
        ScaleType::E4m3 => decode_element(ElementType::E4m3, code),
        ScaleType::F32 => decode_element(ElementType::F32, code),
        ScaleType::Bf16 => decode_element(ElementType::Bf16, code),
    }
}

/// The codes of one element type, from tables: a layer has hundreds of millions of elements. f32 has
/// none, being the language's own.
pub(super) struct Codes {
    element: ElementType,
    /// The value of each code.
    values: Vec<f64>,
    /// The magnitudes that numbers are rounded to, ascending with their codes.
    magnitudes: Vec<f64>,
}

impl Codes {
    pub(super) fn new(element: ElementType) -> Self {
        let (exponent_bits, _, top) = fields(element);
        let codes = if element == ElementType::F32 { 0 } else { 1 << element.bits() };
        let values: Vec<f64> = (0..codes).map(|code| decode_element(element, code)).collect();
        let is_number = |value: &&f64| value.is_finite();
        let mut magnitudes: Vec<f64> =
            values.iter().take(values.len() / 2).filter(is_number).copied().collect();
        if top == Top::Ieee {
            // For rounding, infinity stands one step above the largest number.
            magnitudes.push(power_of_two(1 << (exponent_bits - 1)));
        }
        Self { element, values, magnitudes }
    }

    fn value(&self, code: u32) -> f64 {
        match self.element {
            ElementType::F32 => f64::from(f32::from_bits(code)),
            _ => self.values[code as usize],
        }
    }

    /// The code whose value is nearest, ties to the even code. FP4 and FP8 saturate; the IEEE types
    /// overflow to infinity from half a step above their largest number. NaN becomes the element's
    /// NaN, or zero where it has none.
    fn nearest(&self, value: f64) -> u32 {
        let (exponent_bits, mantissa_bits, top) = fields(self.element);
        if self.element == ElementType::F32 {
            return (value as f32).to_bits();
        }
        let sign = u32::from(value.is_sign_negative()) << (exponent_bits + mantissa_bits);
        if value.is_nan() {
            return if top == Top::Numbers { 0 } else { sign | ((1 << (exponent_bits + mantissa_bits)) - 1) };
        }
        let target = value.abs();
        let above = self.magnitudes.partition_point(|magnitude| *magnitude < target);
        let code = match (above.checked_sub(1), self.magnitudes.get(above)) {
            (None, _) => 0,
            (Some(largest), None) => largest,
            (Some(below), Some(next)) => {
                let (down, up) = (target - self.magnitudes[below], next - target);
                if up < down || (up == down && above % 2 == 0) { above } else { below }
            }
        };
        sign | code as u32
    }
}

/// The code of `element` whose value is nearest to `value`, ties to the even code.
pub fn encode_element(element: ElementType, value: f64) -> u32 {
    Codes::new(element).nearest(value)
}

fn code_at(element: ElementType, row: &[u8], col: usize) -> u32 {
    match element.bits() {
        4 => u32::from(row[col / 2] >> (col % 2 * 4) & 0xF),
        bits => {
            let bytes = &row[col * bits / 8..][..bits / 8];
            bytes.iter().rev().fold(0, |code, byte| code << 8 | u32::from(*byte))
        }
    }
}

fn put_code(element: ElementType, row: &mut [u8], col: usize, code: u32) {
    match element.bits() {
        4 => row[col / 2] |= (code as u8) << (col % 2 * 4),
        bits => row[col * bits / 8..][..bits / 8].copy_from_slice(&code.to_le_bytes()[..bits / 8]),
    }
}

/// The bytes of a matrix: of its elements, and of its linear scales.
pub(super) fn matrix_bytes(format: &FormatSpec, rows: usize, cols: usize) -> (usize, usize) {
    let scales = format
        .block
        .map_or(0, |block| rows.div_ceil(block.rows) * cols.div_ceil(block.cols) * block.scale.bytes());
    (rows * format.element.bytes(cols), scales)
}

/// Values of one row of a matrix that is `cols` wide.
pub(super) fn row_values(
    codes: &Codes,
    format: &FormatSpec,
    cols: usize,
    row: usize,
    payload: &[u8],
    scales: &[u8],
) -> Vec<f64> {
    let stride = format.element.bytes(cols);
    let payload = &payload[row * stride..][..stride];
    let scale_of = |block: BlockScale, col: usize| {
        let at = (row / block.rows * cols.div_ceil(block.cols) + col / block.cols) * block.scale.bytes();
        decode_scale(block.scale, &scales[at..][..block.scale.bytes()])
    };
    let mut values: Vec<f64> =
        (0..cols).map(|col| codes.value(code_at(format.element, payload, col))).collect();
    if let Some(block) = format.block {
        for (index, values) in values.chunks_mut(block.cols).enumerate() {
            let scale = scale_of(block, index * block.cols);
            values.iter_mut().for_each(|value| *value *= scale);
        }
    }
    values
}

/// The values of `rows` × `cols` elements, row-major: `payload` row-major, each row packed; `scales`
/// linear.
///
/// # Errors
/// [`NoReference`] if the format has a global scale or a buffer has the wrong size.
pub fn dequantize(
    format: &FormatSpec,
    rows: usize,
    cols: usize,
    payload: &[u8],
    scales: &[u8],
) -> Result<Vec<f64>, NoReference> {
    if format.global.is_some() {
        return Err(NoReference::Global(format.name));
    }
    let (payload_bytes, scale_bytes) = matrix_bytes(format, rows, cols);
    sized("the payload", payload.len(), payload_bytes)?;
    sized("the scales", scales.len(), scale_bytes)?;
    let codes = Codes::new(format.element);
    let row = |row| row_values(&codes, format, cols, row, payload, scales);
    Ok((0..rows).into_par_iter().flat_map_iter(row).collect())
}

/// The largest `e` with `2^e <= value`, for a positive finite number.
fn floor_log2(value: f64) -> i32 {
    // The logarithm is rounded, so it may be off by one near a power of two.
    let estimate = value.log2().floor() as i32;
    let candidates = estimate - 1..=estimate + 1;
    candidates.rev().find(|exponent| power_of_two(*exponent) <= value).unwrap_or(estimate)
}

/// The e8m0 byte for a block whose largest magnitude is `amax`, by exact arithmetic. Zero: 0; NaN:
/// 255; infinity: 254.
fn e8m0(amax: f64, element: ElementType, rounding: Rounding) -> u8 {
    if amax.is_nan() {
        return 255;
    }
    if amax == 0.0 || amax.is_infinite() {
        return if amax == 0.0 { 0 } else { 254 };
    }
    let (_, mantissa_bits, _) = fields(element);
    let largest = largest(element);
    let exponent = match rounding {
        Rounding::Rceil => {
            (-127..=127).find(|exponent| amax <= largest * power_of_two(*exponent)).unwrap_or(127)
        }
        Rounding::Floor => floor_log2(amax) - floor_log2(largest),
        Rounding::Even => {
            let step = power_of_two(floor_log2(amax) - mantissa_bits as i32);
            floor_log2((amax / step).round_ties_even() * step) - floor_log2(largest)
        }
        Rounding::Ceil => {
            let floor = floor_log2(amax);
            floor + i32::from(power_of_two(floor) < amax) - floor_log2(largest)
        }
    };
    (exponent.clamp(-127, 127) + 127) as u8
}

fn largest(element: ElementType) -> f64 {
    let (exponent_bits, mantissa_bits, top) = fields(element);
    let all_ones = (1 << (exponent_bits + mantissa_bits)) - 1;
    decode_element(
        element,
        match top {
            Top::Numbers => all_ones,
            Top::NumbersAndNan => all_ones - 1,
            Top::Ieee => all_ones - (1 << mantissa_bits),
        },
    )
}

/// Stored scale and divisor for a block whose largest magnitude is `amax`; no divisor if all that is
/// left of the block's numbers is their sign.
fn choose_scale(
    amax: f64,
    format: &FormatSpec,
    block: BlockScale,
    rounding: Option<Rounding>,
) -> Result<(Vec<u8>, Option<f64>), NoReference> {
    match block.scale {
        ScaleType::E8m0 => {
            let rounding = rounding.ok_or(NoReference::Rounding(format.name))?;
            let byte = e8m0(amax, format.element, rounding);
            // Byte 0 marks a block that is zero or too small to matter; its reciprocal is taken as 0
            // (FlashInfer, `tests/utils_fp8.py`).
            let divisor = (byte != 0).then(|| decode_scale(ScaleType::E8m0, &[byte]));
            Ok((vec![byte], divisor))
        }
        ScaleType::F32 => {
            // The floor of 1e-10 is vLLM's and FlashInfer's (`per_token_group_quant_8bit`).
            let clamped =
                if amax.is_nan() { amax } else { amax.clamp(f64::from(1e-10f32), f64::from(f32::MAX)) };
            let scale = (clamped / largest(format.element)) as f32;
            Ok((scale.to_le_bytes().to_vec(), Some(f64::from(scale))))
        }
        scale => Err(NoReference::Scale { format: format.name, scale }),
    }
}

/// Quantises `values`, row-major rows of `cols`: payload row-major, each row packed; scales linear.
/// A last block that is not full counts as padded with zeros.
///
/// # Errors
/// [`NoReference`] if the format has a scale for which there is no rule, or `values` is not whole
/// rows.
pub fn quantize_rows(
    values: &[f64],
    cols: usize,
    format: &FormatSpec,
    rounding: Option<Rounding>,
) -> Result<(Vec<u8>, Vec<u8>), NoReference> {
    if format.global.is_some() {
        return Err(NoReference::Global(format.name));
    }
    let rows = values.len().checked_div(cols).unwrap_or(0);
    sized("the rows", values.len(), rows * cols)?;
    let codes = Codes::new(format.element);
    let (payload_bytes, scale_bytes) = matrix_bytes(format, rows, cols);
    let mut payload = vec![0; payload_bytes];
    let mut scales = Vec::with_capacity(scale_bytes);
    let stride = format.element.bytes(cols);
    // A format without block scales is one block with the scale 1.
    let (block_rows, block_cols) =
        format.block.map_or((rows.max(1), cols.max(1)), |block| (block.rows, block.cols));
    for first_row in (0..rows).step_by(block_rows) {
        for first_col in (0..cols).step_by(block_cols) {
            let width = block_cols.min(cols - first_col);
            let part = |row: usize| &values[row * cols + first_col..][..width];
            let block_rows = first_row..rows.min(first_row + block_rows);
            let divisor = match format.block {
                None => Some(1.0),
                Some(block) => {
                    let magnitudes = block_rows.clone().flat_map(part).map(|value| value.abs());
                    let (scale, divisor) =
                        choose_scale(magnitudes.fold(0.0, larger), format, block, rounding)?;
                    scales.extend(scale);
                    divisor
                }
            };
            for row in block_rows {
                let payload = &mut payload[row * stride..][..stride];
                for (col, value) in part(row).iter().enumerate() {
                    let code = codes.nearest(divisor.map_or(value * 0.0, |divisor| value / divisor));
                    put_code(format.element, payload, first_col + col, code);
                }
            }
        }
    }
    Ok((payload, scales))
}

/// The larger of two numbers, or NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// `values`, row-major rows of `cols`, after a round trip through `format`.
///
/// # Errors
/// As [`quantize_rows`].
pub fn quantize_dequantize(
    values: &[f64],
    cols: usize,
    format: &FormatSpec,
    rounding: Option<Rounding>,
) -> Result<Vec<f64>, NoReference> {
    let (payload, scales) = quantize_rows(values, cols, format, rounding)?;
    let rows = values.len().checked_div(cols).unwrap_or(0);
    dequantize(format, rows, cols, &payload, &scales)
}
