//! gpt-oss checkpoints: MXFP4 experts whose gate and up rows alternate (gate 0, up 0, gate 1, …).
//!
//! Two dialects are read. Hugging Face's, as in `openai/gpt-oss-20b`: under a prefix that ends in
//! `mlp.`, `experts.gate_up_proj_{blocks,scales,bias}`, `experts.down_proj_{blocks,scales,bias}` and,
//! if it is there, `router.{weight,bias}`. And OpenAI's own names, without a layer: `mlp1.*`,
//! `mlp2.*`, `router.*`, beside which a file may hold tokens and the layer's known output (`x`,
//! `hf_f32.*`). Blocks are U8 \[experts, rows, K / 32, 16\], scales U8 \[experts, rows, K / 32\],
//! biases \[experts, rows\].

use std::fs::File;
use std::path::{Path, PathBuf};

use half::bf16;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::canonical::{Biases, Canonical, Stack};
use crate::format::{ElementType, FormatSpec, ScaleType};

/// One MoE layer of a checkpoint.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The experts, gate and up apart.
    pub weights: Canonical,
    /// The router, if the file has it.
    pub router: Option<Router>,
    /// Tokens and what becomes of them, if the file has them.
    pub activations: Option<Sample>,
}

/// The router: logits are `weight · token + bias`.
#[derive(Debug, Clone)]
pub struct Router {
    /// `experts` × `hidden`, row-major.
    pub weight: Vec<f32>,
    /// One value an expert.
    pub bias: Vec<f32>,
}

/// Tokens, and what another implementation made of them.
#[derive(Debug, Clone)]
pub struct Sample {
    /// `tokens` × `hidden` values.
    pub x: Vec<bf16>,
    /// Experts of one token.
    pub top_k: usize,
    /// `tokens` × `top_k` experts.
    pub ids: Vec<u32>,
    /// A router weight for each of `ids`.
    pub weights: Vec<f32>,
    /// The layer's output, `tokens` × `hidden`, computed in f32.
    pub out: Vec<f32>,
}

/// A format that gpt-oss weights are not in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gpt-oss weights are e2m1 elements with one e8m0 scale for 1x32 of them; format `{0}` is not")]
pub struct WrongFormat(pub &'static str);

/// Whether `format` is that of gpt-oss weights.
pub(super) fn check_format(format: &'static FormatSpec) -> Result<(), WrongFormat> {
    let mxfp4 = FormatSpec::blocks(format.name, ElementType::E2m1, ScaleType::E8m0, 1, BLOCK);
    let fits = *format == mxfp4;
    if fits { Ok(()) } else { Err(WrongFormat(format.name)) }
}

/// Elements of one block, and the bytes they take.
const BLOCK: usize = 32;
const BLOCK_BYTES: usize = 16;

/// A file that does not hold a gpt-oss layer.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be opened.
    #[error("{}: cannot be opened; check path and permissions", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no safetensors file, or not a whole one.
    #[error(
        "{}: not a complete safetensors file; if it was downloaded, compare its size and fetch it again",
        path.display()
    )]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: safetensors::SafeTensorError,
    },
    /// The file holds no expert weights under a known name.
    #[error(
        "{}: no gpt-oss experts; expected `…mlp.experts.gate_up_proj_blocks` or `mlp1.blocks`. Of a \
         checkpoint in several files, give the one that holds the layer",
        path.display()
    )]
    NoExperts {
        /// The file.
        path: PathBuf,
    },
    /// The file does not hold the layer asked for.
    #[error("{}: no layer {layer}; it holds {}", path.display(), list(found))]
    NoLayer {
        /// The file.
        path: PathBuf,
        /// The layer asked for.
        layer: usize,
        /// The layers of the file.
        found: Vec<usize>,
    },
    /// A tensor is missing.
    #[error(
        "{}: tensor `{tensor}` is missing; of a checkpoint in several files, it may be in another one: \
         ask for a layer that is whole, or merge the files",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor is of an unexpected type.
    #[error("{}: tensor `{tensor}` is {got}, not {expected}; is this the MXFP4 checkpoint?", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The types that are read.
        expected: &'static str,
        /// Its type.
        got: Dtype,
    },
    /// A tensor is of an unexpected shape.
    #[error("{}: tensor `{tensor}` is {got:?}, not {expected}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What it should be.
        expected: String,
        /// Its shape.
        got: Vec<usize>,
    },
    /// A token of the file is routed to an expert that the layer does not have.
    #[error("{}: tensor `{tensor}` names expert {expert}, but there are {experts}", path.display())]
    Expert {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The expert.
        expert: i32,
        /// Experts of the layer.
        experts: usize,
    },
    /// The format is not that of gpt-oss.
    #[error(transparent)]
    Format(#[from] WrongFormat),
}

fn list(layers: &[usize]) -> String {
    if layers.is_empty() {
        return "one layer without a number; ask for none".to_owned();
    }
    let numbers: Vec<_> = layers.iter().map(usize::to_string).collect();
    format!("layers {}", numbers.join(", "))
}

/// Loads one layer from a safetensors file: layer `layer`, or the lowest-numbered one of the file.
/// `format` is the table's MXFP4.
///
/// # Errors
/// [`LoadError`] for anything that is missing, of another type or shape, or out of range.
pub fn load(path: &Path, format: &'static FormatSpec, layer: Option<usize>) -> Result<Checkpoint, LoadError> {
    check_format(format)?;
    let open = |source| LoadError::Open { path: path.to_owned(), source };
    let file = File::open(path).map_err(open)?;
    // SAFETY: the map is read-only, private to this function and copied from; as with every mapped
    // file, nobody may truncate it meanwhile.
    let bytes = unsafe { Mmap::map(&file) }.map_err(open)?;
    parse(path, &bytes, format, layer)
}

/// [`load`], from the bytes of a file; `path` is what errors call it.
///
/// # Errors
/// As [`load`], but for opening the file.
pub fn parse(
    path: &Path,
    bytes: &[u8],
    format: &'static FormatSpec,
    layer: Option<usize>,
) -> Result<Checkpoint, LoadError> {
    check_format(format)?;
    let tensors = SafeTensors::deserialize(bytes)
        .map_err(|source| LoadError::NotSafetensors { path: path.to_owned(), source })?;
    let names = find_layer(path, &tensors, layer)?;
    Source { path, tensors }.checkpoint(&names, format)
}

/// The prefixes of a layer's tensors.
struct Names {
    gate_up: String,
    down: String,
    router: String,
}

const HUGGING_FACE: &str = "mlp.experts.gate_up_proj_blocks";

fn find_layer(path: &Path, tensors: &SafeTensors<'_>, layer: Option<usize>) -> Result<Names, LoadError> {
    let mut prefixes: Vec<(Option<usize>, String)> = tensors
        .names()
        .into_iter()
        .filter_map(|name| name.strip_suffix(HUGGING_FACE))
        .map(|prefix| (layer_number(prefix), prefix.to_owned()))
        .collect();
    prefixes.sort();
    if prefixes.is_empty() && !tensors.names().contains(&"mlp1.blocks") {
        return Err(LoadError::NoExperts { path: path.to_owned() });
    }
    if let Some(layer) = layer
        && !prefixes.iter().any(|(number, _)| *number == Some(layer))
    {
        let found = prefixes.iter().filter_map(|(number, _)| *number).collect();
        return Err(LoadError::NoLayer { path: path.to_owned(), layer, found });
    }
    let chosen = prefixes.into_iter().find(|(number, _)| layer.is_none() || *number == layer);
    Ok(match chosen {
        Some((_, prefix)) => Names {
            gate_up: format!("{prefix}mlp.experts.gate_up_proj_"),
            down: format!("{prefix}mlp.experts.down_proj_"),
            router: format!("{prefix}mlp.router."),
        },
        None => Names { gate_up: "mlp1.".into(), down: "mlp2.".into(), router: "router.".into() },
    })
}

/// The number that ends `model.layers.7.`.
fn layer_number(prefix: &str) -> Option<usize> {
    prefix.strip_suffix('.')?.rsplit('.').next()?.parse().ok()
}

struct Source<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl Source<'_> {
    fn checkpoint(&self, names: &Names, format: &'static FormatSpec) -> Result<Checkpoint, LoadError> {
        let gate_up = self.stack(&names.gate_up)?;
        let down = self.stack(&names.down)?;
        let (experts, rows, hidden) = (gate_up.experts, gate_up.stack.rows, gate_up.stack.cols);
        let intermediate = down.stack.cols;
        if rows != 2 * intermediate || down.experts != experts || down.stack.rows != hidden {
            let expected = format!("[{experts}, {hidden}, {}, {BLOCK_BYTES}]", rows / 2 / BLOCK);
            return Err(self.shape(&format!("{}blocks", names.down), expected));
        }
        let bias = self.reals(&format!("{}bias", names.gate_up), &[experts, rows])?;
        let biases = Biases {
            gate: bias.iter().copied().step_by(2).collect(),
            up: bias.iter().copied().skip(1).step_by(2).collect(),
            down: self.reals(&format!("{}bias", names.down), &[experts, hidden])?,
        };
        let [gate, up] = [0, 1].map(|half| every_second_row(&gate_up.stack, half));
        let biases = Some(biases);
        let weights = Canonical {
            format,
            experts,
            hidden,
            intermediate,
            gate: Some(gate),
            up,
            down: down.stack,
            biases,
        };
        Ok(Checkpoint {
            router: self.router(&names.router, experts, hidden)?,
            activations: self.sample(experts, hidden)?,
            weights,
        })
    }

    fn stack(&self, prefix: &str) -> Result<Experts, LoadError> {
        let name = format!("{prefix}blocks");
        let blocks = self.typed(&name, "U8", &[Dtype::U8])?;
        let (experts, rows, groups) = match *blocks.shape() {
            [experts, rows, groups, BLOCK_BYTES] if experts * rows * groups > 0 => (experts, rows, groups),
            _ => return Err(self.shape(&name, "[experts, rows, K / 32, 16], none of them 0".into())),
        };
        let name = format!("{prefix}scales");
        let scales = self.typed(&name, "U8", &[Dtype::U8])?;
        if scales.shape() != [experts, rows, groups] {
            return Err(self.shape(&name, format!("{:?}", [experts, rows, groups])));
        }
        let (payload, scales) = (blocks.data().to_vec(), scales.data().to_vec());
        Ok(Experts { experts, stack: Stack::new(rows, groups * BLOCK, payload, scales) })
    }

    fn router(&self, prefix: &str, experts: usize, hidden: usize) -> Result<Option<Router>, LoadError> {
        let weight = format!("{prefix}weight");
        if !self.has(&weight) {
            return Ok(None);
        }
        let weight = self.reals(&weight, &[experts, hidden])?;
        Ok(Some(Router { weight, bias: self.reals(&format!("{prefix}bias"), &[experts])? }))
    }

    fn sample(&self, experts: usize, hidden: usize) -> Result<Option<Sample>, LoadError> {
        if !self.has("x") {
            return Ok(None);
        }
        let x = self.typed("x", "BF16", &[Dtype::BF16])?;
        let tokens = match *x.shape() {
            [tokens, cols] if cols == hidden && tokens > 0 => tokens,
            _ => return Err(self.shape("x", format!("[tokens, {hidden}] with at least one token"))),
        };
        let name = "hf_f32.topk_ids";
        let ids = self.typed(name, "I32", &[Dtype::I32])?;
        let top_k = match *ids.shape() {
            [rows, top_k] if rows == tokens => top_k,
            _ => return Err(self.shape(name, format!("[{tokens}, top_k]"))),
        };
        let ids = words(ids.data()).map(|word| {
            let expert = i32::from_le_bytes(word);
            let id = u32::try_from(expert).ok().filter(|id| (*id as usize) < experts);
            id.ok_or_else(|| LoadError::Expert {
                path: self.path.to_owned(),
                tensor: name.to_owned(),
                expert,
                experts,
            })
        });
        Ok(Some(Sample {
            ids: ids.collect::<Result<_, _>>()?,
            x: x.data().chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect(),
            top_k,
            weights: self.reals("hf_f32.topk_weights", &[tokens, top_k])?,
            out: self.reals("hf_f32.out", &[tokens, hidden])?,
        }))
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.names().contains(&tensor)
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'_>, LoadError> {
        let missing = |_| LoadError::Missing { path: self.path.to_owned(), tensor: name.to_owned() };
        self.tensors.tensor(name).map_err(missing)
    }

    fn typed(
        &self,
        name: &str,
        expected: &'static str,
        types: &[Dtype],
    ) -> Result<TensorView<'_>, LoadError> {
        let tensor = self.tensor(name)?;
        if types.contains(&tensor.dtype()) {
            return Ok(tensor);
        }
        let (path, got) = (self.path.to_owned(), tensor.dtype());
        Err(LoadError::Type { path, tensor: name.to_owned(), expected, got })
    }

    /// A tensor of numbers, as f32.
    fn reals(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let tensor = self.typed(name, "BF16 or F32", &[Dtype::BF16, Dtype::F32])?;
        if tensor.shape() != shape {
            return Err(self.shape(name, format!("{shape:?}")));
        }
        let data = tensor.data();
        Ok(match tensor.dtype() {
            Dtype::F32 => words(data).map(f32::from_le_bytes).collect(),
            _ => data.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).to_f32()).collect(),
        })
    }

    fn shape(&self, name: &str, expected: String) -> LoadError {
        let got = self.tensors.tensor(name).map_or(Vec::new(), |tensor| tensor.shape().to_vec());
        LoadError::Shape { path: self.path.to_owned(), tensor: name.to_owned(), expected, got }
    }
}

struct Experts {
    experts: usize,
    stack: Stack,
}

fn words(data: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    data.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]])
}

/// Rows `first`, `first + 2`, … of each expert. The rows of an expert are even in number, so the
/// stack as a whole alternates.
fn every_second_row(stack: &Stack, first: usize) -> Stack {
    let pick = |bytes: &[u8], stride: usize| {
        bytes.chunks_exact(stride).skip(first).step_by(2).flatten().copied().collect()
    };
    let payload = pick(&stack.payload, stack.cols / 2);
    let scales = pick(&stack.scales, stack.cols / BLOCK);
    Stack::new(stack.rows / 2, stack.cols, payload, scales)
}

#[cfg(test)]
mod tests;
