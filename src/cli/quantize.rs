//! `scalewright quantize`.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use scalewright::cpu::quantize::global::{Scope, global_scales};
use scalewright::cpu::quantize::quantize;
use scalewright::format::{FormatSpec, Rounding, ScaleType};
use scalewright::layout::Extent;
use scalewright::recipe::Recipe;
use scalewright::scale::{Calibrated, Divisor, Multiplier};
use scalewright::tensor::Tokens;

use super::output::Target;
use super::tensors::{Archive, Numbers, Quantized, map};
use super::{Trouble, names, question};

const NOTES: &str = "\
T is F32, F16 or BF16, [rows, K] or [experts, rows, K]; each expert is quantised and laid out apart. Rows are padded \
with zeros to whole blocks.

OUT holds T and what belongs to it, and no other tensor of IN:
  T             the elements, in their type or as U8; 4-bit ones two to a byte, [.., K / 2]
  T_scale       the scales in the order of the layout, [.., rows, columns] of the box it allocates
  T_zero_point  for formats that have them: U8, one a block, row-major
  T_global      for formats that have it: F32, what dequantising multiplies by, [experts] or [1]
Its metadata says the rest (format, layout, rounding, K before padding), so that `relayout` and `dequantize` need not \
be told.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct Arguments {
    /// The safetensors file to read.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The tensor to quantise.
    #[arg(long, value_name = "T")]
    tensor: String,
    /// The format to quantise to, by its name in the table.
    #[arg(long, value_name = "F")]
    format: String,
    /// Where the scales go: a layout, by its name in the table or any of its aliases.
    #[arg(long, value_name = "L")]
    layout: String,
    /// How power-of-two (e8m0) scales are chosen; needed for formats that have them, and only there.
    #[arg(long, value_name = "R")]
    rounding: Option<Rule>,
    /// The second-level scale of a format that has one (nvfp4), as the factor that dequantising
    /// multiplies by: one for all experts, or one each, by commas. `auto`, as if nothing is given,
    /// chooses each expert's by its largest magnitude.
    #[arg(long, value_name = "auto|VALUE", value_delimiter = ',')]
    global: Vec<Global>,
    #[command(flatten)]
    target: Target,
}

/// How a power-of-two scale 2^e is chosen by the largest magnitude of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// The smallest that takes the largest magnitude without saturation; FlashInfer's.
    Rceil,
    /// By the magnitude's exponent; saturates. The OCP specification's.
    Floor,
    /// As floor, the magnitude rounded to the element's mantissa first; vLLM's MXFP4 activations.
    Even,
    /// By the magnitude's exponent, one more if it is no power of two.
    Ceil,
}

impl Rule {
    fn rounding(self) -> Rounding {
        match self {
            Self::Rceil => Rounding::Rceil,
            Self::Floor => Rounding::Floor,
            Self::Even => Rounding::Even,
            Self::Ceil => Rounding::Ceil,
        }
    }

    fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A second-level scale.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Global {
    /// Chosen by the largest magnitude.
    Auto,
    /// Given.
    Is(Multiplier),
}

impl FromStr for Global {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == "auto" {
            return Ok(Self::Auto);
        }
        let value: f32 = word.parse().map_err(|_| format!("`{word}` is neither `auto` nor a number"))?;
        Multiplier::new(value).map(Self::Is).map_err(|error| error.to_string())
    }
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let format = names::format(&arguments.format)?;
    let layout = names::layout(&arguments.layout)?;
    let rounding = rounding(format, arguments.rounding)?;
    arguments.target.check(&arguments.input)?;
    let bytes = map(&arguments.input)?;
    let numbers = Archive::new(&arguments.input, &bytes)?.numbers(&arguments.tensor)?;
    let globals = globals(format, &arguments.global, numbers.shape.count())?;

    let mut quantized = Quantized {
        name: arguments.tensor.clone(),
        format,
        layout,
        rounding: arguments.rounding.map(Rule::word),
        shape: numbers.shape,
        k: numbers.shape.extent.cols,
        payload: Vec::new(),
        scales: Vec::new(),
        zero_points: Vec::new(),
        globals: Vec::new(),
    };
    for index in 0..numbers.shape.count() {
        let global = globals.as_ref().map(|globals| globals[index % globals.len()]);
        add_matrix(&mut quantized, &numbers, index, rounding, global)?;
    }
    arguments.target.write(&quantized.file()?)?;

    let Extent { rows, cols } = quantized.shape.extent;
    let experts = quantized.shape.experts.map_or_else(String::new, |experts| format!("{experts} x "));
    let padded =
        if cols == quantized.k { String::new() } else { format!(", rows padded with zeros to {cols}") };
    let (logical, physical) = quantized.scale_boxes().map_err(question)?;
    writeln!(
        out,
        "{}: {experts}{rows} x {} {} numbers in {}{padded}; {} x {} scales{} in {}, in a box of {} x {}; written to {}",
        quantized.name,
        quantized.k,
        numbers.format.name,
        format.name,
        logical.rows,
        logical.cols,
        if quantized.shape.experts.is_some() { " an expert" } else { "" },
        layout.name,
        physical.rows,
        physical.cols,
        arguments.target.path().display()
    )?;
    Ok(())
}

/// The rule for `format`, which has to be given if its scales are powers of two, and must not otherwise.
fn rounding(format: &FormatSpec, rule: Option<Rule>) -> Result<Option<Rounding>, Trouble> {
    let name = format.name;
    let Some(block) = format.block else {
        return Err(question(format!(
            "`{name}` has no scales; there is nothing to quantise by or to lay out"
        )));
    };
    let is_power_of_two = block.scale == ScaleType::E8m0;
    match rule {
        None if is_power_of_two => Err(question(format!(
            "`{name}` has power-of-two scales; say how they are chosen with --rounding rceil, floor, even or ceil"
        ))),
        Some(rule) if !is_power_of_two => Err(question(format!(
            "`{name}` has scales of any size, and `{}` chooses powers of two; leave --rounding away",
            rule.word()
        ))),
        rule => Ok(rule.map(Rule::rounding)),
    }
}

/// The second-level scales for `count` matrices, one for all or one each; `None` for formats without.
fn globals(format: &FormatSpec, given: &[Global], count: usize) -> Result<Option<Vec<Global>>, Trouble> {
    match (format.global, given.len()) {
        (None, 0) => Ok(None),
        (None, _) => {
            Err(question(format!("`{}` has no second-level scale; leave --global away", format.name)))
        }
        (Some(_), 0) => Ok(Some(vec![Global::Auto])),
        (Some(_), given_count) if given_count == 1 || given_count == count => Ok(Some(given.to_vec())),
        (Some(_), given_count) => Err(question(format!(
            "--global has {given_count} values for {count} matrices; give one for all, or one each"
        ))),
    }
}

/// Quantises matrix `index` of `numbers` and appends it to `quantized`.
fn add_matrix(
    quantized: &mut Quantized,
    numbers: &Numbers<'_>,
    index: usize,
    rounding: Option<Rounding>,
    global: Option<Global>,
) -> Result<(), Trouble> {
    let called = numbers.shape.called(index);
    let Extent { rows, cols } = numbers.shape.extent;
    let values = numbers.matrix(index)?;
    let tokens = Tokens::new(&values, rows, cols).map_err(question)?;
    let global = match global {
        None => None,
        Some(Global::Is(global)) => Some(global),
        Some(Global::Auto) => {
            let chosen = global_scales(tokens, Scope::Tensor);
            let chosen = chosen.map_err(|error| question(format!("{called}{error} (--global)")))?;
            chosen.first().copied().map(Divisor::to_multiplier)
        }
    };
    let calibrated = global.map(|global| Calibrated::Global(global.to_divisor()));
    let recipe = Recipe { calibrated, ..Recipe::dynamic(rounding) };
    let raw = quantize(tokens, quantized.format, recipe, quantized.layout, 1).map_err(question)?;
    quantized.shape.extent.cols = raw.cols;
    quantized.payload.extend(raw.payload);
    quantized.scales.extend(raw.scales);
    quantized.zero_points.extend(raw.zero_points);
    quantized.globals.extend(global);
    Ok(())
}
