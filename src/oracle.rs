//! The oracle: which backend runs a family of weights, and why not the others.
//!
//! An order of members, the classes of each and the rules that change the order are const data made
//! from `[oracle.x]`; the one evaluator is here. A member of the engine's enum is tried class by class;
//! it is chosen with the first class that accepts the request, and refused with one reason for each
//! class if none does. The checks of a class, and their order, are vLLM's `is_supported_config`.

mod known;
mod narrowed;
mod reason;
mod request;
mod when;

use std::fmt;

pub use reason::{Reason, Stated};
pub use request::{
    ActivationFormat, All2all, Checkpoint, Device, Engine, Feature, GemmType, Parallel, Request,
    RoutingMethod, Switch, TokenType,
};
pub use when::{Choice, Range, Setting, When};

use self::narrowed::narrowed;
use crate::backend::{Activation, Contract};

narrowed! {
    /// A kernel class of the engine, with what it asks for.
    ExpertsClass;
    /// A class that is handed routed tokens, is always tried, offers nothing beyond the usual and asks
    /// for nothing.
    /// A class that is handed routed tokens, is always tried, offers nothing beyond the usual and asks
    /// for nothing.
    MODULAR;
    fields {
        /// The engine's class name.
        name: &'static str = "",
        /// Whether it routes itself.
        kind: ClassKind = ClassKind::Modular,
        /// When the engine tries it at all.
        when: When = When::ALWAYS,
        /// What it can do beyond the usual.
        offers: &'static [Feature] = &[],
        /// What it asks for.
        requires: Requires = Requires::NOTHING,
        /// What it refuses before all else.
        refuses_first: &'static [Refusal] = &[],
        /// What it refuses after all else.
        refuses: &'static [Refusal] = &[],
    }
    optional {}
}

/// Whether a class routes itself. vLLM's pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassKind {
    /// It is handed router logits.
    Monolithic,
    /// It is handed routed tokens.
    Modular,
}

narrowed! {
    /// Where an engine's kernel may be selected. An absent (`None` or empty) field restricts nothing.
    Requires;
    /// Restricts nothing.
    NOTHING;
    fields {
        /// Libraries it needs.
        libraries: &'static [&'static str] = &[],
        /// Settings it needs.
        settings: &'static [(&'static Setting, Switch)] = &[],
        /// How it is handed tokens.
        activation_format: ActivationFormat = ActivationFormat::Standard,
        /// All-to-alls it does not work behind.
        all2all_refused: &'static [All2all] = &[],
        /// Whether it needs an all-to-all.
        all2all_use: Need = Need::Free,
        /// Whether experts have to be, or may be, spread over ranks.
        expert_parallel: Need = Need::Free,
        /// Whether it works with sequence-parallel ranks.
        sequence_parallel: Need = Need::Free,
    }
    optional {
        /// Devices it runs on.
        devices: &'static [Device],
        /// Whether a refused device also means that AITER is off.
        needs_aiter: Aiter,
        /// Activation functions it implements.
        activations: &'static [Activation],
        /// Routing methods it implements.
        routing: &'static [RoutingMethod],
        /// Types of router logits it takes.
        router_dtype: &'static [TokenType],
        /// The only all-to-alls it works behind; an empty list allows none.
        all2all: &'static [All2all],
        /// The most data-parallel ranks.
        data_parallel_max: usize,
        /// Its GEMM type, if the engine prefers one type by configuration.
        gemm_type: GemmType,
        /// What must divide the hidden size.
        hidden_multiple: usize,
    }
}

/// What a refused device says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aiter {
    /// That AITER is off or missing.
    Off,
}

/// Whether something is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It may be or not.
    Free,
    /// It has to be.
    Required,
    /// It must not be.
    Refused,
}

/// Something refused in a situation.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    /// The situation.
    pub when: When,
    /// Why.
    pub reason: Stated,
}

impl Refusal {
    /// Refuses in the situation, for the reason.
    pub const fn new(when: When, reason: Stated) -> Self {
        Self { when, reason }
    }
}

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// The member of the engine's enum; in this crate's own order, the row.
    pub backend: &'static str,
    /// The class; `None` where there is none, or the member is refused before its classes are asked.
    pub class: Option<&'static str>,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Some(class) => write!(f, "{} ({class}): {}", self.backend, self.reason),
            None => write!(f, "{}: {}", self.backend, self.reason),
        }
    }
}

/// A choice.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The row.
    pub contract: &'static Contract,
    /// The member of the engine's enum; in this crate's own order, the row.
    pub backend: &'static str,
    /// The engine's class; `None` if the row names none, or the order is this crate's own.
    pub class: Option<&'static str>,
    /// Every refusal met before the choice, in order.
    pub rejected: Vec<Rejected>,
}

/// Why there is no choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSelection {
    /// No row fits.
    #[error("{}{}", self.headline(), list(rejected))]
    NothingFits {
        /// The family of weights.
        family: &'static str,
        /// Every refusal, in order; empty if the engine has no order for the family.
        rejected: Vec<Rejected>,
    },
    /// What was asked for, by name or by a setting, does not fit; nothing else is tried in its place.
    #[error("{}{}", self.headline(), list(rejected))]
    AskedFor {
        /// The family of weights.
        family: &'static str,
        /// The name, or the setting.
        asked: String,
        /// Every refusal, in order.
        rejected: Vec<Rejected>,
    },
    /// The request is refused before any row is asked.
    #[error("{family} weights: {}", reason.sentence())]
    Refused {
        /// The family of weights.
        family: &'static str,
        /// Why.
        reason: Stated,
    },
    /// A name that the family does not have.
    #[error("there is no {family} backend `{name}`{}; the family has {}", meant(name, known), known.join(", "))]
    UnknownName {
        /// The family of weights.
        family: &'static str,
        /// The name.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// A name that the engine has dropped.
    #[error("`{name}` was dropped after {until}; write {instead}")]
    Dropped {
        /// The name.
        name: &'static str,
        /// The last release that had it.
        until: &'static str,
        /// What does its work now.
        instead: &'static str,
    },
}

impl NoSelection {
    /// Every refusal that led to it.
    pub fn rejected(&self) -> &[Rejected] {
        match self {
            Self::NothingFits { rejected, .. } | Self::AskedFor { rejected, .. } => rejected,
            _ => &[],
        }
    }

    /// What it says but for the refusals.
    pub fn headline(&self) -> String {
        match self {
            Self::NothingFits { family, rejected } if rejected.is_empty() => {
                format!("no {family} backend fits, and none was tried")
            }
            Self::NothingFits { family, .. } => format!("no {family} backend fits"),
            Self::AskedFor { family, asked, rejected } if rejected.is_empty() => format!(
                "the {family} backend asked for ({asked}) has no place in the order here: it does not serve the \
                 scheme that is asked for, or a rule takes it out"
            ),
            Self::AskedFor { family, asked, .. } => {
                format!("the {family} backend asked for ({asked}) does not fit")
            }
            Self::Refused { .. } | Self::UnknownName { .. } | Self::Dropped { .. } => self.to_string(),
        }
    }
}

fn list(rejected: &[Rejected]) -> String {
    let sentences: Vec<_> = rejected.iter().map(ToString::to_string).collect();
    if sentences.is_empty() { String::new() } else { format!(": {}", sentences.join("; ")) }
}

fn meant(name: &str, known: &[&'static str]) -> String {
    crate::words::UnknownWord { word: name.to_owned(), known: known.to_vec() }.meant()
}

/// A family's orders. Made from `[oracle.x]`.
#[derive(Debug)]
pub struct Oracle {
    /// The family of weights.
    pub family: &'static str,
    /// One order for each engine that has one.
    pub orders: &'static [Order],
    /// Names that the engine has dropped.
    pub dropped: &'static [Dropped],
}

/// A name that an engine has dropped.
#[derive(Debug)]
pub struct Dropped {
    /// The name.
    pub name: &'static str,
    /// The last release that had it.
    pub until: &'static str,
    /// What does its work now.
    pub instead: &'static str,
}

/// One engine's order.
#[derive(Debug)]
pub struct Order {
    /// The engine.
    pub engine: Engine,
    /// What a token format that is asked for does.
    pub input: InputRule,
    /// The schemes that ask for none.
    pub plain_schemes: &'static [&'static str],
    /// The members, best first.
    pub members: &'static [Member],
    /// Members that are tried only where they are asked for by name.
    pub explicit: &'static [Member],
    /// Names that are taken for no name.
    pub ignored_names: &'static [&'static str],
    /// Requests that are refused before any member is asked.
    pub refuse: &'static [Refusal],
    /// Rules that change the order, applied one after the other.
    pub reorder: &'static [Reorder],
}

/// What the scheme of a request does to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputRule {
    /// Only rows that serve it are chosen.
    Required,
    /// Rows that serve it are tried first, rows that read 16-bit tokens after them, no others.
    Preferred,
    /// Nothing.
    Ignored,
}

/// A member of the engine's enum: rows that are tried as one.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Its name; that of the row where the engine has none.
    pub name: &'static str,
    /// Names that users ask for it by.
    pub flags: &'static [&'static str],
    /// Its rows.
    pub rows: &'static [&'static Contract],
    /// What is refused before its classes are asked.
    pub refuse: &'static [Refusal],
}

/// A rule that changes an order in some situations.
#[derive(Debug)]
pub struct Reorder {
    /// The situation.
    pub when: When,
    /// The change.
    pub change: Change,
}

/// A change of an order, by member.
#[derive(Debug)]
pub enum Change {
    /// Moves a member directly before another.
    Before {
        /// The member that moves.
        member: &'static str,
        /// The member it goes to.
        anchor: &'static str,
    },
    /// Moves a member directly after another.
    After {
        /// The member that moves.
        member: &'static str,
        /// The member it goes to.
        anchor: &'static str,
    },
    /// Moves a member to the front.
    First(&'static str),
    /// Moves a member to the end.
    Last(&'static str),
    /// Takes members out.
    Drop(&'static [&'static str]),
    /// Takes all other members out.
    Only(&'static [&'static str]),
    /// Leaves only these, whatever name is asked for.
    Force(&'static [&'static str]),
}

/// Follows `oracle` for `request`.
///
/// # Errors
/// [`NoSelection`] if no row accepts the request, or the one asked for does not, with every refusal.
pub fn evaluate(oracle: &Oracle, request: &Request) -> Result<Selection, NoSelection> {
    let family = oracle.family;
    let Some(order) = oracle.orders.iter().find(|order| order.engine == request.engine) else {
        return Err(NoSelection::NothingFits { family, rejected: Vec::new() });
    };
    let name = request.backend.as_deref().filter(|name| !order.ignored_names.contains(name));
    let choice = if name.is_some() { Choice::Named } else { Choice::Automatic };
    if let Some(refusal) = order.refuse.iter().find(|refusal| refusal.when.holds(request, choice)) {
        return Err(NoSelection::Refused { family, reason: refusal.reason });
    }
    let (candidates, asked) = candidates(oracle, order, request, name, choice)?;
    let mut rejected = Vec::new();
    for member in candidates {
        if let Some((contract, class)) = accept(order, member, request, choice, &mut rejected) {
            return Ok(Selection { contract, backend: member.name, class, rejected });
        }
    }
    Err(match asked {
        Some(asked) => NoSelection::AskedFor { family, asked, rejected },
        None => NoSelection::NothingFits { family, rejected },
    })
}

type Candidates = Vec<&'static Member>;

/// The members to try, in order, and what was asked for, if something was.
fn candidates(
    oracle: &Oracle,
    order: &'static Order,
    request: &Request,
    name: Option<&str>,
    choice: Choice,
) -> Result<(Candidates, Option<String>), NoSelection> {
    let all = || order.members.iter().chain(order.explicit);
    let mut members: Candidates = match name {
        None => order.members.iter().collect(),
        Some(name) => all().filter(|member| member.flags.contains(&name)).collect(),
    };
    let mut forced = false;
    for rule in order.reorder.iter().filter(|rule| rule.when.holds(request, choice)) {
        if let Change::Force(names) = rule.change {
            members = all().filter(|member| names.contains(&member.name)).collect();
            forced = true;
            break;
        }
        change(&mut members, &rule.change);
    }
    if let Some(name) = name.filter(|name| !forced && !all().any(|member| member.flags.contains(name))) {
        return Err(unknown(oracle, all(), name));
    }
    if order.input == InputRule::Preferred {
        prefer(&mut members, order, request);
    }
    let asked = name.map(str::to_owned).or_else(|| forced.then(|| "a setting".to_owned()));
    Ok((members, asked))
}

fn unknown(oracle: &Oracle, members: impl Iterator<Item = &'static Member>, name: &str) -> NoSelection {
    if let Some(dropped) = oracle.dropped.iter().find(|dropped| dropped.name.eq_ignore_ascii_case(name)) {
        let Dropped { name, until, instead } = *dropped;
        return NoSelection::Dropped { name, until, instead };
    }
    let mut known: Vec<&str> = members.flat_map(|member| member.flags).copied().collect();
    known.sort_unstable();
    known.dedup();
    NoSelection::UnknownName { family: oracle.family, name: name.to_owned(), known }
}

/// Members that serve the scheme of the request, then those that read 16-bit tokens. Where nothing but
/// quantised tokens is to be had and none are asked for, all stay.
fn prefer(members: &mut Candidates, order: &Order, request: &Request) {
    let serves = |member: &&Member| member.rows.iter().any(|row| serves(row, request));
    let is_plain = |member: &&Member| {
        member.rows.iter().any(|row| row.gemm1_input.formats.iter().all(|format| format.block.is_none()))
    };
    let (first, rest): (Vec<_>, Vec<_>) = members.iter().copied().partition(serves);
    let plain: Vec<_> = rest.into_iter().filter(is_plain).collect();
    let asks_for_none = request.scheme.as_deref().is_none_or(|scheme| order.plain_schemes.contains(&scheme));
    if !(first.is_empty() && plain.is_empty() && asks_for_none) {
        *members = first.into_iter().chain(plain).collect();
    }
}

fn change(members: &mut Candidates, change: &Change) {
    let index = |members: &[&Member], name: &str| members.iter().position(|member| member.name == name);
    let mut move_to = |name: &str, place: &dyn Fn(&[&Member]) -> usize| {
        if let Some(from) = index(members, name) {
            let member = members.remove(from);
            let to = place(members);
            members.insert(to, member);
        }
    };
    match change {
        // The checker refuses a rule whose anchor is not in the order; a rule before this one may have
        // dropped it, and then there is nothing to move to and the member goes last.
        Change::Before { member, anchor } => {
            move_to(member, &|members| index(members, anchor).unwrap_or(members.len()))
        }
        Change::After { member, anchor } => {
            move_to(member, &|members| index(members, anchor).map_or(members.len(), |at| at + 1))
        }
        Change::First(member) => move_to(member, &|_| 0),
        Change::Last(member) => move_to(member, &|members| members.len()),
        Change::Drop(names) => members.retain(|member| !names.contains(&member.name)),
        Change::Only(names) | Change::Force(names) => members.retain(|member| names.contains(&member.name)),
    }
}

/// Whether the row is one of those for the scheme of the request.
fn serves(row: &Contract, request: &Request) -> bool {
    request.scheme.as_deref().is_none_or(|scheme| row.serves.contains(&scheme))
}

/// The row and class with which `member` accepts, or its refusals.
fn accept(
    order: &Order,
    member: &'static Member,
    request: &Request,
    choice: Choice,
    rejected: &mut Vec<Rejected>,
) -> Option<(&'static Contract, Option<&'static str>)> {
    let backend = member.name;
    if let Some(refusal) = member.refuse.iter().find(|refusal| refusal.when.holds(request, choice)) {
        rejected.push(Rejected { backend, class: None, reason: Reason::Stated(refusal.reason) });
        return None;
    }
    let classes = member.rows.first().map_or(&[][..], |row| row.experts);
    // This crate's kernels run wherever the crate does; classes speak of the engine's.
    if request.engine == Engine::Native || classes.is_empty() {
        let refused = |row: &&&Contract| row_refuses(row, request);
        return match member.rows.iter().map(|row| (row, refused(&row))).find(|(_, reason)| reason.is_none()) {
            Some((row, _)) => Some((row, None)),
            None => {
                let reason = member.rows.first().and_then(|row| refused(&row)).unwrap_or(Reason::QuantScheme);
                rejected.push(Rejected { backend, class: None, reason });
                None
            }
        };
    }
    for class in classes.iter().filter(|class| class.when.holds(request, choice)) {
        match class_accepts(order, member, class, request, choice) {
            Ok(row) => return Some((row, Some(class.name))),
            Err(reason) => rejected.push(Rejected { backend, class: Some(class.name), reason }),
        }
    }
    None
}

fn row_refuses(row: &Contract, request: &Request) -> Option<Reason> {
    if !row.activations.iter().any(|honoured| honoured.function == request.activation) {
        return Some(Reason::Activation(request.activation));
    }
    (!serves(row, request)).then_some(Reason::QuantScheme)
}

/// The row of `member` that `class` runs for the request. The checks and their order are vLLM's.
fn class_accepts(
    order: &Order,
    member: &Member,
    class: &ExpertsClass,
    request: &Request,
    choice: Choice,
) -> Result<&'static Contract, Reason> {
    let stated = |refusals: &[Refusal]| {
        refusals
            .iter()
            .find(|refusal| refusal.when.holds(request, choice))
            .map(|found| Reason::Stated(found.reason))
    };
    let requires = &class.requires;
    let offers = |feature: Feature| class.offers.contains(&feature);
    let lacks = |feature: Feature| request.features.contains(&feature) && !offers(feature);
    stated(class.refuses_first).map_or(Ok(()), Err)?;
    runs(requires, request)?;
    if request.activation.halves() == 1 && !offers(Feature::Plain) {
        return Err(Reason::NoActAndMul(request.activation));
    }
    let implements = requires.activations.is_none_or(|listed| listed.contains(&request.activation));
    // Without a list of its own a class implements what its rows honour.
    let honours =
        |row: &Contract| row.activations.iter().any(|honoured| honoured.function == request.activation);
    if !implements || (requires.activations.is_none() && !member.rows.iter().any(|row| honours(row))) {
        return Err(Reason::Activation(request.activation));
    }
    let fits = |row: &&&Contract| {
        row.devices.is_none_or(|devices| devices.contains(&request.device))
            && (row.classes.is_empty() || row.classes.contains(&class.name))
            && (order.input != InputRule::Required || serves(row, request))
    };
    let row = member.rows.iter().find(fits).ok_or(Reason::QuantScheme)?;
    if lacks(Feature::LoadBalancing) || !goes_parallel(requires, &request.parallel) {
        return Err(Reason::ParallelConfig);
    }
    if class.kind == ClassKind::Monolithic {
        if lacks(Feature::HashRouting) {
            return Err(Reason::HashRouting);
        }
        if lacks(Feature::DecomposedRouting) {
            return Err(Reason::DecomposedRequired);
        }
    }
    if requires.routing.is_some_and(|methods| !methods.contains(&request.routing)) {
        return Err(Reason::RoutingMethod(request.routing));
    }
    if requires.router_dtype.is_some_and(|types| !types.contains(&request.router_dtype)) {
        return Err(Reason::RouterLogitsDtype);
    }
    if let Some(multiple) =
        requires.hidden_multiple.filter(|multiple| !request.hidden.is_multiple_of(*multiple))
    {
        return Err(Reason::HiddenDim { multiple });
    }
    if requires.activation_format != request.activation_format() {
        return Err(Reason::ActivationFormat);
    }
    if lacks(Feature::BatchInvariance) {
        return Err(Reason::BatchInvariance);
    }
    if lacks(Feature::Lora) {
        return Err(Reason::Lora);
    }
    let spread = request.parallel.expert_parallel.is_some();
    let preferred = request.gemm_type.unwrap_or(if spread { GemmType::Grouped } else { GemmType::Indexed });
    if requires.gemm_type.is_some_and(|gemm_type| gemm_type != preferred) {
        return Err(Reason::HummingGemmType);
    }
    stated(class.refuses).map_or(Ok(row), Err)
}

/// Device, libraries and settings.
fn runs(requires: &Requires, request: &Request) -> Result<(), Reason> {
    let is_missing = |library: &&&str| request.missing_libraries.iter().any(|missing| missing == **library);
    let is_off = |(setting, value): &&(&'static Setting, Switch)| {
        request.setting(setting.name).unwrap_or(setting.default) != *value
    };
    let reason = if requires.devices.is_some_and(|devices| !devices.contains(&request.device)) {
        Reason::Device(request.device)
    } else if let Some(library) = requires.libraries.iter().find(is_missing) {
        Reason::Library(library)
    } else if let Some((setting, _)) = requires.settings.iter().find(is_off) {
        Reason::Setting(setting.name)
    } else {
        return Ok(());
    };
    Err(match requires.needs_aiter {
        Some(Aiter::Off) => Reason::AiterOff(request.device),
        None => reason,
    })
}

fn goes_parallel(requires: &Requires, parallel: &Parallel) -> bool {
    let meets = |need: Need, is_so: Option<()>| match need {
        Need::Free => true,
        Need::Required => is_so.is_some(),
        Need::Refused => is_so.is_none(),
    };
    let behind = parallel.all2all.is_none_or(|all2all| {
        requires.all2all.is_none_or(|allowed| allowed.contains(&all2all))
            && !requires.all2all_refused.contains(&all2all)
    });
    behind
        && meets(requires.all2all_use, parallel.all2all.map(|_| ()))
        && meets(requires.expert_parallel, parallel.expert_parallel.map(|_| ()))
        && meets(requires.sequence_parallel, (parallel.sequence_parallel > 1).then_some(()))
        && requires.data_parallel_max.is_none_or(|max| parallel.data_parallel <= max)
}
