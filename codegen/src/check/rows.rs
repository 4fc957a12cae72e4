//! Backends: each row's parts refer to what exists, agree with one another, and leave open only what
//! is said to be open.

mod input;
mod weight;

use std::collections::BTreeMap;

use super::{Checker, facts};
use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::model::words::{Activation, KernelKind, Parameter, Word};
use crate::model::{Backend, Experts, GlobalScale, Input, Kernel, Requires, Vllm};
use crate::read::Named;
use crate::schema::{self, Name, VendorOr};
use crate::source::{At, Span};

impl Checker<'_> {
    pub(super) fn rows(&mut self, table: &Named<schema::Backend>) -> Vec<Backend> {
        table.0.iter().filter_map(|(name, row)| self.row(name, row)).collect()
    }

    fn row(&mut self, name: &At<String>, row: &schema::Backend) -> Option<Backend> {
        let honours = row.activation_function.as_ref().map(|function| self.honours(&function.honours.value));
        let weight = self.weight(row, honours.as_ref());
        let gemm1 = self.gemm1(&row.gemm1_input);
        let gemm2 = row.gemm2_input.as_ref().map(|input| self.gemm2(input));
        let experts = row.experts.iter().flatten().map(|experts| self.experts(experts)).collect::<Vec<_>>();
        let gemm2 = match gemm2 {
            Some(None) => return None,
            Some(Some(input)) => Some(input),
            None => None,
        };
        let mut backend = Backend {
            name: name.value.clone(),
            vllm: row
                .vllm
                .as_ref()
                .map(|vllm| Vllm { backend: vllm.backend.clone(), flags: vllm.flags.clone() }),
            facts: facts(row.facts.as_ref()),
            kernel: Kernel::External,
            weight: weight?,
            gemm1: gemm1?,
            gemm2,
            honours: honours.unwrap_or_default(),
            experts: experts.into_iter().collect::<Option<_>>()?,
        };
        if row.kernel.value == KernelKind::Generated {
            backend.kernel = self.generated(name, row, &backend);
        }
        Some(backend)
    }

    /// A generated row says everything that running it takes, or what it leaves open is named.
    fn generated(&mut self, name: &At<String>, row: &schema::Backend, backend: &Backend) -> Kernel {
        self.no_vendor_words(row);
        match open(backend) {
            None => Kernel::Generated,
            Some(open) => {
                let message = format!(
                    "`{}` is described and selected, but not executed: it leaves open {open}",
                    name.value
                );
                self.push(
                    Diagnostic::new(Code::W0701, name.span.clone(), message)
                        .and(row.kernel.span.clone(), "generated, once the row is complete")
                    .help("say it in the row, or write `kernel = \"external\"` if it will stay the vendor's"),
                );
                Kernel::Incomplete(open)
            }
        }
    }

    fn no_vendor_words(&mut self, row: &schema::Backend) {
        let mut spans: Vec<Span> = Vec::new();
        if let VendorOr::Vendor(_) = row.weight.payload.value {
            spans.push(row.weight.payload.span.clone());
        }
        if let Some(scale) = &row.weight.scale {
            if let VendorOr::Vendor(_) = scale.value.layout.value {
                spans.push(scale.value.layout.span.clone());
            }
            if let VendorOr::Vendor(_) = scale.value.encoding.value {
                spans.push(scale.value.encoding.span.clone());
            }
        }
        if let Some(At { value: VendorOr::Vendor(_), span }) = &row.gemm1_input.layout {
            spans.push(span.clone());
        }
        for span in spans {
            self.push(
                Diagnostic::new(
                    Code::E0404,
                    span,
                    "only the vendor's library knows this, so nothing can be generated",
                )
                .and(row.kernel.span.clone(), "says that it is")
                .help(
                    "write the closed form, or `kernel = \"external\"`; `gemm2_input` may stay the vendor's",
                ),
            );
        }
    }

    fn honours(&mut self, honours: &Named<Vec<At<Parameter>>>) -> Vec<(Activation, Vec<Parameter>)> {
        let mut found = Vec::new();
        for (name, parameters) in &honours.0 {
            let Some(function) = self.activation(name) else { continue };
            for parameter in parameters {
                if !function.parameters().contains(&parameter.value) {
                    let known: Vec<_> = function.parameters().iter().map(|known| known.name()).collect();
                    let help = if known.is_empty() {
                        format!("`{}` has no parameters: write `{} = []`", function.name(), function.name())
                    } else {
                        format!("it has {}", known.join(", "))
                    };
                    let message =
                        format!("`{}` has no parameter `{}`", function.name(), parameter.value.name());
                    self.push(Diagnostic::new(Code::E0402, parameter.span.clone(), message).help(help));
                }
            }
            let mut parameters: Vec<_> = parameters.iter().map(|parameter| parameter.value).collect();
            parameters.sort();
            parameters.dedup();
            found.push((function, parameters));
        }
        found
    }

    fn activation(&mut self, name: &Name) -> Option<Activation> {
        let found = Activation::ALL.iter().copied().find(|function| function.name() == name.value);
        if found.is_none() {
            let help = suggest(&name.value, Activation::ALL.iter().map(|function| function.name()));
            let message = format!("`{}` is not {}", name.value, Activation::WHAT);
            self.push(Diagnostic::new(Code::E0105, name.span.clone(), message).help(help));
        }
        found
    }

    fn experts(&mut self, experts: &schema::Experts) -> Option<Experts> {
        let Some(requires) = &experts.requires else {
            return Some(Experts { class: experts.class.clone(), requires: Requires::default() });
        };
        let devices = match &requires.devices {
            None => None,
            Some(devices) => Some(self.devices(devices)?),
        };
        Some(Experts {
            class: experts.class.clone(),
            requires: Requires {
                devices,
                libraries: requires.library.clone().unwrap_or_default(),
                routing: requires.routing.clone(),
                all2all: requires.all2all.clone(),
                all2all_refused: requires.all2all_refused.clone().unwrap_or_default(),
                data_parallel_max: requires.data_parallel_max,
                gemm_type: requires.gemm_type,
                hidden_multiple: requires.hidden_multiple,
            },
        })
    }
}

fn global(global: &schema::GlobalScale) -> GlobalScale {
    GlobalScale { convention: global.convention, scope: global.scope }
}

/// What a generated row would still have to say before it can be executed.
fn open(row: &Backend) -> Option<String> {
    let mut open: BTreeMap<u8, &str> = BTreeMap::new();
    let mut lacks = |order: u8, is_open: bool, what: &'static str| {
        if is_open {
            open.insert(order, what);
        }
    };
    lacks(0, row.weight.gate_up.is_empty(), "the order of the gate/up rows (`weight.rows`)");
    lacks(1, row.weight.pad.is_none(), "the padding of weights (`weight.pad`)");
    lacks(2, row.honours.is_empty(), "the activation functions (`activation_function`)");
    lacks(3, row.gemm1.grouping.is_none(), "how rows are grouped (`gemm1_input.grouping`)");
    lacks(4, row.gemm2.is_none(), "what GEMM2 reads (`gemm2_input`)");
    let two_level = row.weight.format.global.is_some();
    let weight_global = row.weight.scale.as_ref().and_then(|scale| scale.global);
    lacks(
        5,
        two_level && weight_global.is_none(),
        "the second-level scales of weights (`weight.scale.global`)",
    );
    let inputs = [Some(&row.gemm1), row.gemm2.as_ref()].into_iter().flatten();
    let one_level_said =
        |input: &Input| input.formats.iter().all(|format| format.global.is_none()) || input.global.is_some();
    lacks(6, !inputs.into_iter().all(one_level_said), "the second-level scales of tokens (`global`)");
    lacks(
        7,
        row.weight.bias.is_some_and(|bias| bias.order.is_some()),
        "the bias order, which is the vendor's",
    );
    let what: Vec<_> = open.into_values().collect();
    (!what.is_empty()).then(|| what.join(", "))
}
