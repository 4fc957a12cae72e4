//! What rows are handed: the branches of vLLM's `moe_kernel_quantize_input`, by contract.

use super::*;
use crate::backend::{Convention, GlobalScale, GlobalScope, InputLayout, ScaleSource};
use crate::generated::formats;
use crate::scale::Multiplier;

fn contract(format: &'static FormatSpec, rounding: Option<Rounding>) -> Contract {
    let linear = &crate::generated::layouts::LINEAR;
    let input = InputContract {
        formats: Box::leak(Box::new([format])),
        rounding,
        quantize: Some(QuantizeAt::Prepare),
        layout: Known::Is(InputLayout { prepared: linear, kernel: linear }),
        ..plain().gemm1_input
    };
    Contract { gemm1_input: input, ..plain() }
}

fn made(contract: &Contract, calibrated: Option<Calibrated>) -> Result<RawQuantized, QuantizeError> {
    let values: Vec<f32> = (0..2 * 160).map(|at| (at % 23) as f32 - 11.0).collect();
    quantize_prepared(contract, contract.gemm1_input.handed()[0], calibrated, rows(&values, 2))
}

fn fixed(scale: f32) -> Option<Calibrated> {
    Some(Calibrated::Static(Multiplier::new(scale).unwrap()))
}

#[test]
fn a_static_scale_is_the_callers() {
    for format in [&formats::FP8_TENSOR, &formats::INT8_TENSOR] {
        let mut contract = contract(format, None);
        contract.gemm1_input.source = Some(ScaleSource::Static);
        let raw = made(&contract, fixed(0.25)).unwrap();
        assert_eq!(raw.scales, 0.25f32.to_le_bytes());
        assert_eq!(made(&contract, None).unwrap_err(), QuantizeError::NoScale { format: format.name });
        contract.gemm1_input.source = Some(ScaleSource::Dynamic);
        assert_eq!(made(&contract, None).unwrap().scales.len(), 4);
        assert_eq!(made(&contract, fixed(0.25)).unwrap_err(), QuantizeError::Scale { format: format.name });
    }
}

#[test]
fn a_second_level_scale_is_the_callers() {
    let mut contract = contract(&formats::NVFP4, None);
    contract.gemm1_input.global =
        Some(GlobalScale { convention: Convention::Divisor, scope: GlobalScope::PerExpert });
    let global = Divisor::new(2688.0 / 11.0).unwrap();
    let raw = made(&contract, Some(Calibrated::Global(global))).unwrap();
    assert_eq!((raw.global, raw.scales.len()), (Some(global), 20));
    assert_eq!(made(&contract, None).unwrap_err(), QuantizeError::NoScale { format: "nvfp4" });
    assert_eq!(made(&contract, fixed(1.0)).unwrap_err(), QuantizeError::NoScale { format: "nvfp4" });
}

#[test]
fn scales_are_handed_in_the_prepared_type() {
    let mut contract = contract(&formats::FP8_1X128_UE8M0, Some(Rounding::Rceil));
    contract.gemm1_input.prepared_format = Some(&formats::FP8_1X128);
    let raw = made(&contract, None).unwrap();
    assert_eq!(raw.format.name, "fp8_1x128");
    // Two blocks a row, both with 11 as the largest magnitude: 2^ceil(log2(11 / 448)).
    assert_eq!(raw.scales, [(1f32 / 32.0).to_le_bytes(); 4].concat());
    let kernel = quantize_prepared(&contract, &formats::FP8_1X128_UE8M0, None, rows(&[1.0; 128], 1));
    let refused = QuantizeError::NotRead { row: contract.name, format: "fp8_1x128_ue8m0" };
    assert_eq!(kernel.unwrap_err(), refused);
}

#[test]
fn rows_are_aligned_before_they_are_quantised() {
    let mut contract = contract(&formats::MXFP8, Some(Rounding::Rceil));
    contract.gemm1_input.multiple = 128;
    let raw = made(&contract, None).unwrap();
    assert_eq!((raw.cols, raw.payload.len(), raw.scales.len()), (256, 512, 16));
}

#[test]
fn experts_that_quantise_are_handed_tokens_as_they_are() {
    let mut contract = contract(&formats::FP8_TENSOR, None);
    contract.gemm1_input.quantize = Some(QuantizeAt::Expert);
    contract.gemm1_input.source = Some(ScaleSource::Static);
    let raw = quantize_prepared(&contract, &formats::BF16, fixed(0.5), rows(&[1.0; 8], 1)).unwrap();
    assert_eq!((raw.payload.len(), raw.scales.len()), (16, 0));
    assert!(quantize_prepared(&contract, &formats::FP8_TENSOR, fixed(0.5), rows(&[1.0; 8], 1)).is_err());
}

#[test]
fn emulation_stays_in_the_type_of_the_tokens() {
    let values: Vec<half::bf16> = (0..64).map(|at| half::bf16::from_f32(at as f32 * 0.37 - 9.0)).collect();
    let tokens = Tokens::new(&values, 2, 32).unwrap();
    for (format, recipe) in [
        (&formats::MXFP4, Recipe::dynamic(Some(Rounding::Even))),
        (&formats::MXFP6_E2M3, Recipe::dynamic(Some(Rounding::Even))),
        (&formats::FP8_TENSOR, dynamic()),
    ] {
        let emulated = quantize_dequantize(tokens, format, recipe).unwrap();
        let stack = quantize_matrix(tokens, format, recipe).unwrap();
        let real = dequantize_matrix(format, stack.matrix(format, 0)).unwrap();
        assert_eq!(emulated, real.into_iter().map(half::bf16::from_f32).collect::<Vec<_>>());
        assert_ne!(emulated, values);
    }
}
