//! The weights of a row.

use std::sync::Arc;

use super::global;
use crate::check::Checker;
use crate::diagnostic::{Code, Diagnostic};
use crate::model::words::{Activation, ElementType, Parameter, PayloadWord, ScaleType, Word};
use crate::model::{Bias, Fit, Format, Known, Multiples, Order, Reach, Weight, WeightPad, WeightScale};
use crate::schema::{self, Name, VendorOr};
use crate::source::{At, Span};

/// What the row honours, as written and as understood.
type Honoured<'a> = Option<(&'a schema::ActivationFunction, &'a [(Activation, Vec<Parameter>)])>;

impl Checker<'_> {
    pub(super) fn weight(&mut self, weight: &schema::Weight, honoured: Honoured<'_>) -> Option<Weight> {
        let format = self.format(&weight.format);
        let requantize_from = weight.requantize_from.as_ref().map(|name| self.format(name));
        let payload = match &weight.payload.value {
            VendorOr::Vendor(why) => Some(Known::Vendor(why.clone())),
            VendorOr::Is(name) => self.lookup("payload", name, |entries| &entries.payloads).map(Known::Is),
        };
        let gate_up = self.gate_up(weight.rows.as_ref(), honoured);
        let down =
            weight.rows.as_ref().and_then(|rows| rows.down.as_ref()).map(|name| (name, self.order(name)));
        if let Some((name, Some(order))) = &down
            && order.first.is_some()
        {
            let message = format!("`{}` orders two halves, and the down weight has one", order.name);
            self.error_with(Code::E0403, &name.span, message, "name an order without a `half` digit");
        }
        let format = format?;
        if let (Some(Some(from)), Some(name)) = (&requantize_from, &weight.requantize_from)
            && *from == format
        {
            let message = format!("`{}` is what the row reads anyway", format.name);
            self.error_with(Code::E0306, &name.span, message, "remove `requantize_from`");
        }
        if let Some(Known::Is(payload)) = &payload
            && let (Some(PayloadWord::Fp4HopperTwiddle), false) =
                (payload.word, format.element == ElementType::E2m1)
        {
            let message = format!("the payload `{}` spreads the bits of `e2m1` elements", payload.name);
            self.push(
                Diagnostic::new(Code::E0302, weight.payload.span.clone(), message)
                    .and(weight.format.span.clone(), format!("has `{}` elements", format.element.name()))
                    .help("name a payload without a `word`"),
            );
        }
        let scale = self.weight_scale(weight, &format);
        if let Some(fill) = weight.pad.as_ref().and_then(|pad| pad.value.fill.as_ref()) {
            self.elements_are_finite(fill, format.element, &weight.format);
        }
        let pad = weight.pad.as_ref().map(|pad| WeightPad {
            hidden: pad.value.hidden.value,
            gated: pad.value.intermediate.gated.value,
            plain: pad.value.intermediate.plain.value,
            fill: pad.value.fill.as_ref().map_or(0, |fill| fill.value),
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
        rows: Option<&schema::Rows>,
        honoured: Honoured<'_>,
    ) -> Option<Vec<(Activation, Arc<Order>)>> {
        let Some(rows) = rows else { return Some(Vec::new()) };
        let mut found = Vec::new();
        let mut complete = true;
        for (At { value: function, span }, order_name) in &rows.gate_up.0 {
            if let Some((written, honours)) = honoured
                && !honours.iter().any(|(honoured, _)| honoured == function)
            {
                let message =
                    format!("`{}` has an order of rows, but the row does not honour it", function.name());
                self.push(
                    Diagnostic::new(Code::E0401, span.clone(), message)
                        .and(written.honours.span.clone(), "what the row honours")
                        .help("add it to `honours`, with the parameters that the kernel takes, or remove the order"),
                );
            }
            let Some(order) = self.order(order_name) else {
                complete = false;
                continue;
            };
            if order.first.is_some() != (function.halves() == 2) {
                let (has, wants, help) = if order.first.is_none() {
                    ("plain rows", "have two halves", "name an order with a `half` digit")
                } else {
                    ("two halves", "have one", "name an order without a `half` digit")
                };
                let message =
                    format!("`{}` orders {has}, and {} weights {wants}", order.name, function.name());
                self.error_with(Code::E0403, &order_name.span, message, help);
            }
            found.push((*function, order));
        }
        if let Some((written, _)) = honoured {
            for (honoured, _) in &written.honours.value.0 {
                if rows.gate_up.get(honoured.value).is_none() {
                    let function = honoured.value.name();
                    let message = format!("`{function}` is honoured, but no order of rows is given for it");
                    self.push(
                        Diagnostic::new(Code::E0401, honoured.span.clone(), message)
                            .and(rows.span.clone(), format!("needs `gate_up.{function} = …`"))
                            .help("add the order that its rows are stored in, or do not honour it"),
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
                    format!("`{}` has scales, and the row does not say where they are", format.name);
                self.push(
                    Diagnostic::new(Code::E0304, weight.format.span.clone(), message)
                        .help("add `scale = { layout = \"…\", encoding = \"as_stored\", fill = 0 }`"),
                );
                return None;
            }
            if let Some(repeat) = &weight.repeat {
                self.scales_of_nothing(&repeat.span, "block", format, &weight.format);
            }
            return Some(None);
        };
        let Some(block) = format.block else {
            self.scales_of_nothing(&scale.span, "block", format, &weight.format);
            return None;
        };
        self.second_level(scale.value.global.as_ref(), format, &weight.format);
        if let Some(fill) = &scale.value.fill {
            self.fill_is_finite(fill, block.scale, &weight.format);
        } else if let VendorOr::Is(_) = scale.value.layout.value {
            let message = "the row does not say what padding of the scales holds";
            self.push(Diagnostic::new(Code::E0103, scale.span.clone(), message).help("add `fill = 0`"));
        }
        let layout = match &scale.value.layout.value {
            VendorOr::Vendor(why) => Known::Vendor(why.clone()),
            VendorOr::Is(name) => {
                let layout = self.layout(name)?;
                self.holds(&layout, block.scale, name, &weight.format);
                Known::Is(layout)
            }
        };
        if let Some(repeat) = &weight.repeat {
            let source =
                weight.requantize_from.as_ref().and_then(|name| self.entries.formats.get(&name.value));
            let rows = source.and_then(|format| format.block).map_or(block.rows, |block| block.rows);
            if rows == Reach::Whole {
                let message = format!("`{}` has one scale, and nothing to repeat it over", format.name);
                self.error_with(Code::E0304, &repeat.span, message, "remove `repeat`");
            }
            if let Reach::Of(rows) = rows
                && !rows.is_multiple_of(repeat.row.value)
            {
                let message =
                    format!("scales are repeated over {} rows, and a block has {rows}", repeat.row.value);
                self.push(
                    Diagnostic::new(Code::E0406, repeat.row.span.clone(), message)
                        .help("repeat over what divides the rows of a block of the checkpoint's format"),
                );
            }
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

    /// Padding of weights multiplies the zeros that tokens are padded with, and 0 · NaN is NaN.
    fn elements_are_finite(&mut self, fill: &At<u8>, element: ElementType, format: &Name) {
        let nan = match element {
            ElementType::E2m1
            | ElementType::E2m3
            | ElementType::E3m2
            | ElementType::Int4
            | ElementType::Uint4
            | ElementType::Int8 => false,
            ElementType::E4m3 => fill.value & 0x7F == 0x7F,
            ElementType::E5m2 => fill.value & 0x7C == 0x7C,
            ElementType::F16 => fill.value & 0x7C == 0x7C,
            ElementType::Bf16 | ElementType::F32 => fill.value == 0xFF,
        };
        if nan {
            let message = format!("padding of 0x{:02X} is NaN in `{}`", fill.value, element.name());
            self.push(
                Diagnostic::new(Code::E0405, fill.span.clone(), message)
                    .and(format.span.clone(), format!("has `{}` elements", element.name()))
                    .help("0 is finite in every element type"),
            );
        }
    }

    /// Scale padding multiplies zeros, and 0 · NaN is NaN.
    fn fill_is_finite(&mut self, fill: &At<u8>, scale: ScaleType, format: &Name) {
        let nan = match scale {
            ScaleType::E8m0 => fill.value == 0xFF,
            ScaleType::E4m3 => fill.value & 0x7F == 0x7F,
            // Every byte of the scale; 0x7F in all of them is large, and finite.
            ScaleType::F32 | ScaleType::Bf16 => fill.value == 0xFF,
            ScaleType::F16 => fill.value & 0x7C == 0x7C,
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

    /// Padded sizes are multiples of what orders and payload divide.
    fn padding_suffices(&mut self, weight: &schema::Weight, model: &Weight) {
        let Some(written) = &weight.pad else { return };
        let hidden = &written.value.hidden;
        let intermediate = |halves: usize| match halves {
            1 => &written.value.intermediate.plain,
            _ => &written.value.intermediate.gated,
        };
        // What halves the weights have that some function is honoured for.
        let mut halves: Vec<usize> = model.gate_up.iter().map(|(function, _)| function.halves()).collect();
        halves.sort_unstable();
        halves.dedup();
        let sizes: Vec<_> = halves.into_iter().map(|halves| (halves, intermediate(halves))).collect();
        let rows = weight.rows.as_ref();
        for (function, order) in &model.gate_up {
            let what = format!("the order `{}` of {}", order.name, function.name());
            let name = rows.and_then(|rows| rows.gate_up.get(*function));
            let size = intermediate(function.halves());
            self.divides(order.multiple, size, &what, name.map(|(_, name)| &name.span));
        }
        if let Some(down) = &model.down {
            let name = rows.and_then(|rows| rows.down.as_ref());
            let what = format!("the order `{}`", down.name);
            self.divides(down.multiple, hidden, &what, name.map(|name| &name.span));
        }
        if let Some(block) = model.format.block {
            let what = format!("a block of `{}`", model.format.name);
            // The K of GEMM1 is the hidden size, the K of GEMM2 the intermediate size. Sizes that a
            // block does not divide are refused when weights are prepared; here only a padding that
            // is itself in the way is wrong.
            let cols = block.cols.fixed().unwrap_or(1);
            for size in sizes.iter().map(|(_, size)| *size).chain([hidden]) {
                let multiple = size.value;
                if multiple > 1 && multiple % cols != 0 && cols % multiple != 0 {
                    self.divides(cols, size, &what, Some(&weight.format.span));
                }
            }
        }
        if let Known::Is(payload) = &model.payload
            && let Fit::Divide(multiples) = payload.fit
        {
            let what = format!("the payload `{}`", payload.name);
            self.matrices(multiples, hidden, &sizes, &what, &weight.payload.span);
        }
        if let (Some(block), Some(scale)) = (model.format.block, &model.scale)
            && let Known::Is(layout) = &scale.layout
            && let Fit::Divide(Multiples { row, col }) = layout.fit
            && let Some(place) = &weight.scale
        {
            let what = format!("the layout `{}` of scales", layout.name);
            let (rows, cols) = (block.rows.fixed().unwrap_or(1), block.cols.fixed().unwrap_or(1));
            let rows_per_scale = (rows / scale.repeat_rows).max(1);
            let multiples =
                Multiples { row: row.saturating_mul(rows_per_scale), col: col.saturating_mul(cols) };
            self.matrices(multiples, hidden, &sizes, &what, &place.value.layout.span);
        }
    }

    /// Both padded matrices have `multiples` of rows and columns: the first has as many intermediate
    /// rows as there are halves and hidden columns, the other hidden rows and intermediate columns.
    fn matrices(
        &mut self,
        multiples: Multiples,
        hidden: &At<usize>,
        intermediate: &[(usize, &At<usize>)],
        what: &str,
        because: &Span,
    ) {
        let Multiples { row, col } = multiples;
        for (halves, size) in intermediate {
            let row_of_half = if row.is_multiple_of(*halves) { row / halves } else { row };
            self.divides(row_of_half, size, what, Some(because));
            self.divides(col, size, what, Some(because));
        }
        self.divides(row, hidden, what, Some(because));
        self.divides(col, hidden, what, Some(because));
    }

    fn divides(&mut self, needs: usize, size: &At<usize>, what: &str, because: Option<&Span>) {
        let (has, place) = (size.value, size);
        if has.is_multiple_of(needs) {
            return;
        }
        let message = format!("{what} divides by {needs}, and sizes are padded to multiples of {has} only");
        let mut finding = Diagnostic::new(Code::E0406, place.span.clone(), message)
            .help(format!("pad to a multiple of {needs}, or name one that divides {has}"));
        if let Some(because) = because {
            finding = finding.and(because.clone(), format!("divides by {needs}"));
        }
        self.push(finding);
    }
}
