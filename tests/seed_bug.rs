//! vLLM #42089: one branch of a quantiser wrote the scales of MXFP8 tokens row by row, whatever the
//! kernel behind it read. The model said nonsense, and nothing said why.

mod nested;

use half::bf16;
use scalewright::backend::Reads;
use scalewright::config::QuantConfig;
use scalewright::conformance::TOLERANCE;
use scalewright::cpu::quantize::{quantize, quantize_input};
use scalewright::format::{FormatSpec, Rounding};
use scalewright::generated::backends::{
    FlashinferCutlassMxfp4Mxfp8 as Cutlass, FlashinferTrtllmMxfp4Mxfp8 as Trtllm,
    flashinfer_cutlass_mxfp4_mxfp8, flashinfer_trtllm_mxfp4_mxfp8,
};
use scalewright::generated::formats::{self, Mxfp8};
use scalewright::generated::layouts::{self, Swizzled128x4};
use scalewright::layout::Layout;
use scalewright::moe::layer::{Layer, Operand};
use scalewright::moe::routing::Routing;
use scalewright::recipe::Recipe;
use scalewright::reference::{self, Chosen};
use scalewright::tensor::{Quantized, RawQuantized, Tokens, WrongSize};
use scalewright::weights::canonical::{Canonical, Matrix};
use scalewright::weights::prepared::Prepared;
use scalewright::weights::synthetic::{self, Shape};
use scalewright_codegen::{Source, check, emit};

const HIDDEN: usize = 256;
const SHAPE: Shape = Shape { experts: 3, hidden: HIDDEN, intermediate: 96, top_k: 2 };

/// The branch as it was: of two types, one is quantised into the layout that was asked for, the other
/// always row by row.
fn moe_kernel_quantize_input(
    tokens: Tokens<'_, bf16>,
    quant_dtype: &'static FormatSpec,
    layout: &'static Layout,
) -> RawQuantized {
    let (rounding, layout) = match quant_dtype.name {
        "mxfp8" => (Some(Rounding::Rceil), &layouts::LINEAR),
        _ => (None, layout),
    };
    quantize(tokens, quant_dtype, Recipe::dynamic(rounding), layout, 1).unwrap()
}

/// Tokens whose neighbouring blocks and rows are powers of two apart: with equal scales everywhere a
/// misplaced one would be right.
fn tokens(rows: usize) -> Vec<bf16> {
    let mut values = synthetic::tokens(SHAPE, rows, 3);
    for (index, value) in values.iter_mut().enumerate() {
        let (row, block) = (index / HIDDEN, index % HIDDEN / 32);
        let exponent = ((5 * row + 3 * block) % 8) as f32 - 4.0;
        *value = bf16::from_f32(value.to_f32() * exponent.exp2());
    }
    values
}

fn weights() -> Canonical {
    synthetic::weights(SHAPE, 7, &formats::MXFP4).unwrap()
}

fn routing(rows: usize) -> Routing {
    let ids = (0..rows).flat_map(|row| [row % 3, (row + 1) % 3]).map(|id| id as u32).collect();
    let weights = (0..rows * 2).map(|slot| 0.25 + (slot % 4) as f32 * 0.125).collect();
    Routing::new(rows, 2, 3, ids, weights).unwrap()
}

fn run<B: Reads<Mxfp8>>(config: QuantConfig<B>, input: &impl Operand<B>, rows: usize) -> Vec<bf16> {
    let prepared = Prepared::new(&config, &weights()).unwrap();
    Layer::new(config, prepared).unwrap().forward(input, &routing(rows)).unwrap()
}

fn cutlass() -> QuantConfig<Cutlass> {
    use flashinfer_cutlass_mxfp4_mxfp8::Activation;
    Cutlass::config(Activation::Swigluoai { alpha: 1.702, beta: 1.0, limit: 7.0 })
}

fn trtllm() -> QuantConfig<Trtllm> {
    use flashinfer_trtllm_mxfp4_mxfp8::Activation;
    Trtllm::config(Activation::Swigluoai { alpha: 1.702, beta: 1.0, limit: 7.0 })
}

/// What the layer should make of `input`, whose scales are row by row.
fn judged(input: &RawQuantized) -> Vec<f64> {
    let matrix = Matrix {
        rows: input.rows,
        cols: input.cols,
        payload: &input.payload,
        scales: &input.scales,
        zero_points: &[],
        global: None,
    };
    let values = reference::dequantize(&formats::MXFP8, matrix);
    let routing = routing(input.rows);
    let chosen = Chosen { ids: routing.ids(), weights: routing.weights(), top_k: routing.top_k() };
    let requantised = Some((&formats::MXFP8, Recipe::dynamic(Some(Rounding::Rceil))));
    reference::layer(&weights(), cutlass().activation(), chosen, &values.unwrap(), requantised).unwrap()
}

fn off_by(output: &[bf16], judged: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = square(&mut output.iter().zip(judged).map(|(got, want)| f64::from(got.to_f32()) - want));
    (difference / square(&mut judged.iter().copied())).sqrt()
}

#[test]
fn most_sizes_are_refused_by_the_buffer() {
    let values = tokens(5);
    let tokens = Tokens::new(&values, 5, HIDDEN).unwrap();
    let faulty = moe_kernel_quantize_input(tokens, &formats::MXFP8, &layouts::SWIZZLED_128X4);
    let loaded = Quantized::<Mxfp8, Swizzled128x4>::load(5, HIDDEN, faulty.payload, faulty.scales);
    let error = loaded.unwrap_err();
    let expected = WrongSize::Scales {
        format: "mxfp8",
        layout: "swizzled_128x4",
        rows: 5,
        cols: 256,
        expected: 1024,
        got: 40,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "the scales of 5x256 elements in `mxfp8` take 1024 bytes in layout `swizzled_128x4`, not 40; \
         a buffer in another layout has to be converted with `relayout`"
    );
}

/// At 128 tokens both layouts have equal size: only numbers tell. The faulty branch fails here, the
/// row's own quantiser passes, and the row that reads linear scales takes the same bytes.
#[test]
fn the_faulty_branch_fails_the_layer() {
    let rows = 128;
    let values = tokens(rows);
    let tokens = Tokens::new(&values, rows, HIDDEN).unwrap();
    let faulty = moe_kernel_quantize_input(tokens, &formats::MXFP8, &layouts::SWIZZLED_128X4);
    let judged = judged(&faulty);
    let (payload, scales) = (faulty.payload, faulty.scales);

    let taken = Quantized::<Mxfp8, Swizzled128x4>::load(rows, HIDDEN, payload.clone(), scales.clone());
    let error = off_by(&run(cutlass(), &taken.unwrap(), rows), &judged);
    assert!(error > 10.0 * TOLERANCE, "the faulty branch is off by {error} only");

    let right = quantize_input(&cutlass(), tokens).unwrap();
    let error = off_by(&run(cutlass(), &right, rows), &judged);
    assert!(error <= TOLERANCE, "the row's own quantiser is off by {error}");

    let linear = Quantized::load(rows, HIDDEN, payload, scales).unwrap();
    let error = off_by(&run(trtllm(), &linear, rows), &judged);
    assert!(error <= TOLERANCE, "the linear row is off by {error}");
}

fn emitted(table: &str) -> emit::Output {
    emit::files(
        &check(&Source::new("backends.toml", table)).unwrap_or_else(|report| panic!("{report}")).table,
    )
}

/// One edit of the row moves the type, the contract, the kernels, the transports and the words.
/// `one_edit.rs` compiles the same change and runs its tests.
#[test]
fn everything_follows_the_layout_in_the_table() {
    let row = "flashinfer_cutlass_mxfp4_mxfp8";
    let file = format!("backends/{row}.rs");
    let before = emitted(&nested::table());
    let after = emitted(&nested::with_layout(&nested::table(), row, "linear"));

    let count = |output: &emit::Output, words: &str| {
        let text: String = output[&file].split_whitespace().collect::<Vec<_>>().join(" ");
        text.matches(words).count()
    };
    let contract = "Known::Is(InputLayout::same(&layouts::SWIZZLED_128X4))";
    let reads = "reads(formats::Mxfp8, layouts::Swizzled128x4)";
    let routes = "routes: transports::TO_MXFP8_SWIZZLED_128X4";
    let said = [(contract, 2), (reads, 1), (routes, 1)];
    let linear = |words: &str| words.replace("SWIZZLED_128X4", "LINEAR").replace("Swizzled128x4", "Linear");
    for (words, times) in said {
        assert_eq!(count(&before, words), times, "before: {words}");
        assert_eq!(count(&after, words), 0, "after: {words}");
        assert_eq!(count(&after, &linear(words)), times, "after: {}", linear(words));
    }

    // No other row is handed the swizzle.
    let list = "pub static TO_MXFP8_SWIZZLED_128X4:";
    assert!(before["transports.rs"].contains(list) && !after["transports.rs"].contains(list));

    // No other row has its tokens quantised into the swizzle.
    let quantiser = "cuda/quantize_mxfp8_swizzled_128x4.cu";
    assert!(before.contains_key(quantiser) && !after.contains_key(quantiser));
    assert!(before["cuda.rs"].contains("\"quantize_mxfp8_swizzled_128x4\""));
    assert!(!after["cuda.rs"].contains("\"quantize_mxfp8_swizzled_128x4\""));
    assert!(after["cuda/quantize_mxfp8_linear.cu"].contains(row));
}
