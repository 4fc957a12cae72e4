//! What a row can be chosen for, as the oracle picks it.

use crate::model::Backend;
use crate::model::select::{EngineOrder, Experts, Member, Refusal, When};
use crate::model::words::{
    Activation, ActivationFormat, ClassKind, Device, Engine, Feature, InputRule, Word,
};

/// What a row can be chosen for with one class; without classes, what it can be chosen for at all.
pub(super) struct Reach<'a> {
    pub(super) class: Option<&'a Experts>,
    pub(super) devices: Vec<Device>,
    activations: Vec<Activation>,
    /// `None` is every scheme: where the order does not look at it, or the row names none.
    schemes: Vec<Option<&'a str>>,
}

impl Reach<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty() || self.activations.is_empty()
    }

    /// What both are for, in words; `None` if they are for different things.
    pub(super) fn common(&self, other: &Self) -> Option<String> {
        let class = self.class.map(|class| &class.class);
        if class != other.class.map(|class| &class.class) {
            return None;
        }
        let device = self.devices.iter().find(|device| other.devices.contains(device))?.name();
        let function = self.activations.iter().find(|function| other.activations.contains(function))?.name();
        let scheme = self.schemes.iter().find(|scheme| other.schemes.contains(scheme))?;
        let scheme = scheme.map_or_else(|| "every scheme".to_owned(), |scheme| format!("`{scheme}`"));
        Some(match class {
            Some(class) => format!("{scheme} and {function} in {class} on {device}"),
            None => format!("{scheme} and {function}"),
        })
    }

    /// Whether each request that `other` accepts is one that this accepts.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let accepts = match (self.class, other.class) {
            (None, None) => true,
            (Some(class), Some(other)) => asks_no_more(class, other),
            _ => false,
        };
        accepts
            && contains(&self.devices, &other.devices)
            && contains(&self.activations, &other.activations)
            && contains(&self.schemes, &other.schemes)
    }
}

/// What `row` can be chosen for, as the oracle picks it; classes are those of the member's first row.
pub(super) fn reaches<'a>(order: &EngineOrder, member: &'a Member, row: &'a Backend) -> Vec<Reach<'a>> {
    let served = || match row.serves.as_slice() {
        [] => vec![None],
        served => served.iter().map(|scheme| Some(scheme.as_str())).collect(),
    };
    let honours = |row: &Backend| row.honours.iter().map(|(function, _)| *function).collect::<Vec<_>>();
    let classes = member.rows.first().map_or(&[][..], |first| &first.experts.classes);
    if order.engine == Engine::Native || classes.is_empty() {
        let (devices, activations) = (Device::ALL.to_vec(), honours(row));
        return vec![Reach { class: None, devices, activations, schemes: served() }];
    }
    let runs_it = |class: &&Experts| row.classes.is_empty() || row.classes.contains(&class.class);
    let on =
        |list: &Option<Vec<Device>>, device: &Device| list.as_ref().is_none_or(|list| list.contains(device));
    let reach = |class: &'a Experts| {
        let lists = [&row.devices, &class.requires.devices, &class.when.devices];
        let devices = Device::ALL.iter().copied().filter(|device| lists.iter().all(|list| on(list, device)));
        let listed = class.requires.activations.clone();
        let mut activations =
            listed.unwrap_or_else(|| member.rows.iter().flat_map(|row| honours(row)).collect());
        activations.retain(|function| function.halves() == 2 || class.offers.contains(&Feature::Plain));
        let schemes = if order.input == InputRule::Required { served() } else { vec![None] };
        Reach { class: Some(class), devices: devices.collect(), activations, schemes }
    };
    classes.iter().filter(runs_it).map(reach).collect()
}

/// Whether `class` accepts what `other` accepts, as far as that hangs neither on the device, nor on the
/// activation function, nor on the scheme.
fn asks_no_more(class: &Experts, other: &Experts) -> bool {
    let (ours, theirs) = (&class.requires, &other.requires);
    let is_tried =
        When { devices: None, ..class.when.clone() } == When::default() || class.when == other.when;
    let format = |format: Option<ActivationFormat>| format.unwrap_or(ActivationFormat::Standard);
    let refusals: Vec<_> = other.refuses_first.iter().chain(&other.refuses).cloned().collect();
    is_tried
        && (class.kind == ClassKind::Modular || other.kind == ClassKind::Monolithic)
        && contains(&class.offers, &other.offers)
        && are_refused(&class.refuses_first, &refusals)
        && are_refused(&class.refuses, &refusals)
        && contains(&theirs.libraries, &ours.libraries)
        && contains(&theirs.settings, &ours.settings)
        && allows(ours.routing.as_deref(), theirs.routing.as_deref())
        && allows(ours.router_dtype.as_deref(), theirs.router_dtype.as_deref())
        && format(ours.activation_format) == format(theirs.activation_format)
        && allows(ours.all2all.as_deref(), theirs.all2all.as_deref())
        && contains(&theirs.all2all_refused, &ours.all2all_refused)
        && asks_the_same(ours.all2all_use, theirs.all2all_use)
        && ours
            .data_parallel_max
            .is_none_or(|most| theirs.data_parallel_max.is_some_and(|other| other <= most))
        && asks_the_same(ours.expert_parallel, theirs.expert_parallel)
        && asks_the_same(ours.sequence_parallel, theirs.sequence_parallel)
        && asks_the_same(ours.gemm_type, theirs.gemm_type)
        && ours
            .hidden_multiple
            .is_none_or(|ours| theirs.hidden_multiple.is_some_and(|other| other % ours == 0))
}

pub(super) fn contains<T: PartialEq>(list: &[T], other: &[T]) -> bool {
    other.iter().all(|word| list.contains(word))
}

/// Whether a list of what is allowed, absent for all, allows what `other` does.
fn allows<T: PartialEq>(list: Option<&[T]>, other: Option<&[T]>) -> bool {
    list.is_none_or(|list| other.is_some_and(|other| contains(list, other)))
}

fn asks_the_same<T: PartialEq>(need: Option<T>, other: Option<T>) -> bool {
    need.is_none() || need == other
}

/// Whether each of `refusals` is also among `others`.
pub(super) fn are_refused(refusals: &[Refusal], others: &[Refusal]) -> bool {
    refusals.iter().all(|refusal| others.iter().any(|other| other.when == refusal.when))
}
