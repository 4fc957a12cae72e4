//! What the GEMMs of a row read.

use std::sync::Arc;

use super::global;
use crate::check::Checker;
use crate::diagnostic::{Code, Diagnostic};
use crate::model::words::{Alpha, QuantizeAt, Rounding, ScaleSource, ScaleType, Word};
use crate::model::{BlockScale, Format, Grouping, Input, Known, Layout, Reach, Scales};
use crate::schema::{self, Name, VendorOr};
use crate::source::{At, Span};

impl Checker<'_> {
    /// The layout may hold the scales of the format.
    pub(in crate::check) fn holds(
        &mut self,
        layout: &Arc<Layout>,
        scale: ScaleType,
        place: &Name,
        format: &Name,
    ) {
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

    pub(super) fn gemm1(&mut self, input: &schema::Gemm1Input) -> Option<Input> {
        let formats = self.formats(&input.format)?;
        self.rounding(&formats, input.rounding.as_ref());
        self.quantizes(&formats, input);
        self.given_scales(&formats, input.scale.as_ref(), input.global.as_ref(), input.alpha.as_ref());
        let prepared_format = match &input.prepared_dtype {
            None => None,
            Some(dtype) => Some(self.prepared_format(dtype, &formats[0])?),
        };
        if let (Some(dtype), Some(At { value: QuantizeAt::Expert, span })) =
            (&input.prepared_dtype, &input.quantize)
        {
            self.push(
                Diagnostic::new(Code::E0306, dtype.span.clone(), "nothing is prepared that has scales")
                    .and(span.clone(), "the experts quantise")
                    .help("remove `prepared_dtype`"),
            );
        }
        let block_cols = formats[0].0.block.and_then(|block| block.cols.fixed());
        if let (Some(multiple), Some(block)) = (&input.multiple, block_cols)
            && !multiple.hidden.value.is_multiple_of(block)
        {
            let padded = multiple.hidden.value;
            let message = format!("K padded to multiples of {padded} ends inside a block of {block}");
            self.push(
                Diagnostic::new(Code::E0406, multiple.hidden.span.clone(), message)
                    .and(formats[0].1.span.clone(), format!("has blocks of {block}"))
                    .help(format!(
                        "pad to a multiple of {block}, or leave `multiple` out: blocks are always whole"
                    )),
            );
        }
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
        Some(Input {
            formats: formats.into_iter().map(|(format, _)| format).collect(),
            rounding: input.rounding.as_ref().map(|rounding| rounding.value),
            quantize: input.quantize.as_ref().map(|quantize| quantize.value),
            layout: layout?,
            prepared_format,
            grouping: input.grouping.as_ref().map(|grouping| match &grouping.value {
                schema::Grouping::Tokens => Grouping::Tokens,
                schema::Grouping::Slots => Grouping::Slots,
                schema::Grouping::Ranges(ranges) => Grouping::Ranges(ranges.start_multiple.value),
                schema::Grouping::SpreadRanges(ranges) => Grouping::SpreadRanges(ranges.start_multiple.value),
            }),
            multiple: input.multiple.as_ref().map_or(1, |multiple| multiple.hidden.value),
            source: input.scale.as_ref().map(|source| source.value),
            global: input.global.as_ref().map(global),
            alpha: input.alpha.as_ref().map(|alpha| alpha.value),
        })
    }

    pub(super) fn gemm2(&mut self, input: &schema::Gemm2Input) -> Option<Input> {
        let formats = self.formats(&input.format)?;
        self.rounding(&formats, input.rounding.as_ref());
        self.given_scales(&formats, input.scale.as_ref(), input.global.as_ref(), input.alpha.as_ref());
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
        Some(Input {
            formats: formats.into_iter().map(|(format, _)| format).collect(),
            rounding: input.rounding.as_ref().map(|rounding| rounding.value),
            quantize: None,
            layout: layout?,
            prepared_format: None,
            grouping: None,
            multiple: 1,
            source: input.scale.as_ref().map(|source| source.value),
            global: input.global.as_ref().map(global),
            alpha: input.alpha.as_ref().map(|alpha| alpha.value),
        })
    }

    fn formats<'n>(&mut self, names: &'n At<Vec<Name>>) -> Option<Vec<(Arc<Format>, &'n Name)>> {
        let formats: Vec<_> = names.value.iter().map(|name| Some((self.format(name)?, name))).collect();
        let formats: Vec<_> = formats.into_iter().collect::<Option<_>>()?;
        let scaled = formats.iter().filter(|(format, _)| format.block.is_some()).count();
        for (index, (format, name)) in formats.iter().enumerate() {
            if let Some((_, first)) = formats[..index].iter().find(|(other, _)| other == format) {
                self.push(
                    Diagnostic::new(
                        Code::E0306,
                        name.span.clone(),
                        format!("`{}` is listed twice", format.name),
                    )
                    .and(first.span.clone(), "here already")
                    .help("remove one of the two"),
                );
                return None;
            }
        }
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
                let place = written.unwrap_or(table);
                self.scales_of_nothing(place, "block", &formats[0].0, formats[0].1);
                None
            }
            (Some((format, name)), None) => {
                let message =
                    format!("`{}` has scales, and the row does not say where they are", format.name);
                self.push(
                    Diagnostic::new(Code::E0304, name.span.clone(), message)
                        .help("add `layout = { prepared = \"…\", kernel = \"…\" }`"),
                );
                None
            }
        }
    }

    /// The table's format that differs from the kernel's in the type of its scales only.
    fn prepared_format(
        &mut self,
        dtype: &At<ScaleType>,
        (format, name): &(Arc<Format>, &Name),
    ) -> Option<Arc<Format>> {
        let Some(block) = format.block else {
            self.scales_of_nothing(&dtype.span, "block", format, name);
            return None;
        };
        if block.scale == dtype.value {
            let message = format!("`{}` scales are what `{}` has anyway", dtype.value.name(), format.name);
            self.push(
                Diagnostic::new(Code::E0306, dtype.span.clone(), message)
                    .and(name.span.clone(), "the format")
                    .help("remove `prepared_dtype`"),
            );
            return None;
        }
        let wanted = Some(BlockScale { scale: dtype.value, ..block });
        let is_it = |other: &&Arc<Format>| {
            other.element == format.element && other.block == wanted && other.global == format.global
        };
        let found = self.entries.formats.values().find(is_it).cloned();
        if found.is_none() {
            let message = format!("no format is `{}` with `{}` scales", format.name, dtype.value.name());
            self.push(
                Diagnostic::new(Code::E0301, dtype.span.clone(), message)
                    .and(name.span.clone(), "the format that the kernel reads")
                    .help("add a `[format.x]` for what the backend is handed"),
            );
        }
        found
    }

    /// A scale that is given, not chosen, is one that the format has.
    fn given_scales(
        &mut self,
        formats: &[(Arc<Format>, &Name)],
        source: Option<&At<ScaleSource>>,
        global: Option<&At<schema::GlobalScale>>,
        alpha: Option<&At<Alpha>>,
    ) {
        let (format, name) = &formats[0];
        self.second_level(global, format, name);
        if let (Some(alpha), None) = (alpha, format.global) {
            self.scales_of_nothing(&alpha.span, "second-level", format, name);
        }
        let whole = format.block.is_some_and(|block| block.rows == Reach::Whole);
        match (whole, source) {
            (true, None) => {
                let known: Vec<_> = ScaleSource::ALL.iter().map(|word| word.name()).collect();
                let message = format!("`{}` has one scale, and the row does not say whose", format.name);
                self.push(
                    Diagnostic::new(Code::E0307, name.span.clone(), message)
                        .help(format!("add `scale = \"…\"`, one of {}", known.join(", "))),
                );
            }
            (false, Some(source)) => {
                let message = format!("`{}` has more scales than one a tensor", format.name);
                self.push(
                    Diagnostic::new(Code::E0307, source.span.clone(), message)
                        .and(name.span.clone(), "the format")
                        .help("remove `scale`"),
                );
            }
            _ => {}
        }
    }

    /// Only formats with two levels have a second one to say something about.
    pub(super) fn second_level(
        &mut self,
        written: Option<&At<schema::GlobalScale>>,
        format: &Format,
        name: &Name,
    ) {
        if let (Some(written), None) = (written, format.global) {
            self.scales_of_nothing(&written.span, "second-level", format, name);
        }
    }

    pub(super) fn scales_of_nothing(&mut self, place: &Span, level: &str, format: &Format, name: &Name) {
        let message = format!("`{}` has no {level} scales", format.name);
        self.push(
            Diagnostic::new(Code::E0304, place.clone(), message)
                .and(name.span.clone(), "the format")
                .help("remove what is said about them, or name another format"),
        );
    }

    /// E8M0 scales are chosen by a rule, and the row names it.
    fn rounding(&mut self, formats: &[(Arc<Format>, &Name)], rounding: Option<&At<Rounding>>) {
        let power_of_two = formats
            .iter()
            .find(|(format, _)| format.block.is_some_and(|block| block.scale == ScaleType::E8m0));
        match (power_of_two, rounding) {
            (None, Some(rounding)) => {
                let message =
                    format!("`{}` scales are not powers of two, so no rule rounds them", formats[0].0.name);
                self.push(
                    Diagnostic::new(Code::E0305, rounding.span.clone(), message)
                        .and(formats[0].1.span.clone(), "the format")
                        .help("remove `rounding`"),
                );
            }
            (Some((format, name)), None) => {
                let known: Vec<_> = Rounding::ALL.iter().map(|rule| rule.name()).collect();
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
                    .and(formats[0].1.span.clone(), "the format")
                    .help("remove `quantize`"),
            );
        }
    }
}
