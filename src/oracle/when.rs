//! Situations: predicates over a request, as the table writes them.

use super::narrowed::narrowed;
use super::request::{
    ActivationFormat, All2all, Checkpoint, Device, Feature, Request, RoutingMethod, Switch, TokenType,
};
use crate::backend::Activation;

narrowed! {
    /// When a rule applies: where every field that is there holds.
    When;
    /// Applies always.
    ALWAYS;
    fields {
        /// With all of these.
        has: &'static [Feature] = &[],
        /// With none of these.
        lacks: &'static [Feature] = &[],
        /// With all of these libraries.
        library: &'static [&'static str] = &[],
        /// Without one of these libraries.
        library_missing: &'static [&'static str] = &[],
        /// With these settings, set or by default.
        settings: &'static [(&'static Setting, Switch)] = &[],
        /// With all of these set, whatever to.
        set: &'static [&'static str] = &[],
        /// With none of these set.
        unset: &'static [&'static str] = &[],
        /// With a hidden size in this range.
        hidden: Range = Range::ALL,
        /// With an intermediate size of a rank in this range.
        intermediate: Range = Range::ALL,
        /// With this many experts.
        experts: Range = Range::ALL,
        /// With this many data-parallel ranks.
        data_parallel: Range = Range::ALL,
        /// With this many expert-parallel ranks.
        expert_parallel: Range = Range::ALL,
    }
    optional {
        /// On one of these devices.
        devices: &'static [Device],
        /// With one of these activation functions.
        activations: &'static [Activation],
        /// With one of these schemes.
        schemes: &'static [&'static str],
        /// With one of these routing methods.
        routing: &'static [RoutingMethod],
        /// Behind one of these all-to-alls.
        all2all: &'static [All2all],
        /// With tokens handed over in this format.
        activation_format: ActivationFormat,
        /// With tokens of one of these types.
        token_dtype: &'static [TokenType],
        /// With one of these checkpoints.
        checkpoint: &'static [Checkpoint],
        /// With groups of one of these sizes.
        group: &'static [usize],
        /// Where the backend is chosen so.
        choice: Choice,
        /// Where one of these backends is asked for.
        names: &'static [&'static str],
        /// With a model of one of these types.
        model_types: &'static [&'static str],
    }
}

/// Who chooses the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The oracle.
    Automatic,
    /// The user.
    Named,
}

/// A setting of the engine: `[setting.x]`.
#[derive(Debug)]
pub struct Setting {
    /// Its name in the table.
    pub name: &'static str,
    /// The engine's environment variable.
    pub variable: &'static str,
    /// Its value where nothing sets it.
    pub default: Switch,
}

narrowed! {
    /// A range of numbers.
    Range;
    /// Every number.
    ALL;
    fields {
        /// From here.
        min: usize = 0,
        /// Up to here.
        max: usize = usize::MAX,
        /// Only numbers that this does not divide; 0 asks for nothing.
        not_multiple: usize = 0,
    }
    optional {}
}

impl Range {
    fn holds(self, number: usize) -> bool {
        (self.min..=self.max).contains(&number)
            && (self.not_multiple == 0 || !number.is_multiple_of(self.not_multiple))
    }
}

impl When {
    /// Whether it applies to `request`, whose backend is chosen by `choice`.
    pub(super) fn holds(&self, request: &Request, choice: Choice) -> bool {
        fn one_of<T: PartialEq>(listed: Option<&[T]>, value: Option<&T>) -> bool {
            listed.is_none_or(|listed| value.is_some_and(|value| listed.contains(value)))
        }
        let named = |listed: Option<&[&str]>, value: Option<&String>| {
            listed.is_none_or(|listed| value.is_some_and(|value| listed.contains(&value.as_str())))
        };
        let missing = |library: &&str| request.missing_libraries.iter().any(|missing| missing == library);
        let parallel = &request.parallel;
        self.choice.is_none_or(|wanted| wanted == choice)
            && one_of(self.devices, Some(&request.device))
            && one_of(self.activations, Some(&request.activation))
            && named(self.schemes, request.scheme.as_ref())
            && one_of(self.routing, Some(&request.routing))
            && one_of(self.all2all, parallel.all2all.as_ref())
            && self.activation_format.is_none_or(|format| format == request.activation_format())
            && one_of(self.token_dtype, Some(&request.token_dtype))
            && one_of(self.checkpoint, request.checkpoint.as_ref())
            && one_of(self.group, request.group.as_ref())
            && named(self.names, request.backend.as_ref())
            && named(self.model_types, request.model_type.as_ref())
            && self.has.iter().all(|feature| request.features.contains(feature))
            && !self.lacks.iter().any(|feature| request.features.contains(feature))
            && !self.library.iter().any(missing)
            && (self.library_missing.is_empty() || self.library_missing.iter().any(missing))
            && self
                .settings
                .iter()
                .all(|(setting, value)| request.setting(setting.name).unwrap_or(setting.default) == *value)
            && self.set.iter().all(|setting| request.setting(setting).is_some())
            && !self.unset.iter().any(|setting| request.setting(setting).is_some())
            && self.hidden.holds(request.hidden)
            && self.intermediate.holds(request.intermediate)
            && self.experts.holds(request.experts)
            && self.data_parallel.holds(parallel.data_parallel)
            && self.expert_parallel.holds(parallel.expert_parallel.unwrap_or(1))
    }
}
