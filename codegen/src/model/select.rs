//! What oracles are made of: classes, situations, orders and the rules that change them.

use std::sync::Arc;

use super::Backend;
use super::words::{
    Activation, ActivationFormat, All2all, Checkpoint, Choice, ClassKind, Device, DeviceReason, Engine,
    Feature, GemmType, InputRule, Library, Need, RoutingMethod, Stated, Switch, TokenType,
};

/// A scheme of checkpoints: `[scheme.x]`.
#[derive(Debug)]
pub struct Scheme {
    /// Its name.
    pub name: String,
    /// The format of the weights.
    pub weight: Arc<super::Format>,
    /// The format that tokens are quantised to, and where a tensor's scale comes from.
    pub input: Option<(Arc<super::Format>, Option<super::words::ScaleSource>)>,
}

/// A setting of the engine: `[setting.x]`.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// The environment variable.
    pub variable: String,
    /// Its value where nothing sets it.
    pub default: Switch,
}

/// A name that the engine has dropped: `[[dropped]]`.
#[derive(Debug)]
pub struct Dropped {
    /// The name.
    pub name: String,
    /// The last release that had it.
    pub until: String,
    /// What does its work now.
    pub instead: String,
}

/// The classes of a member.
#[derive(Debug)]
pub struct ExpertsList {
    /// `[[experts.x]]`; `None` if the classes stand in a row.
    pub name: Option<String>,
    /// In the order in which they are tried.
    pub classes: Vec<Experts>,
}

/// A kernel class of an engine.
#[derive(Debug)]
pub struct Experts {
    /// Its name.
    pub class: String,
    /// Whether it routes itself.
    pub kind: ClassKind,
    /// When it is tried.
    pub when: When,
    /// What it can do beyond the usual.
    pub offers: Vec<Feature>,
    /// What it asks for.
    pub requires: Requires,
    /// What it refuses before all else.
    pub refuses_first: Vec<Refusal>,
    /// What it refuses after all else.
    pub refuses: Vec<Refusal>,
}

/// What a class asks for.
#[derive(Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the keys of the table")]
pub struct Requires {
    pub devices: Option<Vec<Device>>,
    pub device_reason: Option<DeviceReason>,
    pub libraries: Vec<Library>,
    pub settings: Vec<(String, Switch)>,
    pub activations: Option<Vec<Activation>>,
    pub routing: Option<Vec<RoutingMethod>>,
    pub router_dtype: Option<Vec<TokenType>>,
    pub activation_format: Option<ActivationFormat>,
    pub all2all: Option<Vec<All2all>>,
    pub all2all_refused: Vec<All2all>,
    pub all2all_use: Option<Need>,
    pub data_parallel_max: Option<usize>,
    pub expert_parallel: Option<Need>,
    pub sequence_parallel: Option<Need>,
    pub gemm_type: Option<GemmType>,
    pub hidden_multiple: Option<usize>,
}

/// Something refused in a situation.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The situation.
    pub when: When,
    /// Why.
    pub reason: Stated,
}

/// A predicate over a request.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the keys of the table")]
pub struct When {
    pub devices: Option<Vec<Device>>,
    pub activations: Option<Vec<Activation>>,
    pub schemes: Option<Vec<String>>,
    pub routing: Option<Vec<RoutingMethod>>,
    pub all2all: Option<Vec<All2all>>,
    pub activation_format: Option<ActivationFormat>,
    pub token_dtype: Option<Vec<TokenType>>,
    pub checkpoint: Option<Vec<Checkpoint>>,
    pub group: Option<Vec<usize>>,
    pub choice: Option<Choice>,
    pub names: Option<Vec<String>>,
    pub model_types: Option<Vec<String>>,
    pub has: Vec<Feature>,
    pub lacks: Vec<Feature>,
    pub library: Vec<Library>,
    pub library_missing: Vec<Library>,
    pub settings: Vec<(String, Switch)>,
    pub set: Vec<String>,
    pub unset: Vec<String>,
    pub hidden: Range,
    pub intermediate: Range,
    pub experts: Range,
    pub data_parallel: Range,
    pub expert_parallel: Range,
}

/// A range of numbers; an absent bound bounds nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the keys of the table")]
pub struct Range {
    pub min: Option<usize>,
    pub max: Option<usize>,
    pub not_multiple: Option<usize>,
}

/// The orders of one family of weights.
#[derive(Debug)]
pub struct Oracle {
    /// The family.
    pub family: String,
    /// One order an engine.
    pub orders: Vec<EngineOrder>,
}

/// One engine's order.
#[derive(Debug)]
pub struct EngineOrder {
    /// The engine.
    pub engine: Engine,
    /// What a token format that is asked for does.
    pub input: InputRule,
    /// Best first.
    pub members: Vec<Member>,
    /// Tried only where they are asked for.
    pub explicit: Vec<Member>,
    /// Names that are taken for none.
    pub ignored_names: Vec<String>,
    /// Requests that are refused at once.
    pub refuse: Vec<Refusal>,
    /// Rules that change it.
    pub reorder: Vec<Reorder>,
}

/// Rows that are tried as one.
#[derive(Debug)]
pub struct Member {
    /// The member of the engine's enum, or the row's name.
    pub name: String,
    /// What users ask for it by.
    pub flags: Vec<String>,
    /// Its rows.
    pub rows: Vec<Arc<Backend>>,
    /// What is refused before its classes are asked.
    pub refuse: Vec<Refusal>,
}

/// A rule that changes an order.
#[derive(Debug)]
pub struct Reorder {
    /// The situation.
    pub when: When,
    /// What it does.
    pub change: Change,
}

/// A change of an order, by member.
#[derive(Debug)]
#[allow(missing_docs, reason = "the verbs of the table")]
pub enum Change {
    Before { member: String, anchor: String },
    After { member: String, anchor: String },
    First(String),
    Last(String),
    Drop(Vec<String>),
    Only(Vec<String>),
    Force(Vec<String>),
}
