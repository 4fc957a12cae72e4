//! Public bugs about numbers as tests, by their number in the catalogue they were collected in.

use std::collections::BTreeMap;

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use scalewright::backend::{Activation, Parameter};
use scalewright::config::{ActivationFunction, Refused, honours};
use scalewright::cpu::dequantize::{dequantize, dequantize_matrix};
use scalewright::cpu::quantize::{quantize, quantize_matrix};
use scalewright::format::{FormatSpec, Rounding, ScaleType};
use scalewright::generated::BackendId;
use scalewright::generated::formats::{
    FP8_128X128, FP8_128X128_UE8M0, MXFP4, MXFP8, Mxfp4, Mxfp8, NVFP4, Nvfp4,
};
use scalewright::generated::layouts::{LINEAR, Linear, SWIZZLED_128X4, Swizzled128x4};
use scalewright::layout::Extent;
use scalewright::moe::activation::activate;
use scalewright::recipe::Recipe;
use scalewright::scale::{Calibrated, Divisor};
use scalewright::tensor::{Quantized, Tokens};
use scalewright::weights::canonical::{Canonical, Stack};
use scalewright::weights::gpt_oss;
use scalewright::weights::requantize::requantize;

/// Scale bytes, and what they are worth. Copied as numbers into bytes they would be 0, 0, 1, 8, 0.
const T12_BYTES: [u8; 5] = [120, 125, 127, 130, 140];
const T12_VALUES: [f32; 5] = [0.0078125, 0.25, 1.0, 8.0, 8192.0];

/// One row of five blocks, every element 1.
#[test]
fn t12_scale_bytes_are_not_numbers() {
    let mxfp8 = Quantized::<Mxfp8, Linear>::load(1, 160, vec![0x38; 160], T12_BYTES.to_vec()).unwrap();
    assert_eq!(mxfp8.scales(), T12_BYTES);
    let mxfp4 = Quantized::<Mxfp4, Linear>::load(1, 160, vec![0x22; 80], T12_BYTES.to_vec()).unwrap();
    let values = T12_VALUES.map(|value| [value; 32]).concat();
    assert_eq!(dequantize(mxfp8.raw(), &LINEAR).unwrap(), values);
    assert_eq!(dequantize(mxfp4.raw(), &LINEAR).unwrap(), values);
    let moved: Quantized<Mxfp8, Swizzled128x4> = mxfp8.relayout().unwrap();
    assert_eq!(dequantize(moved.raw(), &SWIZZLED_128X4).unwrap(), values);
    assert_eq!(moved.relayout::<Linear>().unwrap().scales(), T12_BYTES);
}

/// The same from a checkpoint: one expert, hidden size 160, 32 rows a half.
#[test]
fn t12_a_checkpoint_keeps_its_scale_bytes() {
    let scales: Vec<u8> = T12_BYTES.repeat(64);
    let zeros = |count: usize| vec![0u8; count];
    let tensors: BTreeMap<&str, (Dtype, Vec<usize>, Vec<u8>)> = [
        ("mlp.experts.gate_up_proj_blocks", (Dtype::U8, vec![1, 64, 5, 16], vec![0x22; 64 * 80])),
        ("mlp.experts.gate_up_proj_scales", (Dtype::U8, vec![1, 64, 5], scales)),
        ("mlp.experts.gate_up_proj_bias", (Dtype::BF16, vec![1, 64], zeros(128))),
        ("mlp.experts.down_proj_blocks", (Dtype::U8, vec![1, 160, 1, 16], zeros(160 * 16))),
        ("mlp.experts.down_proj_scales", (Dtype::U8, vec![1, 160, 1], vec![127; 160])),
        ("mlp.experts.down_proj_bias", (Dtype::BF16, vec![1, 160], zeros(320))),
    ]
    .into();
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), safetensors::serialize(views, None).unwrap()).unwrap();

    let weights = gpt_oss::load(file.path(), &MXFP4, None).unwrap().weights;
    assert_eq!(weights.up.scales, T12_BYTES.repeat(32));
    let values = dequantize_matrix(&MXFP4, weights.up.matrix(&MXFP4, 0)).unwrap();
    assert_eq!(values, T12_VALUES.map(|value| [value; 32]).concat().repeat(32));
}

/// One block of 128 x 128 with the scale 0.3: the largest element, which makes the power of two 0.5,
/// and an element of 10, which is worth 3.
#[test]
fn t14_a_rounded_scale_needs_new_elements() {
    let payload_10 = 0x52;
    let matrix = || {
        let mut payload = vec![0; 128 * 128];
        payload[..2].copy_from_slice(&[0x7E, payload_10]);
        Stack::new(128, 128, payload, 0.3f32.to_le_bytes().to_vec())
    };
    let weights = Canonical {
        format: &FP8_128X128,
        experts: 1,
        hidden: 128,
        intermediate: 128,
        gate: Some(matrix()),
        up: matrix(),
        down: matrix(),
        biases: None,
    };
    let requantised = requantize(&weights, &FP8_128X128_UE8M0).unwrap();
    for stack in [requantised.gate.unwrap(), requantised.up, requantised.down] {
        let values = dequantize_matrix(&FP8_128X128_UE8M0, stack.matrix(&FP8_128X128_UE8M0, 0)).unwrap();
        // 0.5, 6 and 3; the old element under the new scale would be worth 5.
        assert_eq!((stack.scales.as_slice(), stack.payload[1], values[1]), ([126].as_slice(), 0x4C, 3.0));
        assert_ne!(stack.payload[1], payload_10);
    }
    // Bytes of one format do not pass for the other's: an f32 has four, an exponent one.
    let kept = matrix();
    assert!(dequantize_matrix(&FP8_128X128_UE8M0, kept.matrix(&FP8_128X128, 0)).is_err());
}

/// Five rows of eight blocks, no scale byte being 0 or NaN.
fn t15_tokens(block: usize) -> Vec<f32> {
    let scale = |at: usize| 1.0 + (at / block % 8) as f32 / 8.0;
    (0..5 * 8 * block).map(|at| 6.0 * scale(at) * f32::powi(2.0, (at / (8 * block)) as i32)).collect()
}

/// 40 of 1024 bytes are scales; the others are zero, whatever was in memory before.
fn assert_padding_is_zero(scales: &[u8]) {
    assert_eq!(scales.len(), 1024);
    let physical = SWIZZLED_128X4.physical(Extent { rows: 5, cols: 8 }).unwrap();
    let is_scale = |offset: usize| {
        let (row, col) = (SWIZZLED_128X4.locate)(offset, physical);
        row < 5 && col < 8
    };
    let (within, beyond): (Vec<usize>, Vec<usize>) = (0..scales.len()).partition(|offset| is_scale(*offset));
    assert!(within.iter().all(|offset| !matches!(scales[*offset], 0 | 0xFF)), "{scales:?}");
    assert_eq!(beyond.len(), 984);
    assert!(beyond.iter().all(|offset| scales[*offset] == 0), "{scales:?}");
}

#[test]
fn t15_padding_is_written() {
    let global = Some(Calibrated::Global(Divisor::new(1.0).unwrap()));
    let e4m3 = Recipe { calibrated: global, ..Recipe::default() };
    let e8m0 = Recipe::dynamic(Some(Rounding::Rceil));
    let cases: [(&FormatSpec, usize, Recipe, ScaleType); 3] = [
        (&NVFP4, 16, e4m3, ScaleType::E4m3),
        (&MXFP8, 32, e8m0, ScaleType::E8m0),
        (&MXFP4, 32, e8m0, ScaleType::E8m0),
    ];
    for (format, block, recipe, scale) in cases {
        assert_eq!(format.block.unwrap().scale, scale);
        let values: Vec<bf16> = t15_tokens(block).into_iter().map(bf16::from_f32).collect();
        let tokens = Tokens::new(&values, 5, 8 * block).unwrap();
        let quantised = quantize(tokens, format, recipe, &SWIZZLED_128X4, 1).unwrap();
        assert_padding_is_zero(&quantised.scales);
        let linear = quantize_matrix(tokens, format, recipe).unwrap();
        assert_eq!(linear.scales.len(), 40);
    }
}

/// A buffer whose padding holds 0x7F comes in, as an allocator leaves it; what goes out is clean.
#[test]
fn t15_foreign_padding_does_not_survive() {
    let mut poisoned = vec![0x7F; 1024];
    let physical = SWIZZLED_128X4.physical(Extent { rows: 5, cols: 8 }).unwrap();
    for (row, col) in (0..5).flat_map(|row| (0..8).map(move |col| (row, col))) {
        poisoned[(SWIZZLED_128X4.offset)(row, col, physical)] = (1 + 8 * row + col) as u8;
    }
    let mxfp8 = Quantized::<Mxfp8, Swizzled128x4>::load(5, 256, vec![0; 5 * 256], poisoned.clone()).unwrap();
    let linear = mxfp8.relayout::<Linear>().unwrap();
    assert_eq!(linear.scales(), (1..=40).collect::<Vec<u8>>());
    assert_padding_is_zero(linear.relayout::<Swizzled128x4>().unwrap().scales());
    let global = Divisor::new(1.0).unwrap();
    let nvfp4 = Quantized::<Nvfp4, Swizzled128x4>::load_two_level(5, 128, vec![0; 5 * 64], poisoned, global);
    let linear = nvfp4.unwrap().relayout::<Linear>().unwrap();
    assert_padding_is_zero(linear.relayout::<Swizzled128x4>().unwrap().scales());
}

/// Three points, each with what comes out where the parameters are dropped.
#[test]
fn t22_parameters_of_clamped_functions() {
    let gpt_oss = ActivationFunction::Swigluoai { alpha: 1.702, beta: 1.0, limit: 7.0 };
    let clamped = ActivationFunction::Silu { limit: 10.0 };
    let points = [
        (gpt_oss, 8.0, 9.0, 55.9996, 71.9759),
        (gpt_oss, -3.0, -9.0, 0.108_43, 1.2805),
        (clamped, 12.0, -15.0, -99.9955, -179.9989),
    ];
    for (function, gate, up, expected, dropped) in points {
        for (function, expected) in [(function, expected), (ActivationFunction::SILU, dropped)] {
            let got: f32 = activate(function, gate, up);
            assert!((got / expected - 1.0).abs() < 1e-4, "{function:?} of {gate}, {up}: {got}");
        }
    }
}

/// A row says what it would drop; a value that makes no sense is refused wherever it is.
#[test]
fn t22_parameters_that_are_refused() {
    let cutlass = BackendId::FlashinferCutlassMxfp4Mxfp8.contract();
    let clamped = ActivationFunction::Silu { limit: 10.0 };
    let refused = honours(cutlass, clamped).unwrap_err();
    let (row, function, parameter) = (cutlass.name, Activation::Silu, Parameter::Limit);
    assert_eq!(refused, Refused::Parameter { row, function, parameter });
    assert_eq!(
        refused.to_string(),
        "backend `flashinfer_cutlass_mxfp4_mxfp8` does not honour `limit` of silu"
    );
    assert_eq!(honours(BackendId::MarlinMxfp4.contract(), clamped), Ok(()));

    let swigluoai = |alpha, limit| ActivationFunction::Swigluoai { alpha, beta: 1.0, limit };
    let nonsense = [
        (swigluoai(1.702, 0.0), Parameter::Limit, "above 0"),
        (swigluoai(1.702, f32::NAN), Parameter::Limit, "above 0"),
        (swigluoai(f32::NAN, 7.0), Parameter::Alpha, "finite"),
        (swigluoai(f32::INFINITY, 7.0), Parameter::Alpha, "finite"),
    ];
    for (asked, parameter, wanted) in nonsense {
        let function = Activation::Swigluoai;
        assert_eq!(honours(cutlass, asked), Err(Refused::Value { function, parameter, wanted }), "{asked:?}");
    }
}
