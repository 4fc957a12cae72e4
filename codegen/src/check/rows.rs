//! Backends: each row's parts refer to what exists, agree with one another, and leave open only what
//! is said to be open.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Checker, facts};
use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::model::digits::Axis;
use crate::model::words::{Activation, KernelKind, Parameter, QuantizeAt, ScaleType, Word};
use crate::model::{
    Backend, Bias, Experts, Format, GlobalScale, Grouping, Input, Kernel, Known, Layout, Order, Requires,
    Scales, Vllm, Weight, WeightPad, WeightScale,
};
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
                        .and(row.kernel.span.clone(), "generated, once the row is complete"),
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
                        "it has none".to_owned()
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

    fn weight(
        &mut self,
        row: &schema::Backend,
        honours: Option<&Vec<(Activation, Vec<Parameter>)>>,
    ) -> Option<Weight> {
        let weight = &row.weight;
        let format = self.format(&weight.format);
        let requantize_from = weight.requantize_from.as_ref().map(|name| self.format(name));
        let payload = match &weight.payload.value {
            VendorOr::Vendor(why) => Some(Known::Vendor(why.clone())),
            VendorOr::Is(name) => self.lookup("payload", name, |entries| &entries.payloads).map(Known::Is),
        };
        let gate_up = self.gate_up(row, honours);
        let down =
            weight.rows.as_ref().and_then(|rows| rows.down.as_ref()).map(|name| (name, self.order(name)));
        if let Some((name, Some(order))) = &down
            && order.first.is_some()
        {
            let message = format!("`{}` orders two halves, and the down weight has one", order.name);
            self.error(Code::E0403, &name.span, message);
        }
        let format = format?;
        let scale = self.weight_scale(weight, &format);
        let pad = weight.pad.as_ref().map(|pad| WeightPad {
            hidden: pad.value.hidden.value,
            gated: pad.value.intermediate.gated.value,
            plain: pad.value.intermediate.plain.value,
            fill: pad.value.fill.unwrap_or(0),
        });
        let weight_model = Weight {
            format,
            requantize_from: match requantize_from {
                Some(None) => return None,
                Some(Some(format)) => Some(format),
                None => None,
            },
            payload: payload?,
            scale: scale?,
            gate_up: gate_up?,
            down: match down {
                Some((_, None)) => return None,
                Some((_, Some(order))) => Some(order),
                None => None,
            },
            pad,
            bias: weight.bias.as_ref().map(|bias| Bias { dtype: bias.dtype, order: bias.order }),
        };
        self.padding_suffices(weight, &weight_model);
        Some(weight_model)
    }

    fn order(&mut self, name: &Name) -> Option<Arc<Order>> {
        self.lookup("order", name, |entries| &entries.orders)
    }

    /// Each honoured activation has an order of rows, and no other has.
    fn gate_up(
        &mut self,
        row: &schema::Backend,
        honours: Option<&Vec<(Activation, Vec<Parameter>)>>,
    ) -> Option<Vec<(Activation, Arc<Order>)>> {
        let Some(rows) = &row.weight.rows else { return Some(Vec::new()) };
        let mut found = Vec::new();
        let mut complete = true;
        for (name, order_name) in &rows.gate_up.0 {
            let (function, order) = (self.activation(name), self.order(order_name));
            let (Some(function), Some(order)) = (function, order) else {
                complete = false;
                continue;
            };
            if order.first.is_none() {
                let message = format!(
                    "`{}` orders plain rows, and {} weights have two halves",
                    order.name,
                    function.name()
                );
                self.error(Code::E0403, &order_name.span, message);
            }
            if let Some(honours) = honours
                && !honours.iter().any(|(honoured, _)| *honoured == function)
            {
                let message =
                    format!("`{}` has an order of rows, but the row does not honour it", function.name());
                let mut finding = Diagnostic::new(Code::E0401, name.span.clone(), message).help(
                    "add it to `honours`, with the parameters that the kernel takes, or remove the order",
                );
                if let Some(function) = &row.activation_function {
                    finding = finding.and(function.honours.span.clone(), "what the row honours");
                }
                self.push(finding);
            }
            found.push((function, order));
        }
        if let (Some(honours), Some(function)) = (honours, &row.activation_function) {
            for (honoured, _) in honours {
                if rows.gate_up.get(honoured.name()).is_none() {
                    let message =
                        format!("`{}` is honoured, but no order of rows is given for it", honoured.name());
                    self.push(
                        Diagnostic::new(Code::E0401, function.honours.span.clone(), message)
                            .and(rows.span.clone(), format!("needs `gate_up.{} = …`", honoured.name())),
                    );
                }
            }
        }
        complete.then_some(found)
    }

    fn weight_scale(&mut self, weight: &schema::Weight, format: &Arc<Format>) -> Option<Option<WeightScale>> {
        let Some(scale) = &weight.scale else {
            if format.block.is_some() {
                let message =
                    format!("`{}` has block scales, and the row does not say where they are", format.name);
                self.push(
                    Diagnostic::new(Code::E0304, weight.format.span.clone(), message)
                        .help("add `scale = { layout = \"…\", encoding = \"as_stored\", fill = 0 }`"),
                );
                return None;
            }
            return Some(None);
        };
        let Some(block) = format.block else {
            let message = format!("`{}` has no block scales to lay out", format.name);
            self.push(
                Diagnostic::new(Code::E0304, scale.span.clone(), message)
                    .and(weight.format.span.clone(), "the format"),
            );
            return None;
        };
        let layout = match &scale.value.layout.value {
            VendorOr::Vendor(why) => Known::Vendor(why.clone()),
            VendorOr::Is(name) => {
                let layout = self.layout(name)?;
                self.holds(&layout, block.scale, name, &weight.format);
                Known::Is(layout)
            }
        };
        if let Some(fill) = &scale.value.fill {
            self.fill_is_finite(fill, block.scale, &weight.format);
        } else if let Known::Is(_) = layout {
            let message = "the row does not say what padding of the scales holds";
            self.push(Diagnostic::new(Code::E0103, scale.span.clone(), message).help("add `fill = 0`"));
        }
        Some(Some(WeightScale {
            layout,
            encoding: match &scale.value.encoding.value {
                VendorOr::Vendor(why) => Known::Vendor(why.clone()),
                VendorOr::Is(encoding) => Known::Is(*encoding),
            },
            repeat_rows: weight.repeat.as_ref().map_or(1, |repeat| repeat.row.value),
            fill: scale.value.fill.as_ref().map_or(0, |fill| fill.value),
            global: scale.value.global.as_ref().map(global),
        }))
    }

    /// The layout may hold the scales of the format.
    pub(super) fn holds(&mut self, layout: &Arc<Layout>, scale: ScaleType, place: &Name, format: &Name) {
        if !layout.scales.contains(&scale) {
            let held: Vec<_> = layout.scales.iter().map(|scale| format!("`{}`", scale.name())).collect();
            let message = format!("the layout `{}` does not hold `{}` scales", layout.name, scale.name());
            self.push(
                Diagnostic::new(Code::E0302, place.span.clone(), message)
                    .and(format.span.clone(), format!("has `{}` scales", scale.name()))
                    .help(format!(
                        "it holds {}; add the type to its `scale` list if it does",
                        held.join(", ")
                    )),
            );
        }
    }

    /// Scale padding multiplies zeros, and 0 · NaN is NaN.
    fn fill_is_finite(&mut self, fill: &At<u8>, scale: ScaleType, format: &Name) {
        let nan = match scale {
            ScaleType::E8m0 => fill.value == 0xFF,
            ScaleType::E4m3 => fill.value & 0x7F == 0x7F,
            ScaleType::F32 | ScaleType::Bf16 => fill.value & 0x7F == 0x7F,
        };
        if nan {
            let message = format!("padding of 0x{:02X} is NaN in `{}`", fill.value, scale.name());
            self.push(
                Diagnostic::new(Code::E0405, fill.span.clone(), message)
                    .and(format.span.clone(), format!("has `{}` scales", scale.name()))
                    .help("0 is finite in every scale type"),
            );
        }
    }

    /// Padded sizes are multiples of what orders, payload and scale layout divide.
    fn padding_suffices(&mut self, weight: &schema::Weight, model: &Weight) {
        let (Some(pad), Some(written)) = (model.pad, &weight.pad) else { return };
        let gated = &written.value.intermediate.gated;
        let hidden = &written.value.hidden;
        for (function, order) in &model.gate_up {
            let what = format!("the order `{}` of {}", order.name, function.name());
            self.divides(order.multiple, pad.gated, gated, &what);
        }
        if let Some(down) = &model.down {
            self.divides(down.multiple, pad.hidden, hidden, &format!("the order `{}`", down.name));
        }
        if let Some(block) = model.format.block {
            let what = format!("a block of `{}`", model.format.name);
            // The K of GEMM1 is the hidden size, the K of GEMM2 the intermediate size. Sizes that a
            // block does not divide are refused when weights are prepared; here only a padding that
            // is itself in the way is wrong.
            for (multiple, place) in [(pad.hidden, hidden), (pad.gated, gated)] {
                if multiple > 1 && multiple % block.cols != 0 && block.cols % multiple != 0 {
                    self.divides(block.cols, multiple, place, &what);
                }
            }
        }
        if let Known::Is(payload) = &model.payload
            && let crate::model::Fit::Divide(multiples) = payload.fit
        {
            let what = format!("the payload `{}`", payload.name);
            let row = multiples.row.max(payload.number.multiple(Axis::Row));
            let col = multiples.col.max(payload.number.multiple(Axis::Col));
            // The fused matrix has 2 × intermediate rows and hidden columns, the other hidden rows.
            if !(2 * pad.gated).is_multiple_of(row) {
                self.divides(row / 2, pad.gated, gated, &what);
            }
            self.divides(row, pad.hidden, hidden, &what);
            self.divides(col, pad.hidden, hidden, &what);
        }
    }

    fn divides(&mut self, needs: usize, has: usize, place: &At<usize>, what: &str) {
        if needs > 1 && !has.is_multiple_of(needs) {
            let message =
                format!("{what} divides by {needs}, and sizes are padded to multiples of {has} only");
            self.push(
                Diagnostic::new(Code::E0406, place.span.clone(), message)
                    .help(format!("pad to a multiple of {needs}, or use another order or payload")),
            );
        }
    }

    fn gemm1(&mut self, input: &schema::Gemm1Input) -> Option<Input> {
        let formats = self.formats(&input.format)?;
        let layout = match &input.layout {
            None => None,
            Some(At { value: VendorOr::Vendor(why), .. }) => Some(Known::Vendor(why.clone())),
            Some(At { value: VendorOr::Is(layout), .. }) => {
                let prepared = self.layout(&layout.prepared);
                let kernel = self.layout(&layout.kernel);
                let (prepared, kernel) = (prepared?, kernel?);
                for format in &formats {
                    if let Some(block) = format.0.block {
                        let prepared_type =
                            input.prepared_dtype.as_ref().map_or(block.scale, |dtype| dtype.value);
                        self.holds(&prepared, prepared_type, &layout.prepared, format.1);
                        self.holds(&kernel, block.scale, &layout.kernel, format.1);
                    }
                }
                Some(Known::Is(Scales::At { prepared, kernel }))
            }
        };
        let layout =
            self.scales(&formats, layout, input.layout.as_ref().map(|layout| &layout.span), &input.span);
        self.rounding(&formats, input.rounding.as_ref());
        self.quantizes(&formats, input);
        Some(Input {
            formats: formats.into_iter().map(|(format, _)| format).collect(),
            rounding: input.rounding.as_ref().map(|rounding| rounding.value),
            quantize: input.quantize.as_ref().map(|quantize| quantize.value),
            layout: layout?,
            prepared_dtype: input.prepared_dtype.as_ref().map(|dtype| dtype.value),
            grouping: input.grouping.as_ref().map(|grouping| match &grouping.value {
                schema::Grouping::Tokens => Grouping::Tokens,
                schema::Grouping::Slots => Grouping::Slots,
                schema::Grouping::Ranges(ranges) => Grouping::Ranges(ranges.start_multiple.value),
                schema::Grouping::SpreadRanges(ranges) => Grouping::SpreadRanges(ranges.start_multiple.value),
            }),
            multiple: input.multiple.as_ref().map_or(1, |multiple| multiple.hidden.value),
            global: input.global.as_ref().map(global),
            alpha: input.alpha,
        })
    }

    fn gemm2(&mut self, input: &schema::Gemm2Input) -> Option<Input> {
        let formats = self.formats(&input.format)?;
        let layout = match &input.layout {
            None => None,
            Some(At { value: VendorOr::Vendor(why), .. }) => Some(Known::Vendor(why.clone())),
            Some(At { value: VendorOr::Is(layout), .. }) => {
                let kernel = self.layout(&layout.kernel)?;
                for format in &formats {
                    if let Some(block) = format.0.block {
                        self.holds(&kernel, block.scale, &layout.kernel, format.1);
                    }
                }
                Some(Known::Is(Scales::At { prepared: kernel.clone(), kernel }))
            }
        };
        let layout =
            self.scales(&formats, layout, input.layout.as_ref().map(|layout| &layout.span), &input.span);
        self.rounding(&formats, input.rounding.as_ref());
        Some(Input {
            formats: formats.into_iter().map(|(format, _)| format).collect(),
            rounding: input.rounding.as_ref().map(|rounding| rounding.value),
            quantize: None,
            layout: layout?,
            prepared_dtype: None,
            grouping: None,
            multiple: 1,
            global: input.global.as_ref().map(global),
            alpha: input.alpha,
        })
    }

    fn formats<'n>(&mut self, names: &'n At<Vec<Name>>) -> Option<Vec<(Arc<Format>, &'n Name)>> {
        let formats: Vec<_> = names.value.iter().map(|name| Some((self.format(name)?, name))).collect();
        let formats: Vec<_> = formats.into_iter().collect::<Option<_>>()?;
        let scaled = formats.iter().filter(|(format, _)| format.block.is_some()).count();
        if formats.is_empty() {
            self.error(Code::E0103, &names.span, "a GEMM reads some format");
            return None;
        }
        if scaled > 0 && formats.len() > 1 {
            self.push(
                Diagnostic::new(Code::E0306, names.span.clone(), "formats with scales are a contract each")
                    .help("several formats are for 16-bit rows, where the caller's type decides; make this several rows"),
            );
            return None;
        }
        Some(formats)
    }

    /// Scales have a layout, and only they have.
    fn scales(
        &mut self,
        formats: &[(Arc<Format>, &Name)],
        layout: Option<Known<Scales>>,
        written: Option<&Span>,
        table: &Span,
    ) -> Option<Known<Scales>> {
        let scaled = formats.iter().find(|(format, _)| format.block.is_some());
        match (scaled, layout) {
            (None, None) => Some(Known::Is(Scales::Unscaled)),
            (Some(_), Some(layout)) => Some(layout),
            (None, Some(_)) => {
                let message = format!("`{}` has no block scales to lay out", formats[0].0.name);
                self.push(
                    Diagnostic::new(Code::E0304, written.unwrap_or(table).clone(), message)
                        .and(formats[0].1.span.clone(), "the format"),
                );
                None
            }
            (Some((format, name)), None) => {
                let message =
                    format!("`{}` has block scales, and the row does not say where they are", format.name);
                self.push(
                    Diagnostic::new(Code::E0304, name.span.clone(), message)
                        .help("add `layout = { prepared = \"…\", kernel = \"…\" }`"),
                );
                None
            }
        }
    }

    /// E8M0 scales are chosen by a rule, which the row names unless another library chooses.
    fn rounding(
        &mut self,
        formats: &[(Arc<Format>, &Name)],
        rounding: Option<&At<crate::model::words::Rounding>>,
    ) {
        let power_of_two = formats
            .iter()
            .find(|(format, _)| format.block.is_some_and(|block| block.scale == ScaleType::E8m0));
        match (power_of_two, rounding) {
            (None, Some(rounding)) => {
                let message =
                    format!("`{}` scales are not powers of two, so no rule rounds them", formats[0].0.name);
                self.push(
                    Diagnostic::new(Code::E0305, rounding.span.clone(), message)
                        .and(formats[0].1.span.clone(), "the format"),
                );
            }
            (Some((format, name)), None) => {
                let known: Vec<_> =
                    crate::model::words::Rounding::ALL.iter().map(|rule| rule.name()).collect();
                let message = format!(
                    "`{}` has power-of-two scales, and the row does not say how they are chosen",
                    format.name
                );
                self.push(
                    Diagnostic::new(Code::E0305, name.span.clone(), message)
                        .help(format!("add `rounding = \"…\"`, one of {}", known.join(", "))),
                );
            }
            _ => {}
        }
    }

    fn quantizes(&mut self, formats: &[(Arc<Format>, &Name)], input: &schema::Gemm1Input) {
        let scaled = formats.iter().find(|(format, _)| format.block.is_some());
        if let (Some((format, name)), None) = (scaled, &input.quantize) {
            let known: Vec<_> = QuantizeAt::ALL.iter().map(|who| who.name()).collect();
            let message = format!("`{}` is quantised, and the row does not say by whom", format.name);
            self.push(
                Diagnostic::new(Code::E0307, name.span.clone(), message)
                    .help(format!("add `quantize = \"…\"`, one of {}", known.join(", "))),
            );
        }
        if let (None, Some(quantize)) = (scaled, &input.quantize) {
            let message = format!("`{}` is not quantised, so nobody does it", formats[0].0.name);
            self.push(
                Diagnostic::new(Code::E0307, quantize.span.clone(), message)
                    .and(formats[0].1.span.clone(), "the format"),
            );
        }
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
    lacks(
        5,
        row.weight.bias.is_some_and(|bias| bias.order.is_some()),
        "the bias order, which is the vendor's",
    );
    let what: Vec<_> = open.into_values().collect();
    (!what.is_empty()).then(|| what.join(", "))
}
