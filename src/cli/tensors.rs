//! Tensors in safetensors files, before they are quantised and after.

mod stored;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use memmap2::Mmap;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use scalewright::cpu::dequantize::dequantize_matrix;
use scalewright::cpu::quantize::quantize_matrix;
use scalewright::format::FormatSpec;
use scalewright::generated::formats::{BF16, F16, F32};
use scalewright::layout::Extent;
use scalewright::recipe::Recipe;
use scalewright::tensor::Tokens;
use scalewright::weights::canonical::Matrix;

use super::{Trouble, question, question_with_cause, wrong_file};
pub(super) use stored::{Quantized, Source};

/// One matrix, or one for each expert. Shapes are `[rows, cols]` and `[experts, rows, cols]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stacked {
    /// `None` for one matrix.
    pub(super) experts: Option<usize>,
    /// Of each matrix.
    pub(super) extent: Extent,
}

impl Stacked {
    fn of(shape: &[usize]) -> Option<Self> {
        let (experts, rows, cols) = match *shape {
            [rows, cols] => (None, rows, cols),
            [experts, rows, cols] => (Some(experts), rows, cols),
            _ => return None,
        };
        let is_empty = shape.contains(&0);
        (!is_empty).then_some(Self { experts, extent: Extent { rows, cols } })
    }

    /// The same matrices with other rows and columns.
    pub(super) fn with(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }

    pub(super) fn shape(self) -> Vec<usize> {
        self.experts.into_iter().chain([self.extent.rows, self.extent.cols]).collect()
    }

    /// Matrices.
    pub(super) fn count(self) -> usize {
        self.experts.unwrap_or(1)
    }

    /// What to call matrix `index` in a message: nothing if it is the only one.
    pub(super) fn called(self, index: usize) -> String {
        self.experts.map_or_else(String::new, |_| format!("expert {index}: "))
    }
}

/// An open safetensors file.
pub(super) struct Archive<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

/// The bytes of the file at `path`.
pub(super) fn map(path: &Path) -> Result<Mmap, Trouble> {
    let refuse = |error| question(format!("{} cannot be read: {error}", path.display()));
    let file = File::open(path).map_err(refuse)?;
    // SAFETY: the map is read-only and lives in this process alone; as with every mapped file, nobody
    // may truncate it meanwhile. An output of the same name is a new file and leaves this one alone.
    unsafe { Mmap::map(&file) }.map_err(refuse)
}

impl<'a> Archive<'a> {
    /// Reads the header of the file at `path`, which holds `bytes`.
    pub(super) fn new(path: &'a Path, bytes: &'a [u8]) -> Result<Self, Trouble> {
        let read = || {
            let (_, header) = SafeTensors::read_metadata(bytes)?;
            Ok((SafeTensors::deserialize(bytes)?, header.metadata().clone().unwrap_or_default()))
        };
        let (tensors, metadata) = read().map_err(|error: safetensors::SafeTensorError| {
            wrong_file(format!(
                "{} is not a complete safetensors file ({error}); compare its size and fetch or make it again",
                path.display()
            ))
        })?;
        Ok(Self { path, tensors, metadata })
    }

    /// The numbers of tensor `name`.
    pub(super) fn numbers(&self, name: &str) -> Result<Numbers<'a>, Trouble> {
        let tensor = self.tensor(name)?;
        let format = match tensor.dtype() {
            Dtype::F32 => &F32,
            Dtype::F16 => &F16,
            Dtype::BF16 => &BF16,
            other => {
                return Err(self.wrong(name, format!("is {other}; numbers to quantise are F32, F16 or BF16")));
            }
        };
        Ok(Numbers { format, shape: self.stacked(name, &tensor)?, bytes: tensor.data() })
    }

    /// Tensor `name`, for which the command asked.
    fn tensor(&self, name: &str) -> Result<TensorView<'a>, Trouble> {
        self.tensors.tensor(name).map_err(|_| {
            let mut names = self.tensors.names();
            names.sort_unstable();
            let (count, path) = (names.len(), self.path.display());
            names.truncate(20);
            let more = if count > names.len() { ", …" } else { "" };
            question(format!(
                "{path} has no tensor `{name}`; of its {count} tensors: {}{more}",
                names.join(", ")
            ))
        })
    }

    fn stacked(&self, name: &str, tensor: &TensorView<'_>) -> Result<Stacked, Trouble> {
        let shape = tensor.shape();
        Stacked::of(shape).ok_or_else(|| {
            let expected = "expected are [rows, K] or [experts, rows, K], none of them 0";
            self.wrong(name, format!("has the shape {shape:?}; {expected}"))
        })
    }

    fn wrong(&self, name: &str, what: impl std::fmt::Display) -> Trouble {
        wrong_file(format!("{}: tensor `{name}` {what}", self.path.display()))
    }
}

/// A tensor of 16- or 32-bit numbers.
pub(super) struct Numbers<'a> {
    /// The type of the numbers, as a format without scales.
    pub(super) format: &'static FormatSpec,
    pub(super) shape: Stacked,
    bytes: &'a [u8],
}

impl Numbers<'_> {
    /// The numbers of matrix `index`, exactly.
    pub(super) fn matrix(&self, index: usize) -> Result<Vec<f32>, Trouble> {
        let Extent { rows, cols } = self.shape.extent;
        let (size, _) = self.format.matrix_bytes(self.shape.extent);
        let payload = part(self.bytes, size, index);
        let matrix = Matrix { rows, cols, payload, scales: &[], zero_points: &[], global: None };
        dequantize_matrix(self.format, matrix).map_err(question_with_cause)
    }
}

/// The types that numbers are written in.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum NumberType {
    /// Exact.
    F32,
    /// To the nearest, ties to even.
    F16,
    /// To the nearest, ties to even.
    Bf16,
}

impl NumberType {
    fn format(self) -> (&'static FormatSpec, Dtype) {
        match self {
            Self::F32 => (&F32, Dtype::F32),
            Self::F16 => (&F16, Dtype::F16),
            Self::Bf16 => (&BF16, Dtype::BF16),
        }
    }

    /// The bytes of `values`, one matrix.
    pub(super) fn bytes(self, values: &[f32], extent: Extent) -> Result<Vec<u8>, Trouble> {
        let (format, _) = self.format();
        let matrix = Tokens::new(values, extent.rows, extent.cols).map_err(question_with_cause)?;
        Ok(quantize_matrix(matrix, format, Recipe::default()).map_err(question_with_cause)?.payload)
    }

    /// A safetensors file that holds `bytes` as tensor `name`.
    pub(super) fn file(self, name: &str, shape: Stacked, bytes: &[u8]) -> Result<Vec<u8>, Trouble> {
        let (_, dtype) = self.format();
        let tensor = TensorView::new(dtype, shape.shape(), bytes).map_err(question)?;
        safetensors::serialize([(name, tensor)], None).map_err(question)
    }
}

/// Part `index` of `bytes`, each of `size`; empty beyond the end.
fn part(bytes: &[u8], size: usize, index: usize) -> &[u8] {
    bytes.chunks(size.max(1)).nth(index).unwrap_or_default()
}
