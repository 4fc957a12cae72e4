mod formats;
mod inputs;

use super::super::fixtures::*;
use super::*;
use crate::cpu::dequantize::dequantize;
use crate::cpu::relayout::relayout;
use crate::format::ScaleType;

fn dynamic() -> Recipe {
    Recipe::default()
}

fn rceil() -> Recipe {
    Recipe::dynamic(Some(Rounding::Rceil))
}

fn rows(values: &[f32], rows: usize) -> Tokens<'_, f32> {
    Tokens::new(values, rows, values.len() / rows).unwrap()
}

fn mx(values: &[f32], format: &'static FormatSpec) -> RawQuantized {
    quantize(rows(values, 1), format, rceil(), &LINEAR, 1).unwrap()
}

/// 5 tokens of 8 blocks, the scale of (row, col) being byte 1 + 8 row + col.
fn distinct_scales() -> Vec<f32> {
    let value = |block: usize| 448.0 * crate::element::e8m0_decode(1 + block as u8);
    (0..5 * 8 * 32).map(|at| value(at / 32)).collect()
}

#[test]
fn scales_go_where_the_layout_says() {
    let values = distinct_scales();
    let swizzled = quantize(rows(&values, 5), &MXFP8, rceil(), &SWIZZLED, 1).unwrap();
    assert_eq!(swizzled.scales.len(), 1024);
    for (row, col, offset) in [(0, 0, 0), (1, 0, 16), (0, 4, 512), (4, 7, 579)] {
        assert_eq!(swizzled.scales[offset], 1 + 8 * row + col, "({row}, {col})");
    }
    assert_eq!(swizzled.scales.iter().filter(|byte| **byte == 0).count(), 984);
    assert!(swizzled.payload.iter().all(|byte| *byte == 0x7E));

    let linear = quantize(rows(&values, 5), &MXFP8, rceil(), &LINEAR, 1).unwrap();
    assert_eq!(linear.scales, (1..=40).collect::<Vec<u8>>());
    assert_eq!(relayout(&linear, &SWIZZLED).unwrap().scales, swizzled.scales);
    assert_eq!(relayout(&swizzled, &LINEAR).unwrap().scales, linear.scales);
    assert_eq!(dequantize(&swizzled, &SWIZZLED).unwrap(), values);
}

#[test]
fn zero_infinity_and_nan() {
    let zero = mx(&[0.0; 32], &MXFP8);
    assert_eq!((zero.scales, zero.payload), (vec![0], vec![0; 32]));

    let mut values = [1.0; 32];
    values[3] = f32::NEG_INFINITY;
    let infinite = mx(&values, &MXFP8);
    assert_eq!((infinite.scales[0], infinite.payload[3], infinite.payload[0]), (254, 0xFE, 0));

    values[3] = f32::NAN;
    let nan = mx(&values, &MXFP8);
    assert_eq!((nan.scales, nan.payload), (vec![0xFF], vec![0x7F; 32]));
    let nan = mx(&values, &MXFP4);
    assert_eq!((nan.scales, nan.payload), (vec![0xFF], vec![0; 16]));
}

#[test]
fn fp4_pairs_have_the_even_element_low() {
    let mut values = [0.0; 32];
    values[..4].copy_from_slice(&[1.0, -6.0, 0.5, 2.0]);
    let packed = mx(&values, &MXFP4);
    assert_eq!(packed.scales, [127]);
    assert_eq!(packed.payload[..2], [0xF2, 0x41]);
}

#[test]
fn f32_scales_are_quotients() {
    let values = [448.0, 1.0, 0.0, -224.0, 0.0, 0.0, 0.0, 0.0, f32::INFINITY, 1.0, 0.0, 0.0];
    let raw = quantize(rows(&values, 1), &FP8_ROWS, dynamic(), &LINEAR, 1).unwrap();
    let scales: Vec<f32> = raw.scales.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(scales, [1.0, 1e-10 / 448.0, f32::MAX / 448.0]);
    assert_eq!(raw.payload, [0x7E, 0x38, 0, 0xF6, 0, 0, 0, 0, 0x7E, 0, 0, 0]);
}

#[test]
fn tiles_of_a_matrix_share_a_scale_and_may_be_cut() {
    // 3 x 5 in tiles of 2 x 4: four tiles, of 8, 2, 4 and 1 elements.
    let values = [
        448.0, 1.0, 1.0, 1.0, 896.0, //
        1.0, 1.0, 1.0, 1.0, 1.0, //
        1.0, 1.0, 1.0, 112.0, 224.0,
    ];
    let stack = quantize_matrix(rows(&values, 3), &FP8_TILES, dynamic()).unwrap();
    let scales: Vec<f32> =
        stack.scales.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(scales, [1.0, 2.0, 0.25, 0.5]);
    assert_eq!(stack.payload[..5], [0x7E, 0x38, 0x38, 0x38, 0x7E]);
    assert_eq!(dequantize_matrix(&FP8_TILES, stack.matrix(&FP8_TILES, 0)).unwrap(), values);
}

#[test]
fn rows_are_padded_with_zeros() {
    let raw = quantize(rows(&[1.0; 40], 1), &MXFP8, rceil(), &LINEAR, 96).unwrap();
    assert_eq!((raw.cols, raw.payload.len(), raw.scales.len()), (96, 96, 3));
    assert_eq!((raw.payload[39], &raw.payload[40..]), (0x78, [0; 56].as_slice()));
    assert_eq!(raw.scales, [119, 119, 0]);
    assert_eq!(padded(40, &FP8_ROWS, 6), 48);
}

#[test]
fn plain_formats_are_cast() {
    let raw = quantize(rows(&[1.0, -2.0], 1), &BF16, dynamic(), &UNSCALED, 4).unwrap();
    assert_eq!(raw.payload, [0x80, 0x3F, 0x00, 0xC0, 0, 0, 0, 0]);
    assert!(raw.scales.is_empty());
}

#[test]
fn no_rows() {
    let none = Tokens::<f32>::new(&[], 0, 64).unwrap();
    let raw = quantize(none, &MXFP8, rceil(), &SWIZZLED, 1).unwrap();
    assert!(raw.payload.is_empty() && raw.scales.is_empty());
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |format, recipe, layout| {
        let values = [1.0; 64];
        quantize(rows(&values, 1), format, recipe, layout, 1).unwrap_err()
    };
    let multiplier = Calibrated::Static(crate::scale::Multiplier::new(0.5).unwrap());
    let fixed = Recipe { calibrated: Some(multiplier), ..Recipe::default() };
    assert_eq!(refused(&NVFP4, dynamic(), &LINEAR), QuantizeError::NoScale { format: "nvfp4" });
    assert_eq!(refused(&NVFP4, fixed, &LINEAR), QuantizeError::NoScale { format: "nvfp4" });
    assert_eq!(refused(&FP8_ROWS, fixed, &LINEAR), QuantizeError::Scale { format: "fp8_1x4" });
    assert_eq!(refused(&BF16, fixed, &UNSCALED), QuantizeError::Scale { format: "bf16" });
    assert!(matches!(refused(&MXFP8, dynamic(), &LINEAR), QuantizeError::NoRounding { .. }));
    let wrong = WrongSize::ScaleType { layout: "swizzled_128x4", format: "fp8_1x4", scale: ScaleType::F32 };
    assert_eq!(refused(&FP8_ROWS, dynamic(), &SWIZZLED), QuantizeError::Size(wrong));

    let mut short = mx(&[1.0; 32], &MXFP8);
    short.scales.pop();
    assert!(matches!(relayout(&short, &SWIZZLED), Err(WrongSize::Scales { expected: 1, got: 0, .. })));
    let mut lost = mx(&[1.0; 32], &MXFP8);
    lost.zero_points.push(0);
    assert!(matches!(dequantize(&lost, &LINEAR), Err(WrongSize::ZeroPointBytes { expected: 0, got: 1, .. })));
}

#[test]
fn payloads_are_used_again_whatever_they_hold() {
    let values = distinct_scales();
    for garbage in [Vec::new(), vec![0xAA; 7], vec![0xAA; 100_000]] {
        let again = quantize_reusing(rows(&values, 5), &MXFP4, rceil(), &LINEAR, 1, garbage).unwrap();
        assert_eq!(again.payload, quantize(rows(&values, 5), &MXFP4, rceil(), &LINEAR, 1).unwrap().payload);
    }
}

#[test]
fn one_tile_may_be_the_matrix() {
    let values = [1.0, -448.0, 0.0, 2.0, 224.0, 7.0];
    let tensor = &crate::generated::formats::FP8_TENSOR;
    let raw = quantize(rows(&values, 2), tensor, dynamic(), &crate::generated::layouts::LINEAR, 1).unwrap();
    assert_eq!(raw.scales, 1f32.to_le_bytes());
    assert_eq!(raw.payload, [0x38, 0xFE, 0, 0x40, 0x76, 0x4E]);
}
