//! CUDA: which kernels the rows use, and their text.
//!
//! A kernel is named by what it does; rows that need the same share it, and its header names them.
//! Templates in `templates/kernels` hold a short config block over the plain bodies in
//! `templates/device`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::MARKER;
use crate::model::digits::{Axis, Digit, Number};
use crate::model::transport::Delivery;
use crate::model::words::{ElementType, Rounding, ScaleType, Word};
use crate::model::{Format, Input, Kernel as Executed, Known, Layout, Reach, Scales, Table};

/// One emitted kernel file.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its name, and that of its file.
    pub name: String,
    /// Self-contained CUDA.
    pub text: String,
}

/// Every kernel that an executed row or a delivery to one uses, sorted by name.
pub fn kernels(table: &Table) -> Vec<Kernel> {
    let mut uses = Uses::default();
    // Checkpoints hold weight scales row by row; a table without a layout for that has no kernel for
    // it, and its rows are prepared on the host.
    let checkpoint = table.layouts.iter().find(|layout| layout.number.digits() == ROW_MAJOR);
    for row in table.backends.iter().filter(|row| row.kernel == Executed::Generated) {
        for input in [Some(&row.gemm1), row.gemm2.as_ref()].into_iter().flatten() {
            if let (Known::Is(Scales::At { prepared, kernel }), false) = (&input.layout, is_converted(input))
            {
                uses.quantize(&row.name, &input.formats[0], prepared, input.rounding);
                uses.relayout(&row.name, &input.formats[0], prepared, kernel);
            }
        }
        for transport in &table.transports {
            let format = &row.gemm1.formats[0];
            match transport.delivery(row).0 {
                _ if is_converted(&row.gemm1) => {}
                Delivery::Direct(Some(wire)) => uses.quantize(&row.name, format, &wire, row.gemm1.rounding),
                Delivery::Convert { wire, prepared } => {
                    uses.quantize(&row.name, format, &wire, row.gemm1.rounding);
                    uses.relayout(&row.name, format, &wire, &prepared);
                }
                _ => {}
            }
        }
        if let (Some(checkpoint), Some(Known::Is(layout)), None) =
            (checkpoint, row.weight.scale.as_ref().map(|scale| &scale.layout), &row.weight.requantize_from)
        {
            uses.relayout(&row.name, &row.weight.format, checkpoint, layout);
        }
    }
    uses.render()
}

const ROW_MAJOR: &[Digit] =
    &[Digit { axis: Axis::Row, divisor: 1, radix: None }, Digit { axis: Axis::Col, divisor: 1, radix: None }];

/// Whether scales change their type between what the row is handed and what its kernel reads. No kernel
/// of these templates does that.
fn is_converted(input: &Input) -> bool {
    input.prepared_format.is_some()
}

/// What is used, and by which rows.
#[derive(Default)]
struct Uses {
    quantize: BTreeMap<String, Quantize>,
    relayout: BTreeMap<String, Relayout>,
}

#[derive(Serialize)]
struct Quantize {
    header: &'static str,
    name: String,
    rows: BTreeSet<String>,
    format: String,
    element: &'static str,
    block_cols: usize,
    scale: &'static str,
    max: &'static str,
    roundings: BTreeSet<&'static str>,
    layout: Placement,
}

#[derive(Serialize)]
struct Relayout {
    header: &'static str,
    name: String,
    rows: BTreeSet<String>,
    from: Placement,
    to: Placement,
    /// Bytes of a scale.
    widths: BTreeSet<usize>,
}

/// A layout as device code.
#[derive(Serialize)]
struct Placement {
    name: String,
    offset_function: String,
}

impl Placement {
    fn new(layout: &Layout) -> Self {
        Self { name: layout.name.clone(), offset_function: offset_function(layout) }
    }
}

impl Uses {
    fn quantize(&mut self, row: &str, format: &Arc<Format>, layout: &Layout, rounding: Option<Rounding>) {
        // Scales of blocks of several rows, and second-level scales, are not chosen row by row.
        let Some(block) = format.block.filter(|block| block.rows == Reach::Of(1) && format.global.is_none())
        else {
            return;
        };
        let Some(block_cols) = block.cols.fixed() else { return };
        let max = match format.element {
            ElementType::E4m3 => "448.0f",
            ElementType::E2m1 => "6.0f",
            _ => return,
        };
        if !matches!(block.scale, ScaleType::E8m0 | ScaleType::F32) {
            return;
        }
        let name = format!("quantize_{}_{}", format.name, layout.name);
        let kernel = self.quantize.entry(name.clone()).or_insert_with(|| Quantize {
            header: MARKER,
            name,
            rows: BTreeSet::new(),
            format: format.name.clone(),
            element: format.element.name(),
            block_cols,
            scale: block.scale.name(),
            max,
            roundings: BTreeSet::new(),
            layout: Placement::new(layout),
        });
        kernel.rows.insert(row.to_owned());
        kernel.roundings.extend(rounding.map(Word::name));
    }

    fn relayout(&mut self, row: &str, format: &Arc<Format>, from: &Layout, to: &Layout) {
        let Some(block) = format.block.filter(|_| from != to) else { return };
        let name = format!("relayout_{}_{}", from.name, to.name);
        let kernel = self.relayout.entry(name.clone()).or_insert_with(|| Relayout {
            header: MARKER,
            name,
            rows: BTreeSet::new(),
            from: Placement::new(from),
            to: Placement::new(to),
            widths: BTreeSet::new(),
        });
        kernel.rows.insert(row.to_owned());
        kernel.widths.insert(match block.scale {
            ScaleType::E8m0 | ScaleType::E4m3 => 1,
            ScaleType::Bf16 | ScaleType::F16 => 2,
            ScaleType::F32 => 4,
        });
    }

    fn render(self) -> Vec<Kernel> {
        let tera = templates();
        let quantize = self
            .quantize
            .into_values()
            .map(|kernel| render(&tera, "kernels/quantize.cu.tera", &kernel.name, &kernel));
        let relayout = self
            .relayout
            .into_values()
            .map(|kernel| render(&tera, "kernels/relayout.cu.tera", &kernel.name, &kernel));
        quantize.chain(relayout).collect()
    }
}

fn render(tera: &tera::Tera, template: &str, name: &str, values: &impl Serialize) -> Kernel {
    let context = tera::Context::from_serialize(values).expect("the context is a struct of plain values");
    let text = tera
        .render(template, &context)
        .unwrap_or_else(|error| panic!("{template} asks for what {name} does not have: {error}"));
    Kernel { name: name.to_owned(), text }
}

macro_rules! embedded {
    ($($path:literal,)*) => { [$(($path, include_str!(concat!("../../templates/", $path))),)*] };
}

fn templates() -> tera::Tera {
    let mut tera = tera::Tera::default();
    tera.autoescape_on(Vec::<&str>::new());
    tera.add_raw_templates(embedded! {
        "device/element_e2m1.cuh",
        "device/element_e4m3.cuh",
        "device/float_bits.cuh",
        "device/grid.cuh",
        "device/input.cuh",
        "device/quantize.cuh",
        "device/relayout.cuh",
        "device/rule_ceil.cuh",
        "device/rule_even.cuh",
        "device/rule_floor.cuh",
        "device/rule_rceil.cuh",
        "device/scale_e8m0.cuh",
        "device/scale_f32.cuh",
        "device/types.cuh",
        "kernels/quantize.cu.tera",
        "kernels/relayout.cu.tera",
    })
    .expect("the embedded templates parse");
    tera
}

/// The map of a layout as a device function, the same arithmetic as the Rust one.
fn offset_function(layout: &Layout) -> String {
    let Layout { name, number, .. } = layout;
    let mut text = format!("// {}\n", list(number));
    text +=
        &format!("__device__ __forceinline__ u64 offset_{name}(u64 row, u64 col, u64 rows, u64 cols) {{\n");
    for (index, digit) in number.digits().iter().enumerate() {
        let term = term(digit);
        if index == 0 {
            text += &format!("    u64 offset = {term};\n");
        } else {
            text += &format!("    offset = offset * {} + {term};\n", radix(digit));
        }
    }
    text + "    return offset;\n}"
}

fn list(number: &Number) -> String {
    number.digits().iter().map(ToString::to_string).collect::<Vec<_>>().join(" · ")
}

fn term(digit: &Digit) -> String {
    let axis = digit.axis.name();
    match (digit.divisor, digit.radix) {
        (1, None) => axis.to_owned(),
        (1, Some(radix)) => format!("{axis} % {radix}"),
        (divisor, None) => format!("{axis} / {divisor}"),
        (divisor, Some(radix)) => format!("{axis} / {divisor} % {radix}"),
    }
}

fn radix(digit: &Digit) -> String {
    match (digit.radix, digit.divisor) {
        (Some(radix), _) => radix.to_string(),
        (None, 1) => format!("{}s", digit.axis.name()),
        (None, divisor) => format!("({}s / {divisor})", digit.axis.name()),
    }
}
