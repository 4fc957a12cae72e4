//! Deterministic layers in the image of gpt-oss, for sizes that no shipped file has.

use half::bf16;
use rayon::prelude::*;

use super::canonical::{Biases, Canonical, Stack};
use super::gpt_oss::{Router, WrongFormat, check_format};
use crate::format::FormatSpec;

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

/// The shapes that have a name; from `config.json` of `openai/gpt-oss-20b` and `-120b`.
pub const NAMED: &[(&str, Shape)] = &[
    ("gpt-oss-20b", Shape { experts: 32, hidden: 2880, intermediate: 2880, top_k: 4 }),
    ("gpt-oss-120b", Shape { experts: 128, hidden: 2880, intermediate: 2880, top_k: 4 }),
];

/// Scale bytes are spread over this many neighbours, so that a misplaced scale shows, below this
/// one: values of pre-activations then come out around 2, on both sides of gpt-oss's clamp.
const SCALES: u64 = 12;
const LARGEST_SCALE: u8 = 123;

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

fn stack(seed: u64, experts: usize, rows: usize, cols: usize) -> Stack {
    let mut payload = vec![0u8; experts * rows * cols.div_ceil(2)];
    payload.par_chunks_mut(8).enumerate().for_each(|(counter, bytes)| {
        bytes.copy_from_slice(&hash(seed, counter).to_le_bytes()[..bytes.len()]);
    });
    let scales = (0..experts * rows * cols.div_ceil(32))
        .into_par_iter()
        .map(|counter| LARGEST_SCALE - (hash(!seed, counter) % SCALES) as u8)
        .collect();
    Stack { rows, cols, payload, scales }
}

/// The weights of a layer: all elements occur, scale bytes vary from block to block. `format` is the
/// table's MXFP4.
///
/// # Errors
/// [`WrongFormat`] if it is not.
pub fn weights(shape: Shape, seed: u64, format: &'static FormatSpec) -> Result<Canonical, WrongFormat> {
    check_format(format)?;
    let Shape { experts, hidden, intermediate, .. } = shape;
    Ok(Canonical {
        format,
        experts,
        hidden,
        intermediate,
        gate: stack(stream(seed, 0), experts, intermediate, hidden),
        up: stack(stream(seed, 1), experts, intermediate, hidden),
        down: stack(stream(seed, 2), experts, hidden, intermediate),
        biases: Some(Biases {
            gate: reals(stream(seed, 3), experts * intermediate, 0.5),
            up: reals(stream(seed, 4), experts * intermediate, 0.5),
            down: reals(stream(seed, 5), experts * hidden, 0.5),
        }),
    })
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
    use crate::format::{BlockScale, ElementType, ScaleType};

    static MXFP4: FormatSpec = FormatSpec {
        name: "mxfp4",
        element: ElementType::E2m1,
        block: Some(BlockScale { scale: ScaleType::E8m0, rows: 1, cols: 32 }),
        global: None,
    };

    const SMALL: Shape = Shape { experts: 3, hidden: 96, intermediate: 64, top_k: 2 };

    #[test]
    fn layers_are_deterministic_and_differ_by_seed() {
        let payload = |seed| weights(SMALL, seed, &MXFP4).unwrap().gate.payload;
        assert_eq!(payload(1), payload(1));
        assert_ne!(payload(1), payload(2));
        assert_ne!(payload(1), weights(SMALL, 1, &MXFP4).unwrap().up.payload);
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
    }
}
