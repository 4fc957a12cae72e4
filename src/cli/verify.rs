//! `scalewright verify`: the main job.

mod family;
mod layer;
mod parameters;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use scalewright::backend::{Contract, Kernel};
use scalewright::config::ActivationFunction;
use scalewright::conformance::{self, Case, Measure, Misread, TOLERANCE, measure};
use scalewright::generated::BackendId;
use serde_json::json;

use super::{Trouble, contract, question};
use family::Family;
use layer::{Agreement, Layer};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Only this row; may be given several times.
    #[arg(long = "backend", value_name = "B")]
    backends: Vec<String>,
    /// The family of models that the layer is in the image of. The shipped layer is gpt-oss's; others are
    /// made up.
    #[arg(long, value_enum)]
    model: Option<Family>,
    /// A gpt-oss layer in safetensors instead of the shipped one: a Hugging Face checkpoint or shard.
    #[arg(long, value_name = "FILE", conflicts_with = "shape")]
    weights: Option<PathBuf>,
    /// The layer of a checkpoint with several; the lowest-numbered one if not given.
    #[arg(long, value_name = "N", requires = "weights")]
    layer: Option<usize>,
    /// The clamp of gpt-oss's activation function; if not given, `swiglu_limit` of a `config.json`
    /// beside the weights, or gpt-oss's own 7.
    #[arg(long, value_name = "L", value_parser = positive)]
    limit: Option<f32>,
    /// A made-up layer of a real model's size: gpt-oss-20b, gpt-oss-120b, mixtral-8x7b, qwen3-30b-a3b or
    /// deepseek-v3. Takes minutes, and memory for the weights three times over: 35 GB for deepseek-v3.
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
    /// How many tokens; all that the file has, or 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    tokens: Option<u32>,
    /// Where to run.
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    device: Device,
    /// One JSON object a row.
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(limit) if limit > 0.0 => Ok(limit),
        _ => Err("a clamp is a number above 0, or inf".to_owned()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Device {
    Cpu,
}

impl Device {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
        }
    }
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let rows = rows(&arguments.backends)?;
    let progress = ProgressBar::new(rows.len() as u64 + 1);
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg} ({elapsed})").map_err(question)?;
    progress.set_style(style);
    progress.set_message("loading the layer");
    let layer = load(arguments)?;
    progress.inc(1);

    let mut report = Report { arguments, layer: &layer, wrong: false };
    report.header(out)?;
    for id in rows {
        progress.set_message(id.name());
        let row = run_row(id.contract(), &layer);
        progress.suspend(|| report.row(out, id, row))?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    if report.wrong { Err(Trouble::Wrong) } else { Ok(()) }
}

fn rows(names: &[String]) -> Result<Vec<BackendId>, Trouble> {
    if names.is_empty() {
        let executed = |id: &BackendId| id.contract().kernel == Kernel::Generated;
        return Ok(BackendId::ALL.iter().copied().filter(executed).collect());
    }
    names.iter().map(|name| name.parse().map_err(question)).collect()
}

fn load(arguments: &Arguments) -> Result<Layer, Trouble> {
    let name = arguments.shape.as_deref();
    let named = name.map(family::named).transpose()?;
    let family = match (arguments.model, named) {
        (Some(model), Some((family, _))) if model != family => {
            let (family, model) = (family.name(), model.name());
            return Err(question(format!("that shape is of {family}, not of {model}")));
        }
        (Some(family), _) | (None, Some((family, _))) => family,
        (None, None) => Family::GptOss,
    };
    if family != Family::GptOss && (arguments.weights.is_some() || arguments.limit.is_some()) {
        return Err(question("--weights and --limit are for gpt-oss only"));
    }
    let beside = arguments.weights.as_deref().map(parameters::swiglu_limit).transpose()?.flatten();
    let activation = family.activation(arguments.limit.or(beside));
    let tokens = arguments.tokens.map(|tokens| tokens as usize);
    match (&arguments.weights, named, family) {
        (Some(file), ..) => Layer::from_file(file, arguments.layer, tokens, activation),
        (None, Some((_, shape)), _) => Layer::made_up(family, shape, name, tokens, activation),
        (None, None, Family::GptOss) => Layer::shipped(tokens, activation),
        (None, None, _) => Layer::made_up(family, family.small(), None, tokens, activation),
    }
}

/// What became of one row.
struct Row {
    measure: Measure,
    activation: ActivationFunction,
    /// What had to change so that the row takes the layer.
    changes: Vec<String>,
}

fn run_row(contract: &Contract, layer: &Layer) -> Result<Row, String> {
    let adapted = conformance::adapt(contract, layer.activation, &layer.weights);
    let adapted = adapted.map_err(|failure| failure.to_string())?;
    let (given, activation) = (&layer.weights, adapted.activation);
    let mut changes = Vec::new();
    if let Some(refused) = adapted.refused {
        changes.push(format!("{refused}; it runs {}", activation.kind()));
    }
    if given.biases.is_some() && contract.weight.bias.is_none() {
        changes.push("it takes no biases; it runs without".to_owned());
    }
    let weight = &contract.weight;
    if given.format != weight.format && weight.requantize_from != Some(given.format) {
        changes.push(format!("the weights are requantised from {}", given.format.name));
    }
    let weights = adapted.weights.as_ref().unwrap_or(given);
    let (tokens, routing) = (layer.tokens(), &layer.routing);
    let measured = conformance::calibrate(contract, weights, tokens, routing, activation)
        .and_then(|config| measure(contract, &Case { weights, tokens, routing, config }));
    let measure = measured.map_err(|failure| failure.to_string())?;
    Ok(Row { measure, activation, changes })
}

struct Report<'a> {
    arguments: &'a Arguments,
    layer: &'a Layer,
    wrong: bool,
}

impl Report<'_> {
    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(stored) = self.layer.stored.as_ref().filter(|stored| !stored.holds()) {
            self.wrong = true;
            eprintln!(
                "the reference is off the stored output by {:.1e} of its largest value, more than {:.0e}; \
                 if the layer has another swiglu_limit, give it with --limit ({:?})",
                stored.error,
                Agreement::TOLERANCE,
                self.layer.activation
            );
        }
        if let Some(shared) = self.layer.shared.as_ref().filter(|shared| !shared.holds()) {
            self.wrong = true;
            eprintln!("the shared expert is off the reference by {:.1e} of its largest value", shared.error);
        }
        if self.arguments.json {
            return Ok(());
        }
        writeln!(out, "{}", self.layer.describe())?;
        if let Some(stored) = self.layer.stored.as_ref().filter(|stored| stored.holds()) {
            writeln!(
                out,
                "the reference is within {:.1e} of the stored output of transformers",
                stored.error
            )?;
        }
        if let Some(shared) = self.layer.shared.as_ref().filter(|shared| shared.holds()) {
            writeln!(out, "its shared expert is within {:.1e} of the reference", shared.error)?;
        }
        writeln!(
            out,
            "\n{:32} {:>10} {:>10} {:>10} {:>9}  contract",
            "backend", "quantised", "layer", "misread", "ms"
        )
    }

    fn row(&mut self, out: &mut dyn Write, id: BackendId, row: Result<Row, String>) -> io::Result<()> {
        let row = match row {
            Ok(row) => row,
            Err(message) => {
                self.wrong = true;
                eprintln!("{id}: {message}");
                if !self.arguments.json {
                    return Ok(());
                }
                return writeln!(out, "{}", json!({ "backend": id.name(), "ok": false, "error": message }));
            }
        };
        let Measure { error_quantised, error_layer, misread, elapsed, .. } = row.measure;
        let milliseconds = elapsed.as_secs_f64() * 1e3;
        let close = error_quantised <= TOLERANCE;
        let tells = !matches!(misread, Misread::OffBy(wrong) if wrong < 10.0 * error_quantised);
        if !(close && tells) {
            self.wrong = true;
            let what = if close { "a misread layout does not show" } else { "the row is off the reference" };
            eprintln!("{id}: {what}");
        }
        if self.arguments.json {
            let stored = self.layer.stored.as_ref().map(|stored| stored.error);
            return writeln!(
                out,
                "{}",
                json!({
                    "backend": id.name(),
                    "ok": close && tells,
                    "model": self.layer.describe(),
                    "device": self.arguments.device.name(),
                    "activation": row.activation.kind().name(),
                    "tokens": self.layer.routing.tokens(),
                    "error_quantised": error_quantised,
                    "error_layer": error_layer,
                    "error_wrong_layout": match misread {
                        Misread::NotAtStake => json!(null),
                        Misread::Refused => json!("refused"),
                        Misread::OffBy(wrong) => json!(wrong),
                    },
                    "error_reference_stored": stored,
                    "error_shared_expert": self.layer.shared.as_ref().map(|shared| shared.error),
                    "milliseconds": milliseconds,
                    "changes": row.changes,
                })
            );
        }
        let (misread, remark) = match misread {
            Misread::NotAtStake => ("none".to_owned(), "; no layout at stake"),
            Misread::Refused => ("refused".to_owned(), ""),
            Misread::OffBy(wrong) => (format!("{wrong:.2e}"), ""),
        };
        writeln!(
            out,
            "{:32} {error_quantised:>10.2e} {error_layer:>10.2e} {misread:>10} {milliseconds:>9.1}  {}{remark}",
            id.name(),
            contract::in_a_line(id.contract()),
        )?;
        row.changes.iter().try_for_each(|change| writeln!(out, "{:32} {change}", ""))
    }
}

#[cfg(test)]
mod tests;
