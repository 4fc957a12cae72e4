//! The manifest, the tensors, and the list of relations that are not checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::bf16;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;

/// What `manifest.json` says.
#[derive(Deserialize)]
pub(crate) struct Manifest {
    pub(crate) files: Vec<File>,
}

/// One safetensors file and what holds between its tensors.
#[derive(Deserialize)]
pub(crate) struct File {
    pub(crate) file: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) params: Value,
    pub(crate) relations: Vec<Relation>,
}

/// `outputs` is what `source` made of `inputs`.
#[derive(Deserialize)]
pub(crate) struct Relation {
    pub(crate) relation: String,
    pub(crate) source: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Outputs,
    #[serde(default)]
    pub(crate) params: Value,
}

/// Names of output tensors, in order or by slot.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Outputs {
    List(Vec<String>),
    Slots(BTreeMap<String, String>),
}

impl Relation {
    pub(crate) fn outputs(&self) -> Vec<&str> {
        match &self.outputs {
            Outputs::List(names) => names.iter().map(String::as_str).collect(),
            Outputs::Slots(slots) => slots.values().map(String::as_str).collect(),
        }
    }

    /// The slots and their tensors; none if outputs have an order instead.
    pub(crate) fn slots(&self) -> Vec<(&str, &str)> {
        match &self.outputs {
            Outputs::List(_) => Vec::new(),
            Outputs::Slots(slots) => {
                slots.iter().map(|(slot, name)| (slot.as_str(), name.as_str())).collect()
            }
        }
    }

    /// The tensor in slot `slot`.
    pub(crate) fn slot(&self, slot: &str) -> Option<&str> {
        match &self.outputs {
            Outputs::List(_) => None,
            Outputs::Slots(slots) => slots.get(slot).map(String::as_str),
        }
    }

    /// The name that a source goes by in a quantisation file.
    pub(crate) fn label(&self) -> &str {
        self.params["label"].as_str().unwrap_or("")
    }

    pub(crate) fn describe(&self, file: &File) -> String {
        let outputs = self.outputs().join(", ");
        format!("{}: {} [{}] {} -> {outputs}", file.file, self.source, self.label(), self.relation)
    }
}

/// A tensor, by name.
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// Elements of its last dimension.
    pub(crate) fn cols(&self) -> usize {
        *self.shape.last().expect("a tensor of the manifest has a dimension")
    }

    /// The 32-bit words.
    pub(crate) fn words(&self) -> Vec<u32> {
        assert!(matches!(self.dtype, Dtype::I32 | Dtype::F32));
        self.bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// The values of a tensor of numbers. Integers are bit patterns of bf16 (I16) and f32 (I32) in
    /// the cast files.
    pub(crate) fn reals(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::F32 | Dtype::I32 => self.words().into_iter().map(f32::from_bits).collect(),
            Dtype::BF16 | Dtype::I16 => self.bf16().into_iter().map(bf16::to_f32).collect(),
            other => panic!("{other} is no type of numbers"),
        }
    }

    pub(crate) fn bf16(&self) -> Vec<bf16> {
        assert!(matches!(self.dtype, Dtype::BF16 | Dtype::I16));
        self.bytes.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    pub(crate) fn doubles(&self) -> Vec<f64> {
        self.reals().into_iter().map(f64::from).collect()
    }
}

/// The tensors of one file.
pub(crate) struct Tensors(BTreeMap<String, Tensor>);

impl Tensors {
    pub(crate) fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }
}

impl std::ops::Index<&str> for Tensors {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        self.0.get(name).unwrap_or_else(|| panic!("no tensor `{name}`"))
    }
}

/// Relations that are not checked, or not in full. Every text is a prefix of the manifest's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    #[serde(default)]
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) relation: String,
    #[serde(default)]
    pub(crate) label: String,
    /// What alone is not checked, if there is some of it; all else is. Without it nothing is checked.
    pub(crate) except: Option<Except>,
    /// Why.
    pub(crate) reason: String,
}

/// What numbers of a relation are not checked.
#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Except {
    /// Elements whose input is a subnormal f32.
    SubnormalInputs,
    /// Elements of blocks with scale byte 0 or 255.
    EdgeScales,
}

impl Listed {
    pub(crate) fn covers(&self, relation: &Relation) -> bool {
        relation.source.starts_with(&self.source)
            && relation.relation.starts_with(&self.relation)
            && relation.label().starts_with(&self.label)
    }
}

/// Our copy of the golden files.
fn own() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Another folder of golden files, if the environment names one.
pub(crate) fn other() -> Option<PathBuf> {
    std::env::var_os("SCALEWRIGHT_GOLDEN").map(PathBuf::from)
}

/// Where the golden files are.
pub(crate) fn path(file: &str) -> PathBuf {
    other().unwrap_or_else(own).join(file)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The manifest. Python writes infinite parameters as a bare word, which is not JSON; no check reads
/// one, so it stands for nothing.
pub(crate) fn manifest() -> Manifest {
    let path = path("manifest.json");
    let json = without_infinities(&text(&path));
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `json` with `null` where a value is the bare word `Infinity`.
fn without_infinities(json: &str) -> String {
    let before = [":", ": ", "[", ",", ", "];
    before.iter().fold(json.replace("-Infinity", "Infinity"), |json, before| {
        json.replace(&format!("{before}Infinity"), &format!("{before}null"))
    })
}

/// What `unsupported.toml` lists.
pub(crate) fn listed() -> Vec<Listed> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Document {
        unsupported: Vec<Listed>,
    }
    let document: Document = toml::from_str(&text(&own().join("unsupported.toml"))).unwrap();
    document.unsupported
}

pub(crate) fn tensors(file: &File) -> Tensors {
    let path = path(&file.file);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let own = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let tensor =
            Tensor { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
        (name, tensor)
    };
    Tensors(tensors.tensors().into_iter().map(own).collect())
}

/// The outcome of a check: what differs, if anything does.
pub(crate) type Outcome = Result<(), String>;

/// Compares, value by value, and names the first that differs.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &[T], theirs: &[T]) -> Outcome {
    all_same(what, ours, theirs, |ours, theirs| ours == theirs)
}

/// As [`same`], with `is_same` to judge.
pub(crate) fn all_same<T: std::fmt::Debug>(
    what: &str,
    ours: &[T],
    theirs: &[T],
    is_same: impl Fn(&T, &T) -> bool,
) -> Outcome {
    if ours.len() != theirs.len() {
        return Err(format!("{what}: {} values, not {}", ours.len(), theirs.len()));
    }
    let differ: Vec<usize> =
        (0..ours.len()).filter(|index| !is_same(&ours[*index], &theirs[*index])).collect();
    match differ.first() {
        None => Ok(()),
        Some(&first) => Err(format!(
            "{what}: {} of {} differ; [{first}] is {:?}, not {:?}",
            differ.len(),
            ours.len(),
            ours[first],
            theirs[first]
        )),
    }
}

/// Whether two numbers are equal within a tolerance; NaN equals NaN, infinities their like.
pub(crate) fn close(ours: f64, theirs: f64, relative: f64, absolute: f64) -> bool {
    ours == theirs
        || (ours.is_nan() && theirs.is_nan())
        || (ours - theirs).abs() <= relative * theirs.abs() + absolute
}
