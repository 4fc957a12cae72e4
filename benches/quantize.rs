//! Quantising and relayout of the scales in GB/s, bytes in plus bytes out, beside a copy of the same
//! bytes. `cargo bench`; a name after `--` selects, as in `cargo bench -- mxfp8`.
//!
//! Tokens are bf16, 8192 rows of gpt-oss's hidden size. Payloads and moved scales are written to where
//! earlier ones were, and so are copies: touching fresh pages would take longer than either. `torch_eager.py` times the
//! formula that torch users have on the CPU.

use std::fmt;

use divan::Bencher;
use divan::counter::BytesCount;
use half::bf16;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use scalewright::cpu::quantize::quantize_reusing;
use scalewright::cpu::relayout::relayout_scales;
use scalewright::format::{FormatSpec, Rounding};
use scalewright::generated::formats::{FP8_1X128, FP8_ROW, MXFP4, MXFP8, NVFP4};
use scalewright::generated::layouts::{LINEAR, MN_MAJOR_F32, SWIZZLED_128X4};
use scalewright::layout::Layout;
use scalewright::recipe::Recipe;
use scalewright::scale::{Calibrated, Divisor};
use scalewright::tensor::{RawQuantized, Tokens};

const ROWS: usize = 8192;
const COLS: usize = 2880;
const THREADS: [usize; 2] = [1, 2];
/// Scales are moved from within a pool, a layer after the other: to wake a pool for one takes as long as
/// the work.
const LAYERS: usize = 8;

/// One format with its scales in one layout, on so many threads.
struct Case {
    format: &'static FormatSpec,
    layout: &'static Layout,
    threads: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {} threads", self.format.name, self.layout.name, self.threads)
    }
}

fn on_each_pool(pairs: &[(&'static FormatSpec, &'static Layout)]) -> Vec<Case> {
    let of = |(format, layout): &(&'static FormatSpec, &'static Layout)| {
        let (format, layout) = (*format, *layout);
        THREADS.map(|threads| Case { format, layout, threads })
    };
    pairs.iter().flat_map(of).collect()
}

fn quantised() -> Vec<Case> {
    on_each_pool(&[
        (&MXFP8, &LINEAR),
        (&MXFP8, &SWIZZLED_128X4),
        (&MXFP4, &LINEAR),
        (&NVFP4, &SWIZZLED_128X4),
        (&FP8_1X128, &LINEAR),
        (&FP8_ROW, &LINEAR),
    ])
}

/// Scales that start linear.
fn moved() -> Vec<Case> {
    on_each_pool(&[(&MXFP8, &SWIZZLED_128X4), (&NVFP4, &SWIZZLED_128X4), (&FP8_1X128, &MN_MAJOR_F32)])
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be started")
}

/// Normally distributed as activations roughly are: the sum of uniform numbers.
fn values() -> Vec<bf16> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..ROWS * COLS).map(|_| bf16::from_f32(uniform() + uniform() + uniform() + uniform())).collect()
}

fn run(values: &[bf16], case: &Case, layout: &'static Layout, payload: Vec<u8>) -> RawQuantized {
    let tokens = Tokens::new(values, ROWS, COLS).expect("as many values as that");
    let rounding = (case.format == &MXFP8 || case.format == &MXFP4).then_some(Rounding::Rceil);
    let global = Divisor::new(2688.0 / 2.0).expect("a scale");
    let calibrated = case.format.global.map(|_| Calibrated::Global(global));
    let recipe = Recipe { rounding, calibrated, ..Recipe::default() };
    quantize_reusing(tokens, case.format, recipe, layout, 1, payload).expect("the format is quantised to")
}

#[divan::bench(args = quantised())]
fn quantising(bencher: Bencher, case: &Case) {
    let (pool, values) = (pool(case.threads), values());
    let mut made = run(&values, case, case.layout, Vec::new());
    let bytes = size_of_val(values.as_slice()) + made.payload.len() + made.scales.len();
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        let payload = std::mem::take(&mut made.payload);
        made = pool.install(|| run(divan::black_box(&values), case, case.layout, payload));
    });
}

#[divan::bench(args = moved())]
fn relayout(bencher: Bencher, case: &Case) {
    let pool = pool(case.threads);
    let linear = run(&values(), case, &LINEAR, Vec::new());
    let of = |scales| relayout_scales(&linear, case.layout, scales).expect("the layout takes the scales");
    let mut moved = of(Vec::new());
    let bytes = LAYERS * (linear.scales.len() + moved.len());
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        pool.install(|| {
            for _ in 0..LAYERS {
                moved = of(divan::black_box(std::mem::take(&mut moved)));
            }
        });
    });
}

/// As many bytes as mxfp8 tokens in and out, and as its scales.
#[divan::bench(args = [(1, ROWS * COLS * 3 / 2), (2, ROWS * COLS * 3 / 2), (1, ROWS * COLS / 32), (2, ROWS * COLS / 32)])]
fn copy(bencher: Bencher, (threads, bytes): (usize, usize)) {
    let (pool, source, mut target) = (pool(threads), vec![1u8; bytes], vec![2u8; bytes]);
    bencher.counter(BytesCount::new(2 * bytes)).bench_local(|| {
        let pieces = target.par_chunks_mut(1 << 16).zip(divan::black_box(&source).par_chunks(1 << 16));
        pool.install(|| pieces.for_each(|(target, source)| target.copy_from_slice(source)));
    });
}

fn main() {
    divan::main();
}
