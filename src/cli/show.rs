//! `scalewright show`: a contract in words.

mod classes;

use std::fmt::Display;
use std::io::Write;

use scalewright::backend::{
    BiasOrder, Contract, Convention, Encoding, EpilogueFactor, GlobalScale, GlobalScope, Grouping,
    InputContract, Kernel, Known, QuantizeAt, ScaleSource, WeightContract,
};
use scalewright::format::{FormatSpec, Reach};
use scalewright::generated::BackendId;
use scalewright::transport;

use super::{Trouble, question};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The row.
    backend: String,
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let id: BackendId = arguments.backend.parse().map_err(question)?;
    let mut lines = Vec::new();
    describe(&mut lines, id.contract());
    Ok(writeln!(out, "{}", lines.join("\n"))?)
}

fn describe(lines: &mut Vec<String>, contract: &Contract) {
    lines.push(contract.name.to_owned());
    if let Some(vllm) = contract.vllm {
        lines.push(format!("  vLLM: {} (--moe-backend {})", vllm.backend, vllm.flags.join(", ")));
    }
    match contract.kernel {
        Kernel::Generated => lines.push("  executed by this crate".to_owned()),
        Kernel::Described(obstacle) => lines.push(format!("  described, not executed: {obstacle}")),
        Kernel::External => lines.push("  executed by the vendor's library only".to_owned()),
    }
    weight(lines, &contract.weight);
    lines.push("\nGEMM1 reads tokens".to_owned());
    input(lines, &contract.gemm1_input);
    if let Some(gemm2) = &contract.gemm2_input {
        lines.push("\nGEMM2 reads what was activated".to_owned());
        input(lines, gemm2);
    }
    activations(lines, contract);
    lines.push("\nTransports".to_owned());
    for (name, words) in transport::describe(contract) {
        lines.push(format!("  {name}: {words}"));
    }
    classes::describe(lines, contract);
    if !contract.facts.is_empty() {
        lines.push("\nFacts".to_owned());
        for fact in contract.facts {
            lines.push(format!("  {} {} ({})", fact.from, fact.at, format!("{:?}", fact.how).to_lowercase()));
        }
    }
}

fn format(format: &FormatSpec) -> String {
    let element = format!("{:?}", format.element).to_lowercase();
    match format.block {
        None => element,
        Some(block) => {
            let scale = format!("{:?}", block.scale).to_lowercase();
            let global = if format.global.is_some() { ", and a global scale" } else { "" };
            let blocks = match (block.rows, block.cols) {
                (Reach::Of(rows), Reach::Of(cols)) => format!("for {rows} x {cols}"),
                (Reach::Of(1), Reach::Whole) => "a row".to_owned(),
                (Reach::Of(rows), Reach::Whole) => format!("for {rows} rows"),
                (Reach::Whole, Reach::Of(cols)) => format!("for {cols} columns"),
                (Reach::Whole, Reach::Whole) => "a tensor".to_owned(),
            };
            let zero_points = if block.zero_point.is_some() { ", and zero points" } else { "" };
            format!("{}: {element}, one {scale} scale {blocks}{zero_points}{global}", format.name)
        }
    }
}

fn known<T>(known: Known<T>, name: impl FnOnce(T) -> String) -> String {
    match known {
        Known::Is(value) => name(value),
        Known::Vendor(why) => format!("the vendor's: {why}"),
    }
}

fn second_level(global: GlobalScale) -> String {
    let convention = match global.convention {
        Convention::Multiplier => "multiplier",
        Convention::Divisor => "divisor",
    };
    match global.scope {
        GlobalScope::PerExpert => format!("a {convention} for each expert"),
        GlobalScope::MaxOverExperts => format!("one {convention}, of the largest expert"),
    }
}

fn weight(lines: &mut Vec<String>, weight: &WeightContract) {
    lines.push("\nWeights".to_owned());
    lines.push(format!("  format: {}", format(weight.format)));
    if let Some(from) = weight.requantize_from {
        lines.push(format!("  requantised from {}", from.name));
    }
    lines.push(format!("  elements: {}", known(weight.payload, |payload| payload.name.to_owned())));
    if let Some(scale) = &weight.scale {
        let layout = known(scale.layout, |layout| layout.name.to_owned());
        let encoding = known(scale.encoding, |Encoding::AsStored| "as stored".to_owned());
        lines.push(format!("  scales: {layout}, {encoding}, padding 0x{:02X}", scale.fill));
        lines.extend(scale.global.map(|global| format!("  second level: {}", second_level(global))));
        if scale.repeat_rows != 1 {
            lines.push(format!("  each row of scales is repeated over {} rows", scale.repeat_rows));
        }
    }
    for (function, order) in weight.gate_up {
        lines.push(format!("  gate/up rows for {function}: {}", order.name));
    }
    lines.push(format!("  down rows: {}", weight.down.map_or("as they come", |order| order.name)));
    if let Some(pad) = weight.pad {
        lines.push(format!("  padded to multiples: hidden {}, intermediate {} (gated, each half) or {} (plain), with 0x{:02X}",
            pad.hidden, pad.gated, pad.plain, pad.fill
        ));
    }
    match weight.bias {
        None => lines.push("  biases: refused".to_owned()),
        Some(bias) => {
            let order = match bias.order {
                BiasOrder::AsRows => "in the order of their rows",
                BiasOrder::Marlin => "in Marlin's order",
            };
            lines.push(format!("  biases: {}, {order}", format!("{:?}", bias.dtype).to_lowercase()));
        }
    }
}

fn input(lines: &mut Vec<String>, input: &InputContract) {
    let formats: Vec<_> = input.formats.iter().map(|one| format(one)).collect();
    lines.push(format!("  format: {}", formats.join(", or ")));
    if let Some(handed) = input.prepared_format {
        lines.push(format!("  handed over as: {}, which the backend converts", format(handed)));
    }
    if let Some(rounding) = input.rounding {
        lines.push(format!("  scales chosen by: {}", format!("{rounding:?}").to_lowercase()));
    }
    if let Some(quantize) = input.quantize {
        lines.push(format!(
            "  quantised by: {}",
            match quantize {
                QuantizeAt::Prepare => "prepare",
                QuantizeAt::Expert => "the experts kernel",
            }
        ));
    }
    match input.layout {
        Known::Vendor(why) => lines.push(format!("  scales: the vendor's: {why}")),
        Known::Is(layout) if layout.prepared == layout.kernel => {
            lines.push(format!("  scales: {}", layout.kernel.name))
        }
        Known::Is(layout) => {
            lines.push(format!(
                "  scales: {} as handed over, {} in the kernel",
                layout.prepared.name, layout.kernel.name
            ));
        }
    }
    match input.source {
        None => {}
        Some(ScaleSource::Static) => lines.push("  its one scale: from the model's calibration".to_owned()),
        Some(ScaleSource::Dynamic) => lines.push("  its one scale: from the numbers".to_owned()),
    }
    lines.extend(input.global.map(|global| format!("  second level: {}", second_level(global))));
    if let Some(EpilogueFactor::WeightTimesInput) = input.alpha {
        lines.push("  the epilogue multiplies by the second level of weight and input".to_owned());
    }
    match input.grouping {
        None => {}
        Some(Grouping::Tokens) => lines.push("  rows: tokens; the kernel gathers".to_owned()),
        Some(Grouping::Slots) => lines.push("  rows: a buffer of equal size for each expert".to_owned()),
        Some(Grouping::Ranges { start_multiple }) => {
            lines.push(format!("  rows: by expert, each beginning at the next multiple of {start_multiple}"));
        }
        Some(Grouping::SpreadRanges { start_multiple }) => lines.push(format!(
            "  rows: by expert, expert e beginning at round_up(first row + e * {}, {start_multiple})",
            start_multiple - 1
        )),
    }
    if input.multiple != 1 {
        lines.push(format!("  K padded to a multiple of {}", input.multiple));
    }
}

fn activations(lines: &mut Vec<String>, contract: &Contract) {
    lines.push("\nActivation functions".to_owned());
    for honoured in contract.activations {
        let parameters = list(honoured.parameters);
        let parameters = if parameters.is_empty() { "no parameters".to_owned() } else { parameters };
        lines.push(format!("  {}: {parameters}", honoured.function));
    }
}

fn list(words: &[impl Display]) -> String {
    words.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
