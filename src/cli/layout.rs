//! `scalewright layout`.

mod svg;

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use scalewright::layout::{Extent, Layout};

use super::{Trouble, names, output, question};

const NOTES: &str = "\
How many scales is said by ROWSxCOLS or by --rows and --cols; offsets count scales. As a picture: scalewright layout \
swizzled_128x4 5x5 --svg layout.svg";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct Arguments {
    /// The layout, by its name in the table or any of its aliases.
    layout: String,
    /// Rows (tokens or output channels) and columns (blocks along K) of scales, as 130x5.
    #[arg(value_name = "ROWSxCOLS", conflicts_with_all = ["rows", "cols"])]
    size: Option<Size>,
    /// Rows of scales: tokens, or output channels.
    #[arg(long, required_unless_present = "size")]
    rows: Option<usize>,
    /// Columns of scales: blocks along K.
    #[arg(long, required_unless_present = "size")]
    cols: Option<usize>,
    /// Draws a picture into FILE, replacing it if it exists, and prints no table: tiles, padding and the
    /// order of the scales in memory.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Rows and columns.
#[derive(Debug, Clone, Copy)]
struct Size(Extent);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes =
            text.split_once('x').and_then(|(rows, cols)| Some((rows.parse().ok()?, cols.parse().ok()?)));
        let (rows, cols) = sizes.ok_or("write rows and columns as 130x5")?;
        Ok(Self(Extent { rows, cols }))
    }
}

/// More than a person reads; also keeps sizes far from overflow.
const MOST: usize = 1 << 20;

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let layout = names::layout(&arguments.layout)?;
    let asked = Extent { rows: arguments.rows.unwrap_or_default(), cols: arguments.cols.unwrap_or_default() };
    let logical = arguments.size.map_or(asked, |Size(extent)| extent);
    // No columns make no row of the table free.
    if logical.rows.max(1).saturating_mul(logical.cols.max(1)) > MOST {
        return Err(question(format!(
            "{} x {} scales are more than the {MOST} that a table is for",
            logical.rows, logical.cols
        )));
    }
    let physical = layout.physical(logical).map_err(question)?;
    match &arguments.svg {
        Some(file) => {
            output::write(file, svg::picture(layout, logical, physical).map_err(question)?.as_bytes())?;
            writeln!(out, "{}; drawn into {}", summary(layout, logical, physical), file.display())?;
        }
        None => {
            writeln!(out, "{}", summary(layout, logical, physical))?;
            out.write_all(table(layout, logical, physical).as_bytes())?;
        }
    }
    Ok(())
}

fn summary(layout: &Layout, logical: Extent, physical: Extent) -> String {
    format!(
        "{}: {} x {} scales in a box of {} x {}, {} in all; offsets in scales",
        layout.name,
        logical.rows,
        logical.cols,
        physical.rows,
        physical.cols,
        physical.count()
    )
}

fn table(layout: &Layout, logical: Extent, physical: Extent) -> String {
    let width = physical.count().to_string().len();
    let mut table = String::new();
    for row in 0..logical.rows {
        for col in 0..logical.cols {
            let separator = if col == 0 { "" } else { " " };
            let offset = (layout.offset)(row, col, physical);
            table.push_str(&format!("{separator}{offset:>width$}"));
        }
        table.push('\n');
    }
    table
}
