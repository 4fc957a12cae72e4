//! Deterministic layers in the image of model families, for sizes that no shipped file has.

use half::bf16;
use rayon::prelude::*;

use super::canonical::{Biases, Canonical, Stack};
use super::gpt_oss::Router;
use crate::format::{BlockScale, ElementType, FormatSpec, Reach, ScaleType};
use crate::layout::Extent;

/// The sizes of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Experts.
    pub experts: usize,
    /// The hidden size.
    pub hidden: usize,
    /// The intermediate size.
    pub intermediate: usize,
    /// Experts of one token.
    pub top_k: usize,
}

/// A format that no layer is made up in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no layer is made up in `{0}`; layers are in bf16, in e2m1 with one e8m0 scale for 1x32 elements, or \
     in e4m3 with one f32 scale for 128x128"
)]
pub struct NotMadeUp(pub &'static str);

/// Scale exponents are spread over this many neighbours, so that a misplaced scale shows, below this
/// one: pre-activations then come out around 2, on both sides of gpt-oss's clamp.
const EXPONENTS: u64 = 12;
const LARGEST_EXPONENT: i32 = -4;

/// The largest elements of e2m1 and e4m3.
const LARGEST_E2M1: f32 = 6.0;
const LARGEST_E4M3: f32 = 448.0;

/// A hash of `counter` in the sequence `seed`: the output function of splitmix64 (Steele, Lea and
/// Flood, "Fast splittable pseudorandom number generators", 2014).
fn hash(seed: u64, counter: usize) -> u64 {
    let mut z = seed.wrapping_add((counter as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// An independent sequence of its own for each tensor.
fn stream(seed: u64, tensor: usize) -> u64 {
    hash(seed ^ 0x5CA1_E000, tensor)
}

/// A number in [-1, 1).
fn symmetric(seed: u64, counter: usize) -> f32 {
    (hash(seed, counter) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn reals(seed: u64, count: usize, magnitude: f32) -> Vec<f32> {
    let value = |counter| bf16::from_f32(magnitude * symmetric(seed, counter)).to_f32();
    (0..count).into_par_iter().map(value).collect()
}

/// The power of two that the scale of block `block` is made of.
fn exponent(seed: u64, block: usize) -> i32 {
    LARGEST_EXPONENT - (hash(!seed, block) % EXPONENTS) as i32
}

/// Bytes of which all values occur.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; count];
    bytes.par_chunks_mut(8).enumerate().for_each(|(counter, bytes)| {
        bytes.copy_from_slice(&hash(seed, counter).to_le_bytes()[..bytes.len()]);
    });
    bytes
}

/// How the numbers of a format are made up.
enum Numbers {
    Bf16,
    Mxfp4,
    Fp8Tiles,
}

fn numbers(format: &'static FormatSpec) -> Result<Numbers, NotMadeUp> {
    let block = |scale, rows, cols| {
        Some(BlockScale { scale, rows: Reach::Of(rows), cols: Reach::Of(cols), zero_point: None })
    };
    match (format.element, format.global) {
        (ElementType::Bf16, None) if format.block.is_none() => Ok(Numbers::Bf16),
        (ElementType::E2m1, None) if format.block == block(ScaleType::E8m0, 1, 32) => Ok(Numbers::Mxfp4),
        (ElementType::E4m3, None) if format.block == block(ScaleType::F32, 128, 128) => Ok(Numbers::Fp8Tiles),
        _ => Err(NotMadeUp(format.name)),
    }
}

/// Matrices whose blocks, of 1x32 elements or as the format has them, are powers of two apart.
fn stack(
    seed: u64,
    experts: usize,
    rows: usize,
    cols: usize,
    format: &'static FormatSpec,
) -> Result<Stack, NotMadeUp> {
    let numbers = numbers(format)?;
    let (payload, scales) = format.matrix_bytes(Extent { rows, cols });
    let (payload, scales) = (experts * payload, experts * scales);
    let (payload, scales) = match numbers {
        Numbers::Bf16 => {
            let blocks = cols.div_ceil(32);
            let value = |index: usize| {
                let block = index / cols * blocks + index % cols / 32;
                let scale = (exponent(seed, block) as f32).exp2();
                bf16::from_f32(LARGEST_E2M1 * scale * symmetric(seed, index)).to_le_bytes()
            };
            ((0..payload / 2).into_par_iter().flat_map_iter(value).collect(), Vec::new())
        }
        Numbers::Mxfp4 => {
            let scale = |block| (127 + exponent(seed, block)) as u8;
            (bytes(seed, payload), (0..scales).into_par_iter().map(scale).collect())
        }
        Numbers::Fp8Tiles => {
            let mut payload = bytes(seed, payload);
            // No NaN among them.
            payload.par_iter_mut().filter(|code| **code & 0x7F == 0x7F).for_each(|code| *code &= 0xFE);
            let scale = |block| {
                let mantissa = 1.5 + symmetric(seed, block) / 2.0;
                (mantissa * (exponent(seed, block) as f32).exp2() * LARGEST_E2M1 / LARGEST_E4M3).to_le_bytes()
            };
            (payload, (0..scales / 4).flat_map(scale).collect())
        }
    };
    Ok(Stack::new(rows, cols, payload, scales))
}

/// The weights of a layer, biases included: all elements occur, and scales vary from block to block.
///
/// # Errors
/// [`NotMadeUp`] if there are no made-up numbers in the format.
pub fn weights(shape: Shape, seed: u64, format: &'static FormatSpec) -> Result<Canonical, NotMadeUp> {
    let Shape { experts, hidden, intermediate, .. } = shape;
    let stack = |tensor, rows, cols| stack(stream(seed, tensor), experts, rows, cols, format);
    Ok(Canonical {
        format,
        experts,
        hidden,
        intermediate,
        gate: Some(stack(0, intermediate, hidden)?),
        up: stack(1, intermediate, hidden)?,
        down: stack(2, hidden, intermediate)?,
        biases: Some(Biases {
            gate: reals(stream(seed, 3), experts * intermediate, 0.5),
            up: reals(stream(seed, 4), experts * intermediate, 0.5),
            down: reals(stream(seed, 5), experts * hidden, 0.5),
        }),
    })
}

/// Correction biases, one an expert, that change the choice of some tokens (`e_score_correction_bias`).
pub fn corrections(shape: Shape, seed: u64) -> Vec<f32> {
    reals(stream(seed, 9), shape.experts, 0.2)
}

/// A router for the layer, whose logits are of magnitude 1 for [`tokens`].
pub fn router(shape: Shape, seed: u64) -> Router {
    let magnitude = 3.0 / (shape.hidden as f32).sqrt();
    Router {
        weight: reals(stream(seed, 6), shape.experts * shape.hidden, magnitude),
        bias: reals(stream(seed, 7), shape.experts, 0.5),
    }
}

/// `count` tokens, `count` × `hidden` values in [-8, 8). Neighbouring blocks of 32, and neighbouring
/// rows, are powers of two apart, so that a misplaced scale shows.
pub fn tokens(shape: Shape, count: usize, seed: u64) -> Vec<bf16> {
    let seed = stream(seed, 8);
    let value = |index: usize| {
        let (row, block) = (index / shape.hidden, index % shape.hidden / 32);
        let exponent = ((5 * row + 3 * block) % 8) as f32 - 4.0;
        bf16::from_f32(symmetric(seed, index) * exponent.exp2())
    };
    (0..count * shape.hidden).into_par_iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    static MXFP4: FormatSpec = FormatSpec::blocks("mxfp4", ElementType::E2m1, ScaleType::E8m0, 1, 32);
    static FP8: FormatSpec = FormatSpec::blocks("fp8", ElementType::E4m3, ScaleType::F32, 128, 128);
    static BF16: FormatSpec = FormatSpec::unscaled("bf16", ElementType::Bf16);
    static F16: FormatSpec = FormatSpec::unscaled("f16", ElementType::F16);

    const SMALL: Shape = Shape { experts: 3, hidden: 96, intermediate: 64, top_k: 2 };

    #[test]
    fn layers_are_deterministic_and_differ_by_seed() {
        for format in [&MXFP4, &FP8, &BF16] {
            let payload = |seed| weights(SMALL, seed, format).unwrap().up.payload;
            assert_eq!(payload(1), payload(1));
            assert_ne!(payload(1), payload(2));
            assert_ne!(payload(1), weights(SMALL, 1, format).unwrap().gate.unwrap().payload);
        }
        assert_eq!(weights(SMALL, 1, &F16).map(|_| ()), Err(NotMadeUp("f16")));
    }

    #[test]
    fn sizes_fit_and_every_scale_occurs() {
        let weights = weights(SMALL, 7, &MXFP4).unwrap();
        assert_eq!(weights.down.payload.len(), 3 * 96 * 32);
        assert_eq!(weights.down.scales.len(), 3 * 96 * 2);
        let mut scales = weights.down.scales.clone();
        scales.sort_unstable();
        scales.dedup();
        assert_eq!(scales, (112..=123).collect::<Vec<u8>>());
        assert_eq!(tokens(SMALL, 5, 7).len(), 5 * 96);
        assert_eq!(router(SMALL, 7).weight.len(), 3 * 96);
        assert_eq!(corrections(SMALL, 7).len(), 3);
    }

    /// In every format: finite, about as large as in the others, and no two neighbouring tiles alike.
    #[test]
    fn values_are_of_one_magnitude() {
        let shape = Shape { experts: 2, hidden: 384, intermediate: 256, top_k: 1 };
        for format in [&MXFP4, &FP8, &BF16] {
            let weights = weights(shape, 3, format).unwrap();
            let values = reference::dequantize(format, weights.up.matrix(format, 1)).unwrap();
            let mean = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            assert!((0.005..0.5).contains(&mean.sqrt()), "{}: {mean}", format.name);
        }
        let tiles = weights(shape, 3, &FP8).unwrap().up.scales;
        let mut scales: Vec<&[u8]> = tiles.chunks(4).collect();
        scales.sort_unstable();
        scales.dedup();
        assert_eq!(scales.len(), 2 * 2 * 3);
    }
}
