//! What the layers of a model family are like: sizes, weights, routing, activation, shared expert.

use clap::ValueEnum;
use scalewright::config::ActivationFunction;
use scalewright::format::FormatSpec;
use scalewright::generated::formats::{BF16, FP8_128X128, MXFP4};
use scalewright::moe::routing::{Groups, Method};
use scalewright::weights::synthetic::{self, Shape};

use crate::cli::{Trouble, question};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Family {
    /// gpt-oss: MXFP4 weights, biases, clamped SwiGLU, softmax of the chosen.
    GptOss,
    /// Mixtral: bf16 weights, softmax, then a sum of 1.
    Mixtral,
    /// Qwen3-MoE: bf16 weights, many small experts, softmax, then a sum of 1.
    Qwen3,
    /// DeepSeek-V3: fp8 weights in tiles of 128x128, sigmoids, groups, correction biases, a shared expert.
    Deepseek,
}

/// Sizes that have a name; from `config.json` of the models on Hugging Face: `openai/gpt-oss-20b` and
/// `-120b`, `mistralai/Mixtral-8x7B-v0.1`, `Qwen/Qwen3-30B-A3B`, `deepseek-ai/DeepSeek-V3`.
pub(super) const NAMED: &[(&str, Family, Shape)] = &[
    ("gpt-oss-20b", Family::GptOss, shape(32, 2880, 2880, 4)),
    ("gpt-oss-120b", Family::GptOss, shape(128, 2880, 2880, 4)),
    ("mixtral-8x7b", Family::Mixtral, shape(8, 4096, 14_336, 2)),
    ("qwen3-30b-a3b", Family::Qwen3, shape(128, 2048, 768, 8)),
    ("deepseek-v3", Family::Deepseek, shape(256, 7168, 2048, 8)),
];

const fn shape(experts: usize, hidden: usize, intermediate: usize, top_k: usize) -> Shape {
    Shape { experts, hidden, intermediate, top_k }
}

/// The family and sizes that go by `name`.
pub(super) fn named(name: &str) -> Result<(Family, Shape), Trouble> {
    let found = NAMED.iter().find(|(known, ..)| *known == name);
    found.map(|(_, family, shape)| (*family, *shape)).ok_or_else(|| {
        let known: Vec<_> = NAMED.iter().map(|(name, ..)| *name).collect();
        question(format!("there is no shape `{name}`; there are {}", known.join(", ")))
    })
}

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GptOss => "gpt-oss",
            Self::Mixtral => "mixtral",
            Self::Qwen3 => "qwen3",
            Self::Deepseek => "deepseek",
        }
    }

    /// Sizes that take no time, with padding wherever a row pads.
    pub(super) fn small(self) -> Shape {
        match self {
            Self::GptOss => shape(8, 256, 96, 4),
            Self::Mixtral => shape(8, 256, 448, 2),
            Self::Qwen3 => shape(16, 256, 96, 8),
            Self::Deepseek => shape(32, 256, 384, 8),
        }
    }

    /// The format of the weights in a checkpoint.
    pub(super) fn format(self) -> &'static FormatSpec {
        match self {
            Self::GptOss => &MXFP4,
            Self::Mixtral | Self::Qwen3 => &BF16,
            Self::Deepseek => &FP8_128X128,
        }
    }

    pub(super) fn activation(self, limit: Option<f32>) -> ActivationFunction {
        match self {
            Self::GptOss => ActivationFunction::gpt_oss(limit.unwrap_or(7.0)),
            _ => ActivationFunction::SILU,
        }
    }

    /// How tokens are routed; DeepSeek's groups and factor are those of V3.
    pub(super) fn method(self, shape: Shape, seed: u64) -> Method {
        match self {
            Self::GptOss => Method::renormalize(shape.top_k),
            Self::Mixtral | Self::Qwen3 => Method::renormalize_naive(shape.top_k),
            Self::Deepseek => {
                let corrections = synthetic::corrections(shape, seed);
                Method::deepseek_v3(shape.top_k, corrections, Groups { count: 8, kept: 4 }, 2.5)
            }
        }
    }

    /// The sizes of the shared expert, if there is one.
    pub(super) fn shared(self, shape: Shape) -> Option<Shape> {
        (self == Self::Deepseek).then_some(Shape { experts: 1, top_k: 1, ..shape })
    }
}
