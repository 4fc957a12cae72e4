//! Formats by their definition: codes to values, values to codes, scales from magnitudes.

use rayon::prelude::*;

use super::{NoReference, sized};
use crate::format::{BlockScale, ElementType, FormatSpec, Rounding, ScaleType};
use crate::layout::Extent;
use crate::recipe::Recipe;
use crate::scale::Calibrated;
use crate::weights::canonical::{Matrix, Stack};

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

/// The smallest and the largest number of an integer type.
fn integers(element: ElementType) -> Option<(i32, i32)> {
    match element {
        ElementType::Int4 => Some((-8, 7)),
        ElementType::Uint4 => Some((0, 15)),
        ElementType::Int8 => Some((-128, 127)),
        _ => None,
    }
}

/// Exponent bits, mantissa bits, and the meaning of the largest exponent, of a float type.
fn fields(element: ElementType) -> (u32, u32, Top) {
    match element {
        ElementType::E2m1 => (2, 1, Top::Numbers),
        ElementType::E2m3 => (2, 3, Top::Numbers),
        ElementType::E3m2 => (3, 2, Top::Numbers),
        ElementType::E4m3 => (4, 3, Top::NumbersAndNan),
        ElementType::E5m2 => (5, 2, Top::Ieee),
        ElementType::Int4 | ElementType::Uint4 | ElementType::Int8 => unreachable!("integers have no fields"),
        ElementType::Bf16 => (8, 7, Top::Ieee),
        ElementType::F16 => (5, 10, Top::Ieee),
        ElementType::F32 => (8, 23, Top::Ieee),
    }
}

/// The value of an element code: sign, exponent and mantissa put together.
pub fn decode_element(element: ElementType, code: u32) -> f64 {
    if let Some((smallest, largest)) = integers(element) {
        let code = code as i32;
        return f64::from(if code > largest { code - (largest - smallest + 1) } else { code });
    }
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
        ScaleType::F16 => decode_element(ElementType::F16, code),
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
        if integers(element).is_some() {
            let values = (0..1 << element.bits()).map(|code| decode_element(element, code)).collect();
            return Self { element, values, magnitudes: Vec::new() };
        }
        let (exponent_bits, mantissa_bits, top) = fields(element);
        let codes = if element == ElementType::F32 { 0 } else { 1 << element.bits() };
        let values: Vec<f64> = (0..codes).map(|code| decode_element(element, code)).collect();
        let is_number = |value: &&f64| value.is_finite();
        let mut magnitudes: Vec<f64> =
            values.iter().take(1 << (exponent_bits + mantissa_bits)).filter(is_number).copied().collect();
        if top == Top::Ieee && element != ElementType::E5m2 {
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

    /// The code whose value is nearest, ties to the even code. FP4, FP6, FP8 and integers saturate; bf16,
    /// f16 and f32 overflow to infinity from half a step above their largest number. NaN becomes the
    /// element's NaN, or zero where it has none.
    fn nearest(&self, value: f64) -> u32 {
        if let Some((smallest, largest)) = integers(self.element) {
            let nearest = value.round_ties_even().clamp(smallest.into(), largest.into());
            return nearest as i32 as u32 & ((1 << self.element.bits()) - 1);
        }
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

/// Values of row `row` of a matrix.
pub(super) fn row_values(codes: &Codes, format: &FormatSpec, row: usize, matrix: &Matrix<'_>) -> Vec<f64> {
    let extent = Extent { rows: matrix.rows, cols: matrix.cols };
    let stride = format.element.bytes(extent.cols);
    let payload = &matrix.payload[row * stride..][..stride];
    let mut values: Vec<f64> =
        (0..extent.cols).map(|col| codes.value(code_at(format.element, payload, col))).collect();
    if let Some(block) = format.block {
        let size = block.size(extent);
        for (index, values) in values.chunks_mut(size.cols).enumerate() {
            let at = row / size.rows * block.scales(extent).cols + index;
            let bytes = block.scale.bytes();
            let scale = decode_scale(block.scale, &matrix.scales[at * bytes..][..bytes]);
            let zero = if block.zero_point.is_some() { f64::from(matrix.zero_points[at]) } else { 0.0 };
            values.iter_mut().for_each(|value| *value = (*value - zero) * scale);
        }
    }
    if let Some(global) = matrix.global {
        values.iter_mut().for_each(|value| *value *= f64::from(global.get()));
    }
    values
}

/// The values of `matrix`, row-major.
///
/// # Errors
/// [`NoReference`] if a buffer has the wrong size, or whether there is a second-level scale does not
/// agree with the format.
pub fn dequantize(format: &FormatSpec, matrix: Matrix<'_>) -> Result<Vec<f64>, NoReference> {
    if format.global.is_some() != matrix.global.is_some() {
        return Err(NoReference::Global(format.name));
    }
    let extent = Extent { rows: matrix.rows, cols: matrix.cols };
    let (payload, scales) = format.matrix_bytes(extent);
    sized("the payload", matrix.payload.len(), payload)?;
    sized("the scales", matrix.scales.len(), scales)?;
    sized("the zero points", matrix.zero_points.len(), format.zero_points(extent))?;
    let codes = Codes::new(format.element);
    let row = |row| row_values(&codes, format, row, &matrix);
    Ok((0..matrix.rows).into_par_iter().flat_map_iter(row).collect())
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
    if let Some((_, largest)) = integers(element) {
        return largest.into();
    }
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

/// What a block is stored by.
struct ChosenScale {
    scale: Vec<u8>,
    zero_point: Option<u8>,
    /// What elements are divided by; nothing if all that is left of the block's numbers is their sign.
    divisor: Option<f64>,
}

/// The scale of a block of `values`.
fn choose_scale(
    values: impl Iterator<Item = f64> + Clone,
    format: &FormatSpec,
    block: BlockScale,
    recipe: Recipe,
) -> Result<ChosenScale, NoReference> {
    let amax = values.clone().map(f64::abs).fold(0.0, larger);
    let no_rule = NoReference::Scale { format: format.name, scale: block.scale };
    let symmetric = |(scale, divisor)| Ok(ChosenScale { scale, zero_point: None, divisor });
    let is_integer = integers(format.element).is_some();
    match (recipe.calibrated, block.scale, recipe.rounding) {
        (Some(Calibrated::Global(global)), ScaleType::E4m3, None) => {
            let global = f64::from(global.get());
            // The magnitude, so that a NaN has no sign.
            let code = encode_element(ElementType::E4m3, global * amax / largest(format.element)) & 0x7F;
            let scale = decode_element(ElementType::E4m3, code);
            symmetric((vec![code as u8], (scale != 0.0).then_some(scale / global)))
        }
        (Some(Calibrated::Static(scale)), ScaleType::F32, None) => {
            symmetric((scale.get().to_le_bytes().to_vec(), Some(f64::from(scale.get()))))
        }
        (Some(_), ..) => Err(NoReference::Calibrated(format.name)),
        (None, ScaleType::E8m0, None) => Err(NoReference::Rounding(format.name)),
        (None, ScaleType::E8m0, Some(rounding)) if !is_integer => {
            let byte = e8m0(amax, format.element, rounding);
            // Byte 0 marks a block that is zero or too small to matter; its reciprocal is taken as 0
            // (FlashInfer, `tests/utils_fp8.py`).
            let divisor = (byte != 0).then(|| decode_scale(ScaleType::E8m0, &[byte]));
            symmetric((vec![byte], divisor))
        }
        (None, ScaleType::F32, Some(rounding)) if !is_integer => {
            let byte = e8m0(clamped(amax), format.element, rounding);
            symmetric(stored(block.scale, decode_scale(ScaleType::E8m0, &[byte])))
        }
        (None, ScaleType::F32 | ScaleType::Bf16 | ScaleType::F16, None) if block.zero_point.is_some() => {
            let least = values.clone().fold(0.0, |a, b| -larger(-a, -b));
            let greatest = values.fold(0.0, larger);
            let codes = largest(format.element);
            let (scale, divisor) = stored(block.scale, clamped(greatest - least) / codes);
            let zero_point = divisor.map_or(0.0, |divisor| (-least / divisor).round_ties_even());
            Ok(ChosenScale { scale, zero_point: Some(zero_point.clamp(0.0, codes) as u8), divisor })
        }
        (None, ScaleType::F32 | ScaleType::Bf16 | ScaleType::F16, None) => {
            symmetric(stored(block.scale, clamped(amax) / largest(format.element)))
        }
        _ => Err(no_rule),
    }
}

/// `amax` with the floor of 1e-10 that vLLM and FlashInfer have (`per_token_group_quant_8bit`), and
/// with what f32 holds as the ceiling.
fn clamped(amax: f64) -> f64 {
    if amax.is_nan() { amax } else { amax.clamp(f64::from(1e-10f32), f64::from(f32::MAX)) }
}

/// `scale` rounded to its stored type, saturating: the bytes and the value, nothing if that is 0.
fn stored(scale_type: ScaleType, scale: f64) -> (Vec<u8>, Option<f64>) {
    let element = match scale_type {
        ScaleType::Bf16 => ElementType::Bf16,
        ScaleType::F16 => ElementType::F16,
        ScaleType::F32 | ScaleType::E8m0 | ScaleType::E4m3 => ElementType::F32,
    };
    let largest = largest(element);
    let scale = if scale > largest { largest } else { scale };
    let bytes = encode_element(element, scale).to_le_bytes()[..scale_type.bytes()].to_vec();
    let value = decode_scale(scale_type, &bytes);
    (bytes, (value != 0.0).then_some(value))
}

/// Quantises `values`, row-major rows of `cols`, to one matrix. A last block that is not full counts
/// as padded with zeros.
///
/// # Errors
/// [`NoReference`] if the format has a scale for which there is no rule, the recipe lacks a scale or
/// has one too many, or `values` is not whole rows.
pub fn quantize_rows(
    values: &[f64],
    cols: usize,
    format: &FormatSpec,
    recipe: Recipe,
) -> Result<Stack, NoReference> {
    let global = match recipe.calibrated {
        Some(Calibrated::Global(global)) => Some(global.to_multiplier()),
        Some(Calibrated::Static(_)) | None => None,
    };
    if format.global.is_some() != global.is_some() {
        return Err(NoReference::Global(format.name));
    }
    let rows = values.len().checked_div(cols).unwrap_or(0);
    sized("the rows", values.len(), rows * cols)?;
    let codes = Codes::new(format.element);
    let extent = Extent { rows, cols };
    let (payload_bytes, scale_bytes) = format.matrix_bytes(extent);
    let mut stack = Stack::new(rows, cols, vec![0; payload_bytes], Vec::with_capacity(scale_bytes));
    stack.globals.extend(global);
    let stride = format.element.bytes(cols);
    // A format without block scales is one block with the scale 1. Of no rows there may be a block too:
    // a whole matrix has its scale, whatever its size.
    let blocks = format.block.map_or(Extent { rows: 1, cols: 1 }, |block| block.scales(extent));
    let size = format.block.map_or(extent, |block| block.size(extent));
    for block_row in 0..blocks.rows {
        for block_col in 0..blocks.cols {
            let (first_row, first_col) = (block_row * size.rows, block_col * size.cols);
            let width = size.cols.min(cols - first_col);
            let part = |row: usize| &values[row * cols + first_col..][..width];
            let block_rows = first_row..rows.min(first_row + size.rows);
            let (mut divisor, mut zero_point) = (Some(1.0), 0.0);
            if let Some(block) = format.block {
                let numbers = block_rows.clone().flat_map(part).copied();
                let chosen = choose_scale(numbers, format, block, recipe)?;
                stack.scales.extend(chosen.scale);
                stack.zero_points.extend(chosen.zero_point);
                divisor = chosen.divisor;
                zero_point = chosen.zero_point.map_or(0.0, f64::from);
            }
            for row in block_rows {
                let payload = &mut stack.payload[row * stride..][..stride];
                for (col, value) in part(row).iter().enumerate() {
                    let scaled = divisor.map_or(value * 0.0, |divisor| value / divisor);
                    // Rounded before the zero point is added: a tie goes the same way wherever that is.
                    let code = match format.block.and_then(|block| block.zero_point) {
                        Some(_) => codes.nearest(scaled.round_ties_even() + zero_point),
                        None => codes.nearest(scaled),
                    };
                    put_code(format.element, payload, first_col + col, code);
                }
            }
        }
    }
    Ok(stack)
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
    recipe: Recipe,
) -> Result<Vec<f64>, NoReference> {
    dequantize(format, quantize_rows(values, cols, format, recipe)?.matrix(format, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Reach;

    fn scaled(rows: Reach, cols: Reach) -> FormatSpec {
        let block = BlockScale { scale: ScaleType::F32, rows, cols, zero_point: None };
        FormatSpec { block: Some(block), ..FormatSpec::unscaled("fp8", ElementType::E4m3) }
    }

    /// One scale for the whole matrix, none for each of its rows.
    #[test]
    fn no_rows() {
        for (rows, scales) in [(Reach::Whole, 1), (Reach::Of(1), 0), (Reach::Of(128), 0)] {
            let format = scaled(rows, Reach::Whole);
            let stack = quantize_rows(&[], 96, &format, Recipe::default()).unwrap();
            assert_eq!((stack.payload.len(), stack.scales.len()), (0, 4 * scales), "{rows:?}");
            assert_eq!(dequantize(&format, stack.matrix(&format, 0)), Ok(Vec::new()), "{rows:?}");
        }
    }
}
