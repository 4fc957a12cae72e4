//! The oracle: which backend runs a family of weights, and why not the others.
//!
//! An order of rows and the rules that change it are const data made from `[oracle.x]`; the one
//! evaluator is here. A row is tried class by class; it is chosen with the first class that accepts
//! the request, and refused with one reason for each class if none does.

use std::fmt;

use crate::backend::{Activation, Contract, Kernel};
use crate::words::vocabulary;

/// What a layer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whose order is followed.
    pub engine: Engine,
    /// The device.
    pub device: Device,
    /// Libraries that are not installed.
    pub missing_libraries: Vec<String>,
    /// The activation function between the GEMMs.
    pub activation: Activation,
    /// The format that tokens have to be quantised to, by its name in the table; `None` leaves it to
    /// the order.
    pub input_format: Option<String>,
    /// The hidden size.
    pub hidden: usize,
    /// How the router picks experts.
    pub routing: RoutingMethod,
    /// How the layer is spread over ranks.
    pub parallel: Parallel,
}

impl Request {
    /// One rank, every library installed, softmax after top-k, vLLM's order, no format asked for.
    pub fn new(device: Device, activation: Activation, hidden: usize) -> Self {
        Self {
            engine: Engine::Vllm,
            device,
            missing_libraries: Vec::new(),
            activation,
            input_format: None,
            hidden,
            routing: RoutingMethod::Renormalize,
            parallel: Parallel { data_parallel: 1, expert_parallel: 1, all2all: None },
        }
    }
}

/// How a layer is spread over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parallel {
    /// Data-parallel ranks.
    pub data_parallel: usize,
    /// Expert-parallel ranks.
    pub expert_parallel: usize,
    /// The all-to-all in use; `None` if tokens stay on their rank.
    pub all2all: Option<All2all>,
}

vocabulary! {
    /// Whose order of rows an oracle follows.
    Engine {
        /// vLLM's.
        Vllm = "vllm",
        /// This crate's own: only rows that it executes, wherever it executes them.
        Native = "native",
    }
}

vocabulary! {
    /// A device, by its architecture.
    Device {
        /// Turing.
        Sm75 = "sm_75",
        /// A100.
        Sm80 = "sm_80",
        /// A10, RTX 30.
        Sm86 = "sm_86",
        /// L4, L40, RTX 40.
        Sm89 = "sm_89",
        /// H100, H200.
        Sm90 = "sm_90",
        /// B200.
        Sm100 = "sm_100",
        /// B300.
        Sm103 = "sm_103",
        /// Thor.
        Sm110 = "sm_110",
        /// RTX 50, RTX PRO 6000.
        Sm120 = "sm_120",
        /// DGX Spark.
        Sm121 = "sm_121",
        /// Instinct MI300.
        Gfx942 = "gfx942",
        /// Instinct MI350.
        Gfx950 = "gfx950",
        /// Instinct MI450.
        Gfx1250 = "gfx1250",
    }
}

vocabulary! {
    /// How the router picks experts. vLLM's `RoutingMethodType`.
    RoutingMethod {
        /// Softmax, then top-k.
        Default = "default",
        /// Top-k, then softmax over the k.
        Renormalize = "renormalize",
        /// Softmax, top-k, then weights scaled to a sum of 1.
        RenormalizeNaive = "renormalize_naive",
        /// Sigmoid with a bias, top-k groups, then top-k.
        DeepseekV3 = "deepseek_v3",
        /// Top-1, then sigmoid.
        Llama4 = "llama4",
        /// Top-k of the scores as they are.
        Topk = "topk",
        /// Sigmoid, then top-k.
        Sigmoid = "sigmoid",
        /// The same, then weights scaled to a sum of 1.
        SigmoidRenorm = "sigmoid_renorm",
        /// Sigmoid with a bias for the choice, top-k, then weights scaled to a sum of 1.
        Minimax2 = "minimax2",
    }
}

vocabulary! {
    /// An all-to-all implementation. vLLM's `--all2all-backend`.
    All2all {
        /// All-gather and reduce-scatter.
        AllgatherReducescatter = "allgather_reducescatter",
        /// DeepEP, high throughput.
        DeepepHighThroughput = "deepep_high_throughput",
        /// DeepEP, low latency.
        DeepepLowLatency = "deepep_low_latency",
        /// DeepEP v2.
        DeepepV2 = "deepep_v2",
        /// FlashInfer over NVLink, one-sided.
        FlashinferNvlinkOneSided = "flashinfer_nvlink_one_sided",
        /// FlashInfer over NVLink, two-sided.
        FlashinferNvlinkTwoSided = "flashinfer_nvlink_two_sided",
        /// MoonEP.
        Moonep = "moonep",
        /// Mori.
        Mori = "mori",
        /// NIXL.
        NixlEp = "nixl_ep",
    }
}

vocabulary! {
    /// Humming's two ways of reading routed tokens.
    GemmType {
        /// By index.
        Indexed = "indexed",
        /// Grouped by expert.
        Grouped = "grouped",
    }
}

/// A kernel class of the engine, with what it asks for.
#[derive(Debug, Clone, Copy)]
pub struct ExpertsClass {
    /// The engine's class name.
    pub name: &'static str,
    /// What it asks for.
    pub requires: Requires,
}

/// Where an engine's kernel may be selected. An absent (`None` or empty) field restricts nothing.
#[derive(Debug, Clone, Copy)]
pub struct Requires {
    /// Devices it runs on.
    pub devices: Option<&'static [Device]>,
    /// Libraries it needs.
    pub libraries: &'static [&'static str],
    /// Routing methods it implements.
    pub routing: Option<&'static [RoutingMethod]>,
    /// The only all-to-alls it works behind; an empty list allows none.
    pub all2all: Option<&'static [All2all]>,
    /// All-to-alls it does not work behind.
    pub all2all_refused: &'static [All2all],
    /// The most data-parallel ranks.
    pub data_parallel_max: Option<usize>,
    /// Its GEMM type, if the engine prefers one type by configuration.
    pub gemm_type: Option<GemmType>,
    /// What must divide the hidden size.
    pub hidden_multiple: Option<usize>,
}

impl Requires {
    /// Restricts nothing.
    pub const NOTHING: Self = Self {
        devices: None,
        libraries: &[],
        routing: None,
        all2all: None,
        all2all_refused: &[],
        data_parallel_max: None,
        gemm_type: None,
        hidden_multiple: None,
    };
}

/// Why a class, or a row that has none, was not chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The class does not run on the device.
    Device(Device),
    /// A library that it needs is missing.
    Library(&'static str),
    /// The row does not honour the activation function.
    Activation(Activation),
    /// The row reads no tokens in the format asked for.
    QuantScheme,
    /// The class does not work behind the all-to-all or with that many ranks.
    ParallelConfig,
    /// The class does not implement the routing method.
    RoutingMethod(RoutingMethod),
    /// The class takes no such hidden size.
    HiddenDim {
        /// What must divide it.
        multiple: usize,
    },
    /// The engine prefers the other GEMM type for this configuration.
    HummingGemmType,
}

impl Reason {
    /// The reason's name in vLLM's vocabulary.
    pub fn code(self) -> &'static str {
        match self {
            Self::Device(_) | Self::Library(_) => "device",
            Self::Activation(_) => "activation",
            Self::QuantScheme => "quant_scheme",
            Self::ParallelConfig => "parallel_config",
            Self::RoutingMethod(_) => "routing_method",
            Self::HiddenDim { .. } => "hidden_dim",
            Self::HummingGemmType => "humming_gemm_type",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => write!(f, "does not run on {device}"),
            Self::Library(library) => write!(f, "needs the library `{library}`"),
            Self::Activation(function) => write!(f, "does not honour the activation function {function}"),
            Self::QuantScheme => f.write_str("does not read tokens in the format asked for"),
            Self::ParallelConfig => f.write_str("does not work with this all-to-all and number of ranks"),
            Self::RoutingMethod(method) => write!(f, "does not implement {method} routing"),
            Self::HiddenDim { multiple } => write!(f, "takes hidden sizes that are multiples of {multiple}"),
            Self::HummingGemmType => f.write_str("is not the GEMM type preferred for this configuration"),
        }
    }
}

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// The row.
    pub row: &'static str,
    /// The class; `None` if the row names none.
    pub class: Option<&'static str>,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Some(class) => write!(f, "{} ({class}): {}", self.row, self.reason),
            None => write!(f, "{}: {}", self.row, self.reason),
        }
    }
}

/// A choice.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The row.
    pub contract: &'static Contract,
    /// The engine's class; `None` if the row names none, or the order is this crate's own.
    pub class: Option<&'static str>,
    /// Every refusal met before the choice, in order.
    pub rejected: Vec<Rejected>,
}

/// No row fits.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no {family} backend fits: {}", rejected.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct NothingFits {
    /// The family of weights.
    pub family: &'static str,
    /// Every refusal, in order; empty if the engine has no order for the family.
    pub rejected: Vec<Rejected>,
}

/// A family's orders. Made from `[oracle.x]`.
#[derive(Debug)]
pub struct Oracle {
    /// The family of weights.
    pub family: &'static str,
    /// One order for each engine that has one.
    pub orders: &'static [Order],
}

/// One engine's order of rows.
#[derive(Debug)]
pub struct Order {
    /// The engine.
    pub engine: Engine,
    /// The rows, best first.
    pub rows: &'static [&'static Contract],
    /// Rules that change the order, applied one after the other.
    pub reorder: &'static [Reorder],
}

/// A rule that changes an order in some situations.
#[derive(Debug)]
pub struct Reorder {
    /// The situation.
    pub when: Situation,
    /// The change.
    pub change: Change,
}

/// When a rule applies: where every field that is there holds.
#[derive(Debug)]
pub struct Situation {
    /// On one of these devices.
    pub devices: Option<&'static [Device]>,
    /// With one of these activation functions.
    pub activations: Option<&'static [Activation]>,
}

/// A change of an order, by row name.
#[derive(Debug)]
pub enum Change {
    /// Moves a row directly before another.
    Before {
        /// The row that moves.
        row: &'static str,
        /// The row it goes to.
        anchor: &'static str,
    },
    /// Moves a row directly after another.
    After {
        /// The row that moves.
        row: &'static str,
        /// The row it goes to.
        anchor: &'static str,
    },
    /// Moves a row to the front.
    First(&'static str),
    /// Moves a row to the end.
    Last(&'static str),
    /// Takes rows out.
    Drop(&'static [&'static str]),
    /// Takes all other rows out.
    Only(&'static [&'static str]),
}

/// Follows `oracle` for `request`.
///
/// # Errors
/// [`NothingFits`], with every refusal, if no row accepts the request.
pub fn evaluate(oracle: &Oracle, request: &Request) -> Result<Selection, NothingFits> {
    let mut rejected = Vec::new();
    for contract in order_for(oracle, request) {
        match accept(contract, request, &mut rejected) {
            Some(class) => return Ok(Selection { contract, class, rejected }),
            None => continue,
        }
    }
    Err(NothingFits { family: oracle.family, rejected })
}

fn order_for(oracle: &Oracle, request: &Request) -> Vec<&'static Contract> {
    let Some(order) = oracle.orders.iter().find(|order| order.engine == request.engine) else {
        return Vec::new();
    };
    let mut rows = order.rows.to_vec();
    for rule in order.reorder.iter().filter(|rule| applies(&rule.when, request)) {
        change(&mut rows, &rule.change);
    }
    rows
}

fn applies(when: &Situation, request: &Request) -> bool {
    when.devices.is_none_or(|devices| devices.contains(&request.device))
        && when.activations.is_none_or(|functions| functions.contains(&request.activation))
}

fn change(rows: &mut Vec<&'static Contract>, change: &Change) {
    let index = |rows: &[&Contract], name: &str| rows.iter().position(|row| row.name == name);
    let mut move_to = |name: &str, place: &dyn Fn(&[&Contract]) -> usize| {
        if let Some(from) = index(rows, name) {
            let row = rows.remove(from);
            let to = place(rows);
            rows.insert(to, row);
        }
    };
    match change {
        // The checker refuses a rule whose anchor is not in the order; a rule before this one may
        // have dropped it, and then there is nothing to move to and the row goes last.
        Change::Before { row, anchor } => move_to(row, &|rows| index(rows, anchor).unwrap_or(rows.len())),
        Change::After { row, anchor } => {
            move_to(row, &|rows| index(rows, anchor).map_or(rows.len(), |at| at + 1))
        }
        Change::First(row) => move_to(row, &|_| 0),
        Change::Last(row) => move_to(row, &|rows| rows.len()),
        Change::Drop(names) => rows.retain(|row| !names.contains(&row.name)),
        Change::Only(names) => rows.retain(|row| names.contains(&row.name)),
    }
}

/// The class with which `contract` accepts, or its refusals.
fn accept(
    contract: &'static Contract,
    request: &Request,
    rejected: &mut Vec<Rejected>,
) -> Option<Option<&'static str>> {
    let row_reason = row_refuses(contract, request);
    // This crate's kernels run wherever the crate does; `requires` speaks of the engine's.
    if request.engine == Engine::Native || contract.experts.is_empty() {
        debug_assert!(request.engine != Engine::Native || contract.kernel == Kernel::Generated);
        return match row_reason {
            None => Some(None),
            Some(reason) => {
                rejected.push(Rejected { row: contract.name, class: None, reason });
                None
            }
        };
    }
    for class in contract.experts {
        // The order of vLLM's `is_supported_config`: device, activation, scheme, then the rest.
        let reason = class_lacks(&class.requires, request)
            .or(row_reason)
            .or_else(|| class_refuses(&class.requires, request));
        match reason {
            None => return Some(Some(class.name)),
            Some(reason) => rejected.push(Rejected { row: contract.name, class: Some(class.name), reason }),
        }
    }
    None
}

fn row_refuses(contract: &Contract, request: &Request) -> Option<Reason> {
    if !contract.activations.iter().any(|honoured| honoured.function == request.activation) {
        return Some(Reason::Activation(request.activation));
    }
    let wanted = request.input_format.as_deref()?;
    let reads = contract.gemm1_input.formats.iter().any(|format| format.name == wanted);
    (!reads).then_some(Reason::QuantScheme)
}

fn class_lacks(requires: &Requires, request: &Request) -> Option<Reason> {
    if requires.devices.is_some_and(|devices| !devices.contains(&request.device)) {
        return Some(Reason::Device(request.device));
    }
    let is_missing = |library: &&&str| request.missing_libraries.iter().any(|missing| missing == **library);
    requires.libraries.iter().find(is_missing).map(|library| Reason::Library(library))
}

fn class_refuses(requires: &Requires, request: &Request) -> Option<Reason> {
    let parallel = &request.parallel;
    let behind = parallel.all2all.is_none_or(|all2all| {
        requires.all2all.is_none_or(|allowed| allowed.contains(&all2all))
            && !requires.all2all_refused.contains(&all2all)
    });
    if !behind || requires.data_parallel_max.is_some_and(|max| parallel.data_parallel > max) {
        return Some(Reason::ParallelConfig);
    }
    if requires.routing.is_some_and(|methods| !methods.contains(&request.routing)) {
        return Some(Reason::RoutingMethod(request.routing));
    }
    if let Some(multiple) =
        requires.hidden_multiple.filter(|multiple| !request.hidden.is_multiple_of(*multiple))
    {
        return Some(Reason::HiddenDim { multiple });
    }
    let preferred = if parallel.expert_parallel > 1 { GemmType::Grouped } else { GemmType::Indexed };
    requires.gemm_type.filter(|gemm_type| *gemm_type != preferred).map(|_| Reason::HummingGemmType)
}
