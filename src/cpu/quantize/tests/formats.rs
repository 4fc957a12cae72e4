//! Every format of the table: against the reference, and one vector unit against another.

use super::super::steps::{Operation, Step, Steps};
use super::super::vector::VectorUnit;
use super::*;
use crate::element::{e2m1_encode, e4m3_encode, largest};
use crate::generated::formats::FORMATS;
use crate::reference;
use crate::scale::Multiplier;

const ROUNDINGS: [Rounding; 4] = [Rounding::Rceil, Rounding::Floor, Rounding::Even, Rounding::Ceil];

/// Every recipe that a format takes, as far as rounding rules and kinds of scales go.
fn recipes(format: &FormatSpec) -> Vec<Recipe> {
    let Some(block) = format.block else { return vec![Recipe::default()] };
    if format.global.is_some() {
        let global = Calibrated::Global(Divisor::new(100.0).unwrap());
        return vec![Recipe { calibrated: Some(global), ..Recipe::default() }];
    }
    let by_rule = ROUNDINGS.map(|rounding| Recipe::dynamic(Some(rounding)));
    let mut recipes = Vec::new();
    if block.scale != ScaleType::E8m0 {
        recipes.push(Recipe::default());
    }
    let is_float = !matches!(format.element, ElementType::Int4 | ElementType::Uint4 | ElementType::Int8);
    if matches!(block.scale, ScaleType::E8m0 | ScaleType::F32) && is_float {
        recipes.extend(by_rule);
    }
    if block.rows == Reach::Whole && block.cols == Reach::Whole {
        let fixed = Calibrated::Static(Multiplier::new(3.0 / largest(format.element)).unwrap());
        recipes.push(Recipe { calibrated: Some(fixed), ..Recipe::default() });
    }
    recipes
}

/// The same numbers on every run.
fn random_bits() -> impl FnMut() -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Numbers as they are, magnitudes over some orders of magnitude from block to block.
fn numbers(count: usize) -> Vec<f32> {
    let mut bits = random_bits();
    let mut number = |at: usize| {
        let uniform = (bits() >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        uniform * ((at / 16 % 12) as f32 - 6.0).exp2()
    };
    (0..count).map(&mut number).collect()
}

/// What rounding costs at most, relative to the largest number: half a step there, and as much again where
/// a scale that is rounded to 16 bits saturates it.
fn coarseness(element: ElementType) -> f64 {
    match element {
        ElementType::E2m1 => 1.0 / 6.0,
        _ => 1.0 / 14.0,
    }
}

#[test]
fn the_engine_agrees_with_the_reference() {
    let (row_count, cols) = (5, 320);
    let values = numbers(row_count * cols);
    let exact: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
    for format in FORMATS {
        for recipe in recipes(format) {
            let of = format!("{} by {recipe:?}", format.name);
            let ours = quantize_matrix(rows(&values, row_count), format, recipe).expect(&of);
            let judge = reference::quantize_rows(&exact, cols, format, recipe).expect(&of);
            assert_eq!(ours.scales, judge.scales, "{of}");
            assert_eq!(ours.zero_points, judge.zero_points, "{of}");
            assert_eq!(ours.globals, judge.globals, "{of}");
            // f32 arithmetic may fall to the other side of a tie; the codes are neighbours then.
            let differing = ours.payload.iter().zip(&judge.payload).filter(|(a, b)| a != b).count();
            assert!(differing * 200 <= ours.payload.len(), "{of}: {differing} of {}", ours.payload.len());

            let back = dequantize_matrix(format, ours.matrix(format, 0)).unwrap();
            let judged = reference::dequantize(format, ours.matrix(format, 0)).unwrap();
            let amax = judged.iter().fold(0.0f64, |amax, value| amax.max(value.abs()));
            for ((back, judged), value) in back.iter().zip(&judged).zip(&exact) {
                assert!((f64::from(*back) - judged).abs() <= 1e-6 * amax, "{of}: {back} is not {judged}");
                let is_saturated = recipe.rounding.is_some() || recipe.calibrated.is_some();
                let allowed = coarseness(format.element) * amax;
                assert!(is_saturated || (judged - value).abs() <= allowed, "{of}: {value} became {judged}");
            }
        }
    }
}

#[test]
fn every_vector_unit_gives_the_same_bytes() {
    let unit = VectorUnit::detect();
    let mut bits = random_bits();
    // Rows of any bits: subnormals, infinities and NaN among them; then ones of a common magnitude, with
    // a few of those; 2 * 37 + 9 elements leave something over of whatever loops take at a time.
    let row_count = 64;
    for cols in [83, 97, 320] {
        let mut value = |at: usize| match at / cols % 3 {
            0 => f32::from_bits(bits() as u32),
            1 => f32::from_bits(bits() as u32 & 0x83FF_FFFF | 0x3C00_0000),
            _ if bits().is_multiple_of(200) => [f32::NAN, f32::INFINITY, -1e-42, -0.0][bits() as usize % 4],
            _ => (bits() as i32 as f32) * 1e-9,
        };
        let values: Vec<f32> = (0..row_count * cols).map(&mut value).collect();
        let halves: Vec<half::bf16> = values.iter().copied().map(half::bf16::from_f32).collect();
        let float16: Vec<half::f16> = values.iter().copied().map(half::f16::from_f32).collect();
        for format in FORMATS.iter().filter(|format| format.block.is_some()) {
            for recipe in recipes(format) {
                let of = format!("{} by {recipe:?}, {cols} columns", format.name);
                let width = padded(cols, format, 1);
                let singles = |unit| {
                    quantize_padded(unit, rows(&values, row_count), format, recipe, width, Vec::new())
                        .unwrap()
                };
                assert_same(&singles(unit), &singles(VectorUnit::PORTABLE), &of);
                let narrow = |unit| {
                    let tokens = Tokens::new(&halves, row_count, cols).unwrap();
                    quantize_padded(unit, tokens, format, recipe, width, Vec::new()).unwrap()
                };
                assert_same(&narrow(unit), &narrow(VectorUnit::PORTABLE), &of);
                let half = |unit| {
                    let tokens = Tokens::new(&float16, row_count, cols).unwrap();
                    quantize_padded(unit, tokens, format, recipe, width, Vec::new()).unwrap()
                };
                assert_same(&half(unit), &half(VectorUnit::PORTABLE), &of);
            }
        }
    }
}

/// All signs, exponents and seven bits of mantissa, each a tie, just below or just above one, or neither.
#[test]
fn every_vector_unit_casts_as_one_number_is_cast() {
    let lows = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1234, 0xEDCB];
    let values: Vec<f32> =
        (0..1u32 << 16).flat_map(|high| lows.map(|low| f32::from_bits(high << 16 | low))).collect();
    for unit in [VectorUnit::detect(), VectorUnit::PORTABLE] {
        let steps = [
            (Operation::Multiply, 1.0),
            (Operation::Multiply, 0.0),
            (Operation::Multiply, f32::NAN),
            (Operation::Divide, 3.0),
            (Operation::Divide, f32::INFINITY),
        ];
        for step in steps.map(|(operation, by)| Step { operation, by, zero_point: 0 }) {
            let scaled = |value: &f32| match step.operation {
                _ if step.by.is_nan() => f32::NAN,
                Operation::Multiply => value * step.by,
                Operation::Divide | Operation::Shift => value / step.by,
            };
            for group in values.as_chunks::<32>().0 {
                let mut coded = [[0; 32]];
                unit.e4m3(Steps::one(&step), &[*group], &mut coded);
                let expected: Vec<u8> = group.iter().map(|value| e4m3_encode(scaled(value))).collect();
                assert_eq!(coded[0].as_slice(), expected, "{group:?} and {step:?}");
            }
            for group in values.as_chunks::<16>().0 {
                let mut coded = [[0; 8]];
                unit.e2m1(Steps::one(&step), &[*group], &mut coded);
                let code = |value| e2m1_encode(scaled(value));
                let expected: Vec<u8> =
                    group.as_chunks().0.iter().map(|[low, high]| code(low) | code(high) << 4).collect();
                assert_eq!(coded[0].as_slice(), expected, "{group:?} and {step:?}");
            }
        }
    }
}

fn assert_same(a: &Stack, b: &Stack, of: &str) {
    assert!(a.payload == b.payload, "payload of {of}");
    assert!(a.scales == b.scales, "scales of {of}");
    assert!(a.zero_points == b.zero_points, "zero points of {of}");
}

#[test]
fn zero_and_nan_blocks_of_every_format() {
    let mut values = vec![0.0; 3 * 128];
    values[128..].fill(1.0);
    values[300] = f32::NAN;
    for format in FORMATS.iter().filter(|format| format.block.is_some_and(|block| block.rows == Reach::Of(1)))
    {
        for recipe in recipes(format) {
            let of = format!("{} by {recipe:?}", format.name);
            let stack = quantize_matrix(rows(&values, 3), format, recipe).expect(&of);
            let back = dequantize_matrix(format, stack.matrix(format, 0)).unwrap();
            assert!(back[..128].iter().all(|value| *value == 0.0), "{of}");
            assert!(back[128..256].iter().all(|value| value.is_finite() && *value > 0.0), "{of}");
            let block = format.block_size(Extent { rows: 3, cols: 128 }).cols;
            let start = 256 + 44 / block * block;
            assert!(back[start..start + block].iter().all(|value| value.is_nan()), "{of}");
            let payload = &stack.payload[..format.element.bytes(128)];
            assert!(payload.iter().all(|byte| *byte == 0), "{of}");
        }
    }
}

#[test]
fn zero_points_centre_what_is_not_centred() {
    let format = &crate::generated::formats::UINT4_G128;
    let values: Vec<f32> = (0..128).map(|at| at as f32 / 8.0 - 3.0).collect();
    let stack = quantize_matrix(rows(&values, 1), format, dynamic()).unwrap();
    // From -3 to 12.875: a step is 15.875 / 15, and 3 / that rounds to 3.
    assert_eq!(stack.zero_points, [3]);
    assert_eq!(stack.scales, half::bf16::from_f32(15.875 / 15.0).to_le_bytes());
    let back = dequantize_matrix(format, stack.matrix(format, 0)).unwrap();
    assert!(values.iter().zip(&back).all(|(value, back)| (value - back).abs() < 0.75), "{back:?}");
    assert_eq!(back[24], 0.0);
}

#[test]
fn a_second_level_scales_the_block_scales() {
    let global = Calibrated::Global(Divisor::new(256.0).unwrap());
    let recipe = Recipe { calibrated: Some(global), ..Recipe::default() };
    let mut values = [0.5; 48];
    values[0] = -6.0;
    values[16..32].fill(0.0);
    values[40] = f32::NAN;
    let raw = quantize(rows(&values, 1), &NVFP4, recipe, &crate::generated::layouts::LINEAR, 1).unwrap();
    // 256 * (6 / 6), zero, NaN.
    assert_eq!(raw.scales, [0x78, 0, 0x7F]);
    assert_eq!((raw.payload[0], raw.payload[1], &raw.payload[8..]), (0x1F, 0x11, [0; 16].as_slice()));
    let back = dequantize(&raw, &crate::generated::layouts::LINEAR).unwrap();
    assert_eq!((back[0], back[1], back[16]), (-6.0, 0.5, 0.0));
    assert!(back[32].is_nan());
}

#[test]
fn f32_scales_may_be_powers_of_two() {
    let format = &crate::generated::formats::FP8_1X128;
    let mut values = [1.0; 256];
    values[5] = 450.0;
    values[128..].fill(0.0);
    let raw = quantize(rows(&values, 1), format, rceil(), &crate::generated::layouts::LINEAR, 1).unwrap();
    let scales: Vec<f32> = raw.scales.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    // 2^ceil(log2(450 / 448)), and of the smallest magnitude, 1e-10.
    assert_eq!(scales, [2.0, 2f32.powi(-42)]);
    assert_eq!((raw.payload[5], raw.payload[0]), (e4m3_encode(225.0), 0x30));
}
