//! `scalewright dequantize`.

use std::io::Write;

use scalewright::cpu::dequantize::dequantize_matrix;
use scalewright::cpu::relayout::into_layout;
use scalewright::generated::layouts::LINEAR;
use scalewright::layout::Extent;
use scalewright::weights::canonical::Matrix;

use super::output::Target;
use super::tensors::{Archive, NumberType, Quantized, Source, map};
use super::{Trouble, question};

const NOTES: &str = "\
OUT holds T and no other tensor of IN: its rows, and the K that it had before `quantize` padded it.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The type of the numbers.
    #[arg(long, value_name = "D", default_value = "f32")]
    dtype: NumberType,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let input = &arguments.source.input;
    arguments.target.check(input)?;
    let bytes = map(input)?;
    let stored = Archive::new(input, &bytes)?.quantized(&arguments.source)?;
    let extent = Extent { cols: stored.k, ..stored.shape.extent };
    let mut numbers = Vec::new();
    for index in 0..stored.shape.count() {
        numbers.extend(arguments.dtype.bytes(&values(&stored, index)?, extent)?);
    }
    let shape = stored.shape.with(extent);
    arguments.target.write(&arguments.dtype.file(&stored.name, shape, &numbers)?)?;
    writeln!(
        out,
        "{}: numbers {:?} as {:?}, from {} with scales in {}; written to {}",
        stored.name,
        shape.shape(),
        arguments.dtype,
        stored.format.name,
        stored.layout.name,
        arguments.target.path().display()
    )?;
    Ok(())
}

/// The numbers of matrix `index`, without the padding of its rows.
fn values(stored: &Quantized, index: usize) -> Result<Vec<f32>, Trouble> {
    let raw = into_layout(stored.matrix(index), &LINEAR).map_err(question)?;
    let matrix = Matrix {
        rows: raw.rows,
        cols: raw.cols,
        payload: &raw.payload,
        scales: &raw.scales,
        zero_points: &raw.zero_points,
        // As stored: the way over the reciprocal is not exact.
        global: stored.globals.get(index).copied(),
    };
    let values = dequantize_matrix(raw.format, matrix).map_err(question)?;
    Ok(values.chunks(raw.cols).flat_map(|row| &row[..stored.k]).copied().collect())
}
