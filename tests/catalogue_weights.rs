//! Public bugs of weights and of scales that come with a checkpoint, by their number in the catalogue
//! they were collected in.

use half::bf16;
use scalewright::backend::{Activation, Contract, Known};
use scalewright::config::{ActivationFunction, LayerConfig};
use scalewright::cpu::layer::{LayerError, forward};
use scalewright::cpu::quantize::{quantize_input, quantize_prepared};
use scalewright::cpu::repack::RepackError;
use scalewright::generated::backends::{
    CONTRACTS, DeepgemmFp8BlockSm100, FlashinferCutlassNvfp4, FlashinferTrtllmMxfp4Mxfp8, MarlinMxfp4,
    deepgemm_fp8_block_sm100, flashinfer_cutlass_nvfp4, flashinfer_trtllm_mxfp4_mxfp8, marlin_mxfp4,
};
use scalewright::generated::formats::{BF16, Fp8_1x128, MXFP4, NVFP4, Nvfp4};
use scalewright::generated::layouts::{LINEAR, Linear, ORDER_GATE_UP, Swizzled128x4};
use scalewright::layout::Order;
use scalewright::moe::layer::Layer;
use scalewright::moe::routing::Routing;
use scalewright::scale::{Divisor, Multiplier, max_over_experts};
use scalewright::tensor::{Quantized, Tokens};
use scalewright::weights::canonical::{Canonical, Stack};
use scalewright::weights::prepared::{Prepared, prepare};
use scalewright::weights::requantize::requantize;
use scalewright::weights::synthetic::{self, Shape};

fn row(name: &str) -> Contract {
    (*CONTRACTS.iter().find(|contract| contract.name == name).unwrap()).clone()
}

/// `rows` × `cols` bf16 numbers.
fn stack(rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) -> Stack {
    let at = |index: usize| bf16::from_f32(value(index / cols, index % cols)).to_le_bytes();
    Stack::new(rows, cols, (0..rows * cols).flat_map(at).collect(), Vec::new())
}

/// A row of 16-bit weights and tokens, gate first, halves padded to multiples of `pad`.
fn plain(pad: usize) -> Contract {
    static ORDERS: &[(Activation, &Order)] = &[(Activation::Silu, &ORDER_GATE_UP)];
    let mut contract = row("triton_unquantized");
    contract.weight.gate_up = ORDERS;
    contract.weight.pad.as_mut().unwrap().gated = pad;
    contract
}

/// I = 352 is padded to 384, each half alone: row 352 is zero, row 384 is up 0, and the layer is the
/// same. Zeros at the end instead would put up 0 at row 352 and up 32 at row 384.
#[test]
fn t08_each_half_is_padded_alone() {
    let (hidden, intermediate) = (4, 352);
    let gate = |row: usize, col: usize| (row + 1) as f32 / 512.0 + col as f32 / 8.0;
    let up = |row: usize, col: usize| -((row % 128) as f32 + 1.0) / 128.0 - col as f32 / 4.0;
    let weights = Canonical {
        format: &BF16,
        experts: 1,
        hidden,
        intermediate,
        gate: Some(stack(intermediate, hidden, gate)),
        up: stack(intermediate, hidden, up),
        down: stack(hidden, intermediate, |row, col| ((row + col) % 7) as f32 / 16.0),
        biases: None,
    };
    let padded = prepare(&plain(128), Activation::Silu, &weights).unwrap();
    assert_eq!(padded.physical.intermediate, 384);
    let stored = |row: usize| {
        let bytes = &padded.gate_up.payload[row * hidden * 2..][..hidden * 2];
        bytes.chunks(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).to_f32()).collect::<Vec<_>>()
    };
    let rounded = |value: f32| bf16::from_f32(value).to_f32();
    let source = |value: &dyn Fn(usize, usize) -> f32, row| {
        (0..hidden).map(|col| rounded(value(row, col))).collect::<Vec<_>>()
    };
    for row in 0..intermediate {
        assert_eq!(stored(row), source(&gate, row), "gate {row}");
        assert_eq!(stored(384 + row), source(&up, row), "up {row}");
    }
    for row in (352..384).chain(384 + 352..768) {
        assert_eq!(stored(row), [0.0; 4], "row {row}");
    }

    let config = LayerConfig::dynamic(ActivationFunction::SILU);
    let run = |contract: &Contract, weights: &Canonical| {
        let prepared = prepare(contract, Activation::Silu, weights).unwrap();
        let x = [0.5, -1.0, 0.25, 2.0].map(bf16::from_f32);
        let input = quantize_prepared(contract, &BF16, None, Tokens::new(&x, 1, hidden).unwrap()).unwrap();
        let routing = Routing::new(1, 1, 1, vec![0], vec![1.0]).unwrap();
        forward(contract, &config, &prepared, &input, &routing).unwrap()
    };
    let right = run(&plain(1), &weights);
    assert_eq!(run(&plain(128), &weights), right);

    // The mutant: what a kernel finds at the rows of each half when zeros were put at the end.
    let fused = |row: usize, col| match row {
        0..352 => gate(row, col),
        352..704 => up(row - 352, col),
        _ => 0.0,
    };
    assert_eq!(rounded(fused(352, 1)), rounded(up(0, 1)));
    assert_eq!(rounded(fused(384, 1)), rounded(up(32, 1)));
    let mutant = Canonical {
        gate: Some(stack(intermediate, hidden, fused)),
        up: stack(intermediate, hidden, |row, col| fused(384 + row, col)),
        ..weights.clone()
    };
    assert!((0..352).all(|row| fused(384 + row, 1) != up(row, 1)));
    assert_ne!(run(&plain(128), &mutant), right);
}

/// Shuffled weights of 257 experts stay what they are when they are cloned, moved and cut. That a row
/// with another order does not take them is in `tests/ui`.
#[test]
fn t11_shuffled_weights_stay_shuffled() {
    let shape = Shape { experts: 257, hidden: 256, intermediate: 32, top_k: 1 };
    let canonical = synthetic::weights(shape, 5, &MXFP4).unwrap();
    let config = FlashinferTrtllmMxfp4Mxfp8::config(flashinfer_trtllm_mxfp4_mxfp8::Activation::Silu);
    let prepared = Prepared::new(&config, &canonical).unwrap();
    let moved = vec![prepared.clone()].remove(0);
    let part = moved.experts(2..4).unwrap();
    assert_eq!(part.raw().logical.experts, 2);
    let whole = prepared.raw();
    let stride = whole.gate_up.payload.len() / 257;
    assert_eq!(part.raw().gate_up.payload, whole.gate_up.payload[2 * stride..4 * stride]);
    let stride = whole.down.scales.len() / 257;
    assert_eq!(part.raw().down.scales, whole.down.scales[2 * stride..4 * stride]);
    assert!(moved.experts(256..258).is_none());
    // The part runs on the same row; local expert 1 is global expert 3.
    let tokens = synthetic::tokens(shape, 1, 9);
    let input = quantize_input(&config, Tokens::new(&tokens, 1, 256).unwrap());
    let input: Quantized<_, Linear> = input.unwrap();
    let run = |weights, experts, expert| {
        let routing = Routing::new(1, 1, experts, vec![expert], vec![1.0]).unwrap();
        Layer::new(config, weights).unwrap().forward(&input, &routing).unwrap()
    };
    assert_eq!(run(part, 2, 1), run(prepared, 257, 3));
}

/// A row that packs exponents takes f32 scales that are powers of two and no others; zero, which has
/// neither sign nor mantissa either, is none.
#[test]
fn t13_scales_that_are_no_exponents() {
    let config = DeepgemmFp8BlockSm100::config(deepgemm_fp8_block_sm100::Activation::Silu);
    let shape = Shape { experts: 1, hidden: 128, intermediate: 128, top_k: 1 };
    let canonical = synthetic::weights(shape, 5, &MXFP4).unwrap();
    let checkpoint = config.contract().weight.requantize_from.unwrap();
    let canonical = requantize(&Canonical { biases: None, ..canonical }, checkpoint).unwrap();
    let layer = Layer::new(config, Prepared::new(&config, &canonical).unwrap()).unwrap();
    let routing = Routing::new(1, 1, 1, vec![0], vec![1.0]).unwrap();
    let run = |scale: f32| {
        let scales = scale.to_le_bytes().to_vec();
        let input = Quantized::<Fp8_1x128, Linear>::load(1, 128, vec![0x38; 128], scales).unwrap();
        layer.forward(&input, &routing)
    };
    assert!(run(0.25).is_ok());
    for scale in [0.3, -0.5, f32::NAN, 2f32.powi(-127), 3.0, 0.0] {
        let error = run(scale).unwrap_err();
        let is_it = matches!(error, LayerError::Repack(RepackError::NotAPowerOfTwo { row: 0, col: 0, .. }));
        assert!(is_it, "{scale}: {error}");
    }
}

/// The second-level scale of one weight in two dialects: a multiplier of 2.790e-4 and a divisor of 3584.
/// That they cannot be crossed is in `tests/ui`; that scales are swizzled exactly once is a mutant of
/// every row.
#[test]
fn t17_multiplier_and_divisor() {
    let multiplier = Multiplier::new(2.790e-4).unwrap();
    let divisor = Divisor::new(3584.0).unwrap();
    for value in [multiplier.get(), divisor.to_multiplier().get()] {
        assert!((value / 2.7902e-4 - 1.0).abs() < 1e-4, "{value}");
    }
}

/// The same as a layer on a row of two-level scales.
#[test]
fn t17_a_layer_in_both_dialects() {
    let shape = Shape { experts: 1, hidden: 128, intermediate: 128, top_k: 1 };
    let mxfp4 = Canonical { biases: None, ..synthetic::weights(shape, 5, &MXFP4).unwrap() };
    let nvfp4 = requantize(&mxfp4, &NVFP4).unwrap();
    let with_global = |global: Multiplier| {
        let of = |stack: &Stack| Stack { globals: vec![global], ..stack.clone() };
        let gate = nvfp4.gate.as_ref().map(of);
        Canonical { gate, up: of(&nvfp4.up), down: of(&nvfp4.down), ..nvfp4.clone() }
    };
    let tokens = synthetic::tokens(shape, 3, 9);
    // One calibration for all: what differs are the weights.
    let calibrated = Divisor::new(64.0).unwrap();
    let silu = flashinfer_cutlass_nvfp4::Activation::Silu { limit: f32::INFINITY };
    let config = FlashinferCutlassNvfp4::config(silu, calibrated, calibrated);
    let input = quantize_input(&config, Tokens::new(&tokens, 3, 128).unwrap());
    let input: Quantized<Nvfp4, Swizzled128x4> = input.unwrap();
    let run = |global: Multiplier| {
        let prepared = Prepared::new(&config, &with_global(global)).unwrap();
        let raw = prepared.raw();
        let globals = [&raw.gate_up, &raw.down].map(|matrix| matrix.globals[0].get());
        let routing = Routing::new(3, 1, 1, vec![0; 3], vec![1.0; 3]).unwrap();
        let layer = Layer::new(config, prepared).unwrap();
        let output = layer.forward(&input, &routing).unwrap();
        (globals, output.iter().map(|value| value.to_f32().abs()).sum::<f32>(), output)
    };
    let divisor = Divisor::new(3584.0).unwrap();
    let by_divisor = run(divisor.to_multiplier());
    assert_eq!(by_divisor.0, [1.0 / 3584.0; 2]);
    assert!(by_divisor.1 > 0.0 && by_divisor.1.is_finite());
    assert_eq!(run(Multiplier::new(1.0 / 3584.0).unwrap()), by_divisor);
    // As a checkpoint writes it, to four digits.
    let rounded = run(Multiplier::new(2.790e-4).unwrap());
    assert!((rounded.1 / by_divisor.1 - 1.0).abs() < 2e-2, "{} and {}", rounded.1, by_divisor.1);
    // A number of one dialect taken for the other's.
    let crossed = run(Multiplier::new(divisor.get()).unwrap());
    assert!(crossed.1 > 1e7 * by_divisor.1, "{} and {}", crossed.1, by_divisor.1);
}

/// Input scales of 1.0, 0.0, 1e-39 and none: a row that quantises tokens refuses them by expert, a row
/// that does not has no place for them.
#[test]
fn t18_input_scales_that_are_none() {
    let loaded = [Some(1.0), Some(0.0), Some(1e-39), None];
    let error = Multiplier::of_experts("input scale", &loaded).unwrap_err();
    let named: Vec<usize> = error.experts.iter().map(|(expert, _)| *expert).collect();
    assert_eq!(named, [1, 2, 3]);
    let text = error.to_string();
    for named in ["expert 1 (0e0)", "expert 2 (1e-39)", "expert 3 (missing)"] {
        assert!(text.contains(named), "{text}");
    }
    let sound = Multiplier::of_experts("input scale", &[Some(1.0), Some(0.5)]).unwrap();
    let shared = max_over_experts(&sound).unwrap().to_divisor();
    let w4a4 = FlashinferCutlassNvfp4::config(flashinfer_cutlass_nvfp4::Activation::GeluTanh, shared, shared);
    assert!(w4a4.layer().gemm1.is_some() && w4a4.layer().gemm2.is_some());
    let w4a16 = MarlinMxfp4::config(marlin_mxfp4::Activation::Gelu);
    assert!(w4a16.layer().gemm1.is_none() && w4a16.layer().gemm2.is_none());
}

/// Hidden 2880 is stored as 3072: 90 columns of scales are stored as 96, and row 1 starts at 96. That
/// logical and physical sizes do not mix is in `tests/ui`.
#[test]
fn t21_logical_and_physical_columns() {
    let mut contract = row("flashinfer_trtllm_mxfp4_mxfp8");
    contract.weight.scale.as_mut().unwrap().layout = Known::Is(&LINEAR);
    static ORDERS: &[(Activation, &Order)] = &[(Activation::Silu, &ORDER_GATE_UP)];
    contract.weight.gate_up = ORDERS;
    let shape = Shape { experts: 1, hidden: 2880, intermediate: 32, top_k: 1 };
    let canonical = synthetic::weights(shape, 5, &MXFP4).unwrap();
    let prepared = prepare(&contract, Activation::Silu, &canonical).unwrap();
    assert_eq!((prepared.logical.hidden, prepared.physical.hidden), (2880, 3072));
    let gate = &canonical.gate.as_ref().unwrap().scales;
    let stored = &prepared.gate_up.scales;
    assert_eq!(gate.len() / 32, 90);
    assert_eq!(stored[..90], gate[..90]);
    assert_eq!(stored[90..96], [0; 6]);
    assert_eq!(stored[96..][..90], gate[90..][..90]);
}
