//! What selection is made of: schemes, settings, classes and situations.

use std::sync::Arc;

use super::Checker;
use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::model::select::{Dropped, Experts, ExpertsList, Range, Refusal, Requires, Scheme, Setting, When};
use crate::model::words::{CheckAt, ClassKind, Switch};
use crate::model::{Backend, Format};
use crate::read::Part;
use crate::schema::{self, Name};

/// A dropped name as the model has it.
pub(super) fn dropped(dropped: &schema::Dropped) -> Dropped {
    Dropped { name: dropped.name.clone(), until: dropped.until.clone(), instead: dropped.instead.clone() }
}

impl Checker<'_> {
    pub(super) fn selection(&mut self, table: &schema::Table) {
        for (name, setting) in &table.setting.entries {
            let (variable, default) = (setting.variable.clone(), setting.default);
            self.entries.settings.push(Setting { name: name.value.clone(), variable, default });
        }
        for (name, scheme) in &table.scheme.entries {
            let weight = self.format(&scheme.weight);
            let input = scheme.input.as_ref().map(|input| {
                Some((self.format(&input.format)?, input.scale.as_ref().map(|scale| scale.value)))
            });
            if let (Some(weight), None | Some(Some(_))) = (weight, &input) {
                let input = input.flatten();
                self.entries.schemes.push(Scheme { name: name.value.clone(), weight, input });
            }
        }
        for (name, classes) in &table.experts.entries {
            if let Some(classes) = self.classes(classes) {
                let list = ExpertsList { name: Some(name.value.clone()), classes };
                self.entries.experts.insert(name.value.clone(), Arc::new(list));
            }
        }
    }

    fn classes(&mut self, classes: &[Part<schema::Experts>]) -> Option<Vec<Experts>> {
        let classes: Vec<_> = classes.iter().map(|part| self.class(part.0.as_ref()?)).collect();
        classes.into_iter().collect()
    }

    pub(super) fn row_experts(&mut self, experts: Option<&schema::RowExperts>) -> Option<Arc<ExpertsList>> {
        match experts {
            None => Some(Arc::new(ExpertsList { name: None, classes: Vec::new() })),
            Some(schema::RowExperts::Named(name)) => self.lookup("experts", name, |entries| &entries.experts),
            Some(schema::RowExperts::Own(classes)) => {
                Some(Arc::new(ExpertsList { name: None, classes: self.classes(classes)? }))
            }
        }
    }

    /// The classes that a row names are some of its own.
    pub(super) fn known_classes(&mut self, row: &schema::Backend, backend: &Backend) {
        for class in row.classes.iter().flatten() {
            let known: Vec<_> = backend.experts.classes.iter().map(|class| class.class.as_str()).collect();
            if !known.contains(&class.value.as_str()) {
                let message = format!("`{}` is none of the row's classes", class.value);
                let help = suggest(&class.value, known.iter().copied());
                self.push(Diagnostic::new(Code::E0301, class.span.clone(), message).help(help));
            }
        }
    }

    /// The schemes that a row serves: those it lists, or those of its own formats.
    pub(super) fn serves(&mut self, row: &schema::Backend, backend: &Backend) -> Option<Vec<String>> {
        let Some(listed) = &row.serves else {
            let schemes = self.entries.schemes.iter().filter(|scheme| is_of(scheme, backend));
            return Some(schemes.map(|scheme| scheme.name.clone()).collect());
        };
        let listed: Vec<_> = listed.iter().map(|name| self.scheme(name)).collect();
        listed.into_iter().collect()
    }

    fn scheme(&mut self, name: &Name) -> Option<String> {
        self.entry("scheme", name)
    }

    /// The name of an entry that exists.
    fn entry(&mut self, kind: &'static str, name: &Name) -> Option<String> {
        let written = self.entries.written.get(kind).cloned().unwrap_or_default();
        if written.contains(&name.value) {
            return Some(name.value.clone());
        }
        let message = format!("there is no {kind} `{}`", name.value);
        let help = suggest(&name.value, written.iter().map(String::as_str));
        self.push(Diagnostic::new(Code::E0301, name.span.clone(), message).help(help));
        None
    }

    fn entries_of(&mut self, kind: &'static str, names: Option<&Vec<Name>>) -> Option<Vec<String>> {
        let found: Vec<_> = names.into_iter().flatten().map(|name| self.entry(kind, name)).collect();
        found.into_iter().collect()
    }

    fn settings(&mut self, settings: Option<&schema::Settings>) -> Option<Vec<(String, Switch)>> {
        let settings = settings.into_iter().flat_map(|settings| &settings.0);
        let found: Vec<_> =
            settings.map(|(name, value)| Some((self.entry("setting", name)?, *value))).collect();
        found.into_iter().collect()
    }

    fn devices_of(
        &mut self,
        devices: Option<&schema::Devices>,
    ) -> Option<Option<Vec<crate::model::words::Device>>> {
        devices.map(|devices| self.devices(devices)).map_or(Some(None), |devices| devices.map(Some))
    }

    fn class(&mut self, class: &schema::Experts) -> Option<Experts> {
        let when = class.when.as_ref().map_or_else(|| Some(When::default()), |when| self.when(when));
        let requires = class
            .requires
            .as_ref()
            .map_or_else(|| Some(Requires::default()), |requires| self.requires(requires));
        let first = self.refusals(class.refuse.as_ref(), CheckAt::First);
        let last = self.refusals(class.refuse.as_ref(), CheckAt::Last);
        Some(Experts {
            class: class.class.clone(),
            kind: class.kind.unwrap_or(ClassKind::Modular),
            when: when?,
            offers: class.offers.clone().unwrap_or_default(),
            requires: requires?,
            refuses_first: first?,
            refuses: last?,
        })
    }

    fn requires(&mut self, requires: &schema::Requires) -> Option<Requires> {
        let devices = self.devices_of(requires.devices.as_ref());
        let settings = self.settings(requires.setting.as_ref());
        Some(Requires {
            devices: devices?,
            device_reason: requires.device_reason,
            libraries: requires.library.clone().unwrap_or_default(),
            settings: settings?,
            activations: requires.activation.clone(),
            routing: requires.routing.clone(),
            router_dtype: requires.router_dtype.clone(),
            activation_format: requires.activation_format,
            all2all: requires.all2all.clone(),
            all2all_refused: requires.all2all_refused.clone().unwrap_or_default(),
            all2all_use: requires.all2all_use,
            data_parallel_max: requires.data_parallel_max,
            expert_parallel: requires.expert_parallel,
            sequence_parallel: requires.sequence_parallel,
            gemm_type: requires.gemm_type,
            hidden_multiple: requires.hidden_multiple,
        })
    }

    /// Those of the refusals that stand at this place.
    pub(super) fn refusals(
        &mut self,
        refusals: Option<&Vec<schema::Refusal>>,
        at: CheckAt,
    ) -> Option<Vec<Refusal>> {
        let here = refusals.into_iter().flatten();
        let here = here.filter(|refusal| refusal.check.unwrap_or(CheckAt::Last) == at);
        let here: Vec<_> = here
            .map(|refusal| Some(Refusal { when: self.when(&refusal.when)?, reason: refusal.reason }))
            .collect();
        here.into_iter().collect()
    }

    pub(super) fn when(&mut self, when: &schema::When) -> Option<When> {
        let devices = self.devices_of(when.device.as_ref());
        let schemes = when.scheme.as_ref().map(|names| self.entries_of("scheme", Some(names)));
        let settings = self.settings(when.setting.as_ref());
        let set = self.entries_of("setting", when.set.as_ref());
        let unset = self.entries_of("setting", when.unset.as_ref());
        Some(When {
            devices: devices?,
            activations: when.activation.clone(),
            schemes: match schemes {
                Some(None) => return None,
                Some(Some(schemes)) => Some(schemes),
                None => None,
            },
            routing: when.routing.clone(),
            all2all: when.all2all.clone(),
            activation_format: when.activation_format,
            token_dtype: when.token_dtype.clone(),
            checkpoint: when.checkpoint.clone(),
            group: when.group.as_ref().map(|groups| groups.iter().map(|group| group.0).collect()),
            choice: when.choice,
            names: when.name.clone(),
            model_types: when.model_type.clone(),
            has: when.has.clone().unwrap_or_default(),
            lacks: when.lacks.clone().unwrap_or_default(),
            library: when.library.clone().unwrap_or_default(),
            library_missing: when.library_missing.clone().unwrap_or_default(),
            settings: settings?,
            set: set?,
            unset: unset?,
            hidden: range(when.hidden.as_ref()),
            intermediate: range(when.intermediate.as_ref()),
            experts: range(when.experts.as_ref()),
            data_parallel: range(when.data_parallel.as_ref()),
            expert_parallel: range(when.expert_parallel.as_ref()),
        })
    }
}

fn range(range: Option<&schema::Range>) -> Range {
    range.map_or_else(Range::default, |range| Range {
        min: range.min,
        max: range.max,
        not_multiple: range.not_multiple,
    })
}

/// Whether a checkpoint of `scheme` is what `row` is made for.
fn is_of(scheme: &Scheme, row: &Backend) -> bool {
    let weight = row.weight.requantize_from.as_ref().unwrap_or(&row.weight.format);
    let same = |format: &Arc<Format>| *format == scheme.weight;
    let input = match &scheme.input {
        None => row.gemm1.formats.iter().all(|format| format.block.is_none()),
        Some((format, scale)) => {
            let reads = row.gemm1.formats.contains(format) || row.gemm1.handed().contains(format);
            reads && (scale.is_none() || *scale == row.gemm1.source)
        }
    };
    same(weight) && input
}
