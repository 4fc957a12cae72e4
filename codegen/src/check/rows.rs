//! Backends: each row's parts refer to what exists, agree with one another, and leave open only what
//! is said to be open.

mod input;
mod weight;

use super::{Checker, facts};
use crate::diagnostic::{Code, Diagnostic};
use crate::model::words::{
    Activation, Convention, GlobalScope, KernelKind, Parameter, ScaleSource, ScaleType, Word,
};
use crate::model::{
    Backend, BlockScale, Fit, GlobalScale, Grouping, Input, Kernel, Known, Reach, Scales, Vllm,
};
use crate::read::{ByWord, Named};
use crate::schema::{self, VendorOr};
use crate::source::{At, Span};

impl Checker<'_> {
    pub(super) fn rows(&mut self, table: &Named<schema::Backend>) -> Vec<Backend> {
        table.entries.iter().filter_map(|(name, row)| self.row(name, row)).collect()
    }

    fn row(&mut self, name: &At<String>, row: &schema::Backend) -> Option<Backend> {
        let function = row.activation_function.as_ref().and_then(|part| part.0.as_ref());
        let honours = function.map(|function| self.honours(&function.honours.value));
        let honoured = function.zip(honours.as_deref());
        let weight = row.weight.0.as_ref().and_then(|weight| self.weight(weight, honoured));
        let gemm1 = row.gemm1_input.0.as_ref().and_then(|input| self.gemm1(input));
        let gemm2 = row.gemm2_input.as_ref().map(|part| part.0.as_ref().and_then(|input| self.gemm2(input)));
        let experts = self.row_experts(row.experts.as_ref());
        let classes = row.classes.iter().flatten().map(|class| class.value.clone()).collect::<Vec<_>>();
        let devices = row.devices.as_ref().map(|devices| self.devices(devices));
        let gemm2 = match gemm2 {
            Some(None) => return None,
            Some(Some(input)) => Some(input),
            None => None,
        };
        if let Some(gemm1) = &gemm1 {
            self.ranges_fit(row, gemm1.grouping, [Some(gemm1), gemm2.as_ref()]);
        }
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
            serves: Vec::new(),
            devices: match devices {
                Some(None) => return None,
                Some(Some(devices)) => Some(devices),
                None => None,
            },
            experts: experts?,
            classes,
        };
        self.known_classes(row, &backend);
        backend.serves = self.serves(row, &backend)?;
        if row.kernel.value == KernelKind::Generated {
            backend.kernel = self.generated(name, row, &backend);
        }
        Some(backend)
    }

    /// A generated row says everything that running it takes, or what is in the way is named.
    fn generated(&mut self, name: &At<String>, row: &schema::Backend, backend: &Backend) -> Kernel {
        self.no_vendor_words(row);
        match obstacle(backend) {
            None => Kernel::Generated,
            Some(obstacle) => {
                let message =
                    format!("`{}` is described and selected, but not executed: {obstacle}", name.value);
                self.push(
                    Diagnostic::new(Code::W0701, name.span.clone(), message)
                        .and(row.kernel.span.clone(), "generated, once nothing is in the way")
                        .help(
                            "say what is open, or write `kernel = \"external\"` if it will stay the vendor's",
                        ),
                );
                Kernel::Described(obstacle)
            }
        }
    }

    /// Where each expert's rows are a range of one buffer, the kernel's layout takes every such buffer.
    fn ranges_fit(&mut self, row: &schema::Backend, grouping: Option<Grouping>, inputs: [Option<&Input>; 2]) {
        let Some(Grouping::Ranges(start) | Grouping::SpreadRanges(start)) = grouping else { return };
        let written = row.gemm1_input.0.as_ref().and_then(|input| input.grouping.as_ref());
        for input in inputs.into_iter().flatten() {
            if let (Known::Is(Scales::At { kernel, .. }), Some(written)) = (&input.layout, written)
                && let Fit::Divide(multiples) = kernel.fit
                && !start.is_multiple_of(multiples.row)
            {
                let message = format!(
                    "ranges begin at multiples of {start}, and `{}` only takes multiples of {} rows",
                    kernel.name, multiples.row
                );
                self.push(
                    Diagnostic::new(Code::E0406, written.span.clone(), message)
                        .help(format!("begin at multiples of {}, or use a layout that pads", multiples.row)),
                );
            }
        }
    }

    fn no_vendor_words(&mut self, row: &schema::Backend) {
        let mut spans: Vec<Span> = Vec::new();
        if let Some(weight) = &row.weight.0 {
            spans.extend(vendor(&weight.payload));
            if let Some(scale) = &weight.scale {
                spans.extend(vendor(&scale.value.layout));
                spans.extend(vendor(&scale.value.encoding));
            }
        }
        if let Some(layout) = row.gemm1_input.0.as_ref().and_then(|input| input.layout.as_ref()) {
            spans.extend(vendor(layout));
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

    fn honours(
        &mut self,
        honours: &ByWord<Activation, Vec<At<Parameter>>>,
    ) -> Vec<(Activation, Vec<Parameter>)> {
        let mut found = Vec::new();
        for (At { value: function, .. }, parameters) in &honours.0 {
            for (index, parameter) in parameters.iter().enumerate() {
                if parameters[..index].iter().any(|earlier| earlier.value == parameter.value) {
                    let message = format!("`{}` is listed twice", parameter.value.name());
                    self.error_with(Code::E0402, &parameter.span, message, "remove one of the two");
                }
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
            found.push((*function, parameters));
        }
        found
    }
}

fn global(global: &At<schema::GlobalScale>) -> GlobalScale {
    GlobalScale { convention: global.value.convention, scope: global.value.scope }
}

/// Where the table has the vendor's word instead of a value.
fn vendor<T>(value: &At<VendorOr<T>>) -> Option<Span> {
    matches!(value.value, VendorOr::Vendor(_)).then(|| value.span.clone())
}

/// What keeps a generated row from being executed: what it leaves open, and what it asks for that no
/// engine does.
fn obstacle(row: &Backend) -> Option<String> {
    let weight = &row.weight;
    let open = [
        (weight.gate_up.is_empty(), "the order of the gate/up rows (`weight.rows`)"),
        (weight.pad.is_none(), "the padding of weights (`weight.pad`)"),
        (row.honours.is_empty(), "the activation functions (`activation_function`)"),
        (row.gemm1.grouping.is_none(), "how rows are grouped (`gemm1_input.grouping`)"),
        (row.gemm2.is_none(), "what GEMM2 reads (`gemm2_input`)"),
    ];
    let inputs = [Some(&row.gemm1), row.gemm2.as_ref()].into_iter().flatten();
    let mut two_levels = inputs.clone().filter(|input| input.formats[0].global.is_some());
    let of_weights = weight.scale.as_ref().filter(|_| weight.format.global.is_some());
    let open = open.into_iter().chain([
        (
            two_levels.clone().any(|input| input.global.is_none()),
            "the second-level scales of its tokens (`global`)",
        ),
        (two_levels.clone().any(|input| input.alpha.is_none()), "the epilogue factor of its GEMMs (`alpha`)"),
        (
            of_weights.is_some_and(|scale| scale.global.is_none()),
            "the second-level scales of its weights (`weight.scale.global`)",
        ),
    ]);
    let open: Vec<_> = open.collect();
    let is_shared = |global: &GlobalScale| global.scope == GlobalScope::MaxOverExperts;
    let is_plain = |global: &GlobalScale| {
        global.convention == Convention::Multiplier && global.scope == GlobalScope::PerExpert
    };
    let tiles = |block: BlockScale| !matches!(block.rows, Reach::Of(1) | Reach::Whole);
    let has_two_levels = two_levels.clone().next().is_some();
    let blocks = inputs.clone().flat_map(|input| &input.formats).filter_map(|format| format.block);
    let missing = [
        (
            two_levels.any(|input| input.global.as_ref().is_some_and(|global| !is_shared(global))),
            "a second-level scale an expert for tokens",
        ),
        (
            of_weights.and_then(|scale| scale.global.as_ref()).is_some_and(|global| !is_plain(global)),
            "second-level scales of weights other than a multiplier an expert",
        ),
        (
            inputs.clone().any(|input| {
                input.source == Some(ScaleSource::Static)
                    && input.formats[0].block.is_some_and(|block| block.scale != ScaleType::F32)
            }),
            "static scales of another type than `f32`",
        ),
        (
            blocks.clone().any(|block| block.scale == ScaleType::E4m3) && !has_two_levels,
            "a rule that chooses `e4m3` scales without a second level",
        ),
        (blocks.clone().any(tiles), "blocks of several tokens"),
        (blocks.clone().any(|block| block.zero_point.is_some()), "tokens with zero points"),
        (weight.format.block.is_some_and(|block| block.zero_point.is_some()), "weights with zero points"),
        (weight.scale.as_ref().is_some_and(|scale| scale.fill != 0), "padding of scales other than 0"),
    ];
    let said = |list: &[(bool, &str)]| {
        let said = list.iter().filter(|(is_so, _)| *is_so).map(|(_, what)| *what);
        said.collect::<Vec<_>>().join(", ")
    };
    match (said(&open), said(&missing)) {
        (open, missing) if open.is_empty() && missing.is_empty() => None,
        (open, missing) if missing.is_empty() => Some(format!("it leaves open {open}")),
        (open, missing) if open.is_empty() => Some(format!("no engine here has {missing}")),
        (open, missing) => Some(format!("it leaves open {open}; no engine here has {missing}")),
    }
}
