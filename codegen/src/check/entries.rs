//! Layouts, payloads, orders, device groups and formats.

use std::sync::Arc;

use super::Checker;
use crate::diagnostic::{Code, Diagnostic};
use crate::model::digits::{Axis, Digit, Flaw, Number};
use crate::model::words::{ElementType, ScaleType, Word};
use crate::model::{BlockScale, Fit, Format, Layout, Multiples, Order, Payload, Reach};
use crate::schema;
use crate::source::At;

impl Checker<'_> {
    pub(super) fn entries(&mut self, table: &schema::Table) {
        for (name, devices) in &table.devices.entries {
            let devices = devices.iter().map(|device| device.value).collect();
            self.entries.devices.insert(name.value.clone(), devices);
        }
        for (name, layout) in &table.layout.entries {
            if let Some(layout) = self.check_layout(name, layout, table) {
                self.entries.layouts.insert(name.value.clone(), Arc::new(layout));
            }
        }
        for (name, payload) in &table.payload.entries {
            if let Some(payload) = self.check_payload(name, payload) {
                self.entries.payloads.insert(name.value.clone(), Arc::new(payload));
            }
        }
        for (name, order) in &table.order.entries {
            if let Some(order) = self.check_order(name, order) {
                self.entries.orders.insert(name.value.clone(), Arc::new(order));
            }
        }
        for (name, format) in &table.format.entries {
            if let Some(format) = self.check_format(name, format) {
                self.one_format_one_name(name, &format, table);
                self.entries.formats.insert(name.value.clone(), Arc::new(format));
            }
        }
    }

    /// What names a format is what is stored, so that a format with given parts can be found.
    fn one_format_one_name(&mut self, name: &At<String>, format: &Format, table: &schema::Table) {
        let parts = |format: &Format| (format.element, format.block, format.global);
        let Some(other) = self.entries.formats.values().find(|other| parts(other) == parts(format)) else {
            return;
        };
        let place = table.format.entries.iter().find(|(key, _)| key.value == other.name);
        let place = place.map(|(key, _)| key.span.clone()).unwrap_or_default();
        let message = format!("the formats `{}` and `{}` are one", other.name, name.value);
        self.push(
            Diagnostic::new(Code::E0207, name.span.clone(), message)
                .and(place, "the other")
                .help("keep one; how scales are chosen stands in rows, not in formats"),
        );
    }

    fn check_layout(
        &mut self,
        name: &At<String>,
        layout: &schema::Layout,
        table: &schema::Table,
    ) -> Option<Layout> {
        let number = self.number(&layout.digits, &[Axis::Row, Axis::Col]);
        let fit = self.fit(layout.pad.as_ref(), layout.divides.as_ref());
        if layout.scale.value.is_empty() {
            self.error(
                Code::E0103,
                &layout.scale.span,
                format!("the layout `{}` holds no scale type", name.value),
            );
        }
        let (number, fit) = (number?, fit?);
        self.multiples(&number, fit, &layout.digits, layout.pad.as_ref().or(layout.divides.as_ref()));
        let scales = layout.scale.value.iter().map(|scale| scale.value).collect();
        let layout_aliases = layout.aliases.as_deref().unwrap_or_default();
        let layout = Layout {
            name: name.value.clone(),
            number,
            fit,
            scales,
            aliases: layout.aliases.iter().flatten().map(|alias| alias.value.clone()).collect(),
        };
        self.aliases(name, layout_aliases, table);
        let same = |other: &&Arc<Layout>| other.number == layout.number && other.fit == layout.fit;
        if let Some(other) = self.entries.layouts.values().find(same).cloned() {
            let other_span = table
                .layout
                .entries
                .iter()
                .find(|(key, _)| key.value == other.name)
                .map(|(key, _)| key.span.clone());
            let message = format!(
                "the layouts `{}` and `{}` are one: same digits, same padding",
                other.name, name.value
            );
            self.push(
                Diagnostic::new(Code::E0207, name.span.clone(), message)
                    .and(other_span.unwrap_or_default(), "the other")
                    .help("keep one, and add the other name to its `aliases`, or its scale types to its `scale` list"),
            );
            return None;
        }
        Some(layout)
    }

    /// No alias is another layout's name or alias. Of two layouts that share one, the later is blamed.
    fn aliases(&mut self, name: &At<String>, aliases: &[At<String>], table: &schema::Table) {
        let others = table.layout.entries.iter().filter(|(other, _)| other.value != name.value);
        let taken = others.flat_map(|(other, layout)| {
            let earlier = layout.aliases.iter().flatten().filter(|_| other.value < name.value);
            earlier.chain([other])
        });
        let taken: Vec<_> = taken.collect();
        for alias in aliases {
            if let Some(other) = taken.iter().find(|other| other.value == alias.value) {
                let message = format!("`{}` would name two layouts", alias.value);
                self.push(
                    Diagnostic::new(Code::E0107, alias.span.clone(), message)
                        .and(other.span.clone(), "the other")
                        .help("a layout is found by its aliases too, so keep each where it belongs"),
                );
            }
        }
    }

    fn check_payload(&mut self, name: &At<String>, payload: &schema::Payload) -> Option<Payload> {
        let number = self.number(&payload.digits, &[Axis::Row, Axis::Col]);
        let fit = self.fit(payload.pad.as_ref(), payload.divides.as_ref());
        let (number, fit) = (number?, fit?);
        self.multiples(&number, fit, &payload.digits, payload.pad.as_ref().or(payload.divides.as_ref()));
        let word = payload.word.as_ref().map(|word| word.value);
        if let (Some(written), Fit::Pad(multiples) | Fit::Divide(multiples)) = (&payload.word, fit)
            && !multiples.col.is_multiple_of(8)
            && !multiples.row.is_multiple_of(8)
        {
            let message = format!("the payload `{}` may end inside a 32-bit word", name.value);
            let help = "pad or divide rows or columns by a multiple of 8";
            self.error_with(Code::E0205, &written.span, message, help);
        }
        Some(Payload { name: name.value.clone(), number, fit, word })
    }

    fn check_order(&mut self, name: &At<String>, order: &schema::Order) -> Option<Order> {
        let gated = order.first.is_some();
        let axes: &[Axis] = if gated { &[Axis::Row, Axis::Half] } else { &[Axis::Row] };
        let names_half = order.digits.value.iter().any(|digit| digit.value.starts_with("half"));
        if names_half && !gated {
            self.push(
                Diagnostic::new(
                    Code::E0208,
                    name.span.clone(),
                    format!("the order `{}` does not say which half is 0", name.value),
                )
                .and(order.digits.span.clone(), "has a `half` digit")
                .help("add `first = \"gate\"` or `first = \"up\"`"),
            );
            return None;
        }
        let number = self.number(&order.digits, axes);
        let fit = self.fit(None, order.divides.as_ref());
        if let Some(col) = order.divides.as_ref().and_then(|divides| divides.value.col.as_ref()) {
            self.error(Code::E0102, &col.span, "an order has no columns");
        }
        let (number, fit) = (number?, fit?);
        self.multiples(&number, fit, &order.digits, order.divides.as_ref());
        Some(Order {
            name: name.value.clone(),
            multiple: number.multiple(Axis::Row).max(fit.multiples().row),
            number,
            first: order.first.as_ref().map(|first| first.value),
        })
    }

    fn check_format(&mut self, name: &At<String>, format: &schema::Format) -> Option<Format> {
        let element = format.element.value;
        let wide = matches!(element, ElementType::Bf16 | ElementType::F16 | ElementType::F32);
        if let (true, Some(scale)) = (wide, &format.scale) {
            self.push(
                Diagnostic::new(
                    Code::E0303,
                    scale.span.clone(),
                    format!("`{}` elements take no scales", element.name()),
                )
                .and(format.element.span.clone(), "the element type")
                .help("remove `scale`, or name the element type that is stored"),
            );
            return None;
        }
        let block = match &format.scale {
            None => None,
            Some(scale) => self.first_level(scale)?,
        };
        if !wide && block.is_none() {
            let message = format!("`{}` elements need a scale", element.name());
            self.push(Diagnostic::new(Code::E0303, format.element.span.clone(), message).help(
                "add `scale.block = { dtype = \"e8m0\", rows = 1, cols = 32 }`, or what it is here; \
                 `scale.row` is one a token or output channel, `scale.tensor` one in all",
            ));
            return None;
        }
        let written = format.scale.as_ref().and_then(|scale| scale.block.as_ref());
        if let (Some(written), Some(block)) = (written, block) {
            let odd = block.cols.fixed().is_some_and(|cols| !cols.is_multiple_of(2));
            if odd && matches!(element, ElementType::E2m1 | ElementType::Int4 | ElementType::Uint4) {
                let message = format!("a block of `{}` has to be whole bytes", element.name());
                self.push(
                    Diagnostic::new(Code::E0303, written.value.cols.span.clone(), message)
                        .and(format.element.span.clone(), "two to a byte")
                        .help("write an even number of `cols`"),
                );
                return None;
            }
        }
        self.zero_points(format, written)?;
        let global = format.scale.as_ref().and_then(|scale| scale.global.as_ref());
        if let (Some(global), Some(block)) = (global, block) {
            self.two_levels(global, block, written)?;
        }
        let global: Option<ScaleType> = global.map(|global| global.value.dtype.value);
        Some(Format { name: name.value.clone(), element, block, global })
    }

    /// The first level of two is a block's share of the second, in few bits.
    fn two_levels(
        &mut self,
        global: &At<schema::GlobalScaleType>,
        block: BlockScale,
        written: Option<&At<schema::BlockScale>>,
    ) -> Option<()> {
        let message = if global.value.dtype.value != ScaleType::F32 {
            "a second-level scale is an `f32`"
        } else if block.scale != ScaleType::E4m3 || written.is_none() {
            "only `e4m3` scales of blocks have a second level"
        } else {
            return Some(());
        };
        let place = written.map_or(&global.span, |block| &block.span);
        self.push(
            Diagnostic::new(Code::E0303, global.span.clone(), message)
                .and(place.clone(), "the first level")
                .help("NVFP4 is `scale.block = { dtype = \"e4m3\", .. }` and `scale.global = { dtype = \"f32\" }`"),
        );
        None
    }

    /// The one of `scale.block`, `scale.row` and `scale.tensor` that is written.
    fn first_level(&mut self, scale: &schema::FormatScale) -> Option<Option<BlockScale>> {
        let block = scale.block.as_ref().map(|block| {
            let (rows, cols) = (Reach::Of(block.value.rows.value), Reach::Of(block.value.cols.value));
            let zero_point = block.value.zero_point.as_ref().map(|zero_point| zero_point.value);
            (block.span.clone(), BlockScale { scale: block.value.dtype.value, rows, cols, zero_point })
        });
        let wide = |written: &Option<At<schema::WideScale>>, rows| {
            written.as_ref().map(|wide| {
                let (scale, cols) = (wide.value.dtype.value, Reach::Whole);
                (wide.span.clone(), BlockScale { scale, rows, cols, zero_point: None })
            })
        };
        let row = wide(&scale.row, Reach::Of(1));
        let tensor = wide(&scale.tensor, Reach::Whole);
        let mut found = [block, row, tensor].into_iter().flatten();
        let Some((first, block)) = found.next() else { return Some(None) };
        let Some((other, _)) = found.next() else { return Some(Some(block)) };
        self.push(
            Diagnostic::new(Code::E0303, other, "a format has one first-level scale")
                .and(first, "the other")
                .help("keep one of `block`, `row` and `tensor`; a second level is `scale.global`"),
        );
        None
    }

    /// Zero points are what makes codes without a sign stand for numbers with one.
    fn zero_points(&mut self, format: &schema::Format, block: Option<&At<schema::BlockScale>>) -> Option<()> {
        let unsigned = format.element.value == ElementType::Uint4;
        if let (true, Some(block)) =
            (unsigned, block.filter(|block| block.value.dtype.value == ScaleType::E8m0))
        {
            let message = "power-of-two scales have no zero points";
            let help = "write a `dtype` of 16 or 32 bits";
            self.error_with(Code::E0303, &block.value.dtype.span, message.to_owned(), help);
            return None;
        }
        let written = block.and_then(|block| block.value.zero_point.as_ref());
        match (unsigned, written) {
            (false, None) => return Some(()),
            (true, Some(zero_point)) if zero_point.value == ElementType::Uint4 => return Some(()),
            (true, Some(zero_point)) => {
                let message = format!("zero points of `uint4` are no `{}`", zero_point.value.name());
                self.error_with(Code::E0303, &zero_point.span, message, "write `zero_point = \"uint4\"`");
            }
            (false, Some(zero_point)) => {
                let message = format!("`{}` elements have no zero points", format.element.value.name());
                self.error_with(
                    Code::E0303,
                    &zero_point.span,
                    message,
                    "remove `zero_point`, or store `uint4` elements",
                );
            }
            (true, None) => {
                let help = "add `zero_point = \"uint4\"` to `scale.block`, or store `int4` elements";
                let message = "`uint4` elements need zero points";
                self.error_with(Code::E0303, &format.element.span, message.to_owned(), help);
            }
        }
        None
    }

    /// The number that a digit list stands for.
    fn number(&mut self, digits: &At<Vec<At<String>>>, axes: &[Axis]) -> Option<Number> {
        let mut parsed = Vec::new();
        for digit in &digits.value {
            match Digit::parse(&digit.value) {
                Ok(digit) => parsed.push(digit),
                Err(problem) => {
                    let message = format!("`{}` is no digit: {problem}", digit.value);
                    self.push(
                        Diagnostic::new(Code::E0201, digit.span.clone(), message).help(
                            "a digit is `axis`, `axis/n`, `axis%r` or `axis/n%r`, read as (axis / n) % r",
                        ),
                    );
                }
            }
        }
        if parsed.len() != digits.value.len() {
            return None;
        }
        match Number::new(parsed.clone(), axes) {
            Ok(number) => Some(number),
            Err(flaws) => {
                for flaw in flaws {
                    self.findings.push(describe(&flaw, digits, &parsed, axes));
                }
                None
            }
        }
    }

    fn fit(&mut self, pad: Option<&At<schema::RowCol>>, divides: Option<&At<schema::RowCol>>) -> Option<Fit> {
        let multiples = |at: &At<schema::RowCol>| Multiples {
            row: at.value.row.as_ref().map_or(1, |row| row.value),
            col: at.value.col.as_ref().map_or(1, |col| col.value),
        };
        // What refuses no size is the same, however it is written.
        let any = Multiples { row: 1, col: 1 };
        match (pad, divides) {
            (Some(pad), None) => Some(Fit::Pad(multiples(pad))),
            (None, Some(divides)) if multiples(divides) != any => Some(Fit::Divide(multiples(divides))),
            (None, _) => Some(Fit::Pad(any)),
            (Some(pad), Some(divides)) => {
                self.push(
                    Diagnostic::new(
                        Code::E0206,
                        divides.span.clone(),
                        "a size is padded or refused, not both",
                    )
                    .and(pad.span.clone(), "padded here")
                    .help(
                        "keep `pad` if the size is rounded up, `divides` if what does not divide is refused",
                    ),
                );
                None
            }
        }
    }

    /// `pad` and `divides` leave no digit torn.
    fn multiples(
        &mut self,
        number: &Number,
        fit: Fit,
        digits: &At<Vec<At<String>>>,
        written: Option<&At<schema::RowCol>>,
    ) {
        let has = fit.multiples();
        for (axis, has) in [(Axis::Row, has.row), (Axis::Col, has.col)] {
            let needs = number.multiple(axis);
            if !has.is_multiple_of(needs) {
                let number_of = |written: &At<schema::RowCol>| match axis {
                    Axis::Row => written.value.row.clone(),
                    _ => written.value.col.clone(),
                };
                let place = written.map_or(&digits.span, |written| &written.span).clone();
                let place = written.and_then(number_of).map_or(place, |number| number.span);
                let message = format!(
                    "the digits need {} to be a multiple of {needs}, and nothing makes it more than one of {has}",
                    axis.name()
                );
                let torn =
                    number.digits().iter().position(|digit| digit.axis == axis && digit.divisor == needs);
                let torn = torn.map_or(digits.span.clone(), |torn| digits.value[torn].span.clone());
                self.push(
                    Diagnostic::new(Code::E0205, place, message)
                        .and(torn, format!("divides by {needs}"))
                        .help(format!(
                            "write `pad = {{ {0} = {needs} }}` or `divides = {{ {0} = {needs} }}`",
                            axis.name()
                        )),
                );
            }
        }
    }
}

fn describe(flaw: &Flaw, digits: &At<Vec<At<String>>>, parsed: &[Digit], axes: &[Axis]) -> Diagnostic {
    let place = |index: usize| digits.value[index].span.clone();
    match flaw {
        Flaw::Foreign(index) => {
            let axis = parsed[*index].axis.name();
            let known: Vec<_> = axes.iter().map(|axis| format!("`{}`", axis.name())).collect();
            Diagnostic::new(Code::E0204, place(*index), format!("the axis `{axis}` has no place here"))
                .help(format!("the axes here are {}", known.join(" and ")))
        }
        Flaw::Missing(axis) => {
            let message = format!("no digit is taken from `{}`", axis.name());
            Diagnostic::new(Code::E0204, digits.span.clone(), message)
                .help(format!("add a digit of `{}`: without it two places are one", axis.name()))
        }
        Flaw::Start(index) => {
            let digit = parsed[*index];
            let message = format!("the smallest digit of `{}` has to divide by 1", digit.axis.name());
            Diagnostic::new(Code::E0202, place(*index), message)
                .label(format!("divides by {}", digit.divisor))
                .help(format!(
                    "add `{}%{}`: without it {} places are one",
                    digit.axis.name(),
                    digit.divisor,
                    digit.divisor
                ))
        }
        Flaw::Chain { digit, after, wanted } => {
            let axis = parsed[*digit].axis.name();
            let finding = Diagnostic::new(
                Code::E0202,
                place(*digit),
                format!("`{}` does not go on where `{}` ends", parsed[*digit], parsed[*after]),
            );
            match wanted {
                Some(wanted) => finding
                    .and(place(*after), format!("ends at {wanted}"))
                    .help(format!("the next digit of `{axis}` divides by {wanted}: each digit's n times its r is the next one's n")),
                None => finding
                    .and(place(*after), "has no `%`, so it is the axis' last")
                    .help(format!("only the digit of `{axis}` with the largest divisor goes without `%`")),
            }
        }
        Flaw::Part(index) => Diagnostic::new(
            Code::E0202,
            place(*index),
            format!("`{}` is only a part of a half, which has one value or two", parsed[*index]),
        )
        .help("write `half`"),
        Flaw::Closed(index) => {
            let digit = parsed[*index];
            let message = format!("the largest digit of `{}` has a `%`", digit.axis.name());
            let open = Digit { radix: None, ..digit };
            Diagnostic::new(Code::E0203, place(*index), message)
                .help(format!("write `{open}`: what is beyond it would have no place"))
        }
    }
}
