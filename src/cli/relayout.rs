//! `scalewright relayout`.

use std::io::Write;

use scalewright::cpu::relayout::into_layout;

use super::output::Target;
use super::tensors::{Archive, Quantized, Source, map};
use super::{Trouble, names, question};

const NOTES: &str = "\
The elements stay as they are; padding in the new layout is zero. OUT holds T and what belongs to it, as `quantize` \
writes them, and no other tensor of IN.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Where the scales go: a layout, by its name in the table or any of its aliases.
    #[arg(long, value_name = "L")]
    to: String,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let to = names::layout(&arguments.to)?;
    let input = &arguments.source.input;
    arguments.target.check(input)?;
    let bytes = map(input)?;
    let stored = Archive::new(input, &bytes)?.quantized(&arguments.source)?;
    let mut scales = Vec::new();
    for index in 0..stored.shape.count() {
        scales.extend(into_layout(stored.matrix(index), to).map_err(question)?.scales);
    }
    let from = stored.layout;
    let moved = Quantized { layout: to, scales, ..stored };
    arguments.target.write(&moved.file()?)?;
    let (_, physical) = moved.scale_boxes().map_err(question)?;
    writeln!(
        out,
        "{}: scales of {} moved from {} to {}, in a box of {} x {}; written to {}",
        moved.name,
        moved.format.name,
        from.name,
        to.name,
        physical.rows,
        physical.cols,
        arguments.target.path().display()
    )?;
    Ok(())
}
