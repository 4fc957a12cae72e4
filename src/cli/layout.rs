//! `scalewright layout`.

use std::io::Write;

use scalewright::generated::layouts::LAYOUTS;
use scalewright::layout::{Extent, Layout};

use super::{Trouble, question};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The layout, by its name in the table or any of its aliases.
    layout: String,
    /// Rows of scales: tokens, or output channels.
    #[arg(long)]
    rows: usize,
    /// Columns of scales: blocks along K.
    #[arg(long)]
    cols: usize,
}

/// More than a person reads; also keeps sizes far from overflow.
const MOST: usize = 1 << 20;

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let layout = find(&arguments.layout)?;
    let logical = Extent { rows: arguments.rows, cols: arguments.cols };
    // No columns make no row of the table free.
    if logical.rows.max(1).saturating_mul(logical.cols.max(1)) > MOST {
        return Err(question(format!(
            "{} x {} scales are more than the {MOST} that a table is for",
            logical.rows, logical.cols
        )));
    }
    let physical = layout.physical(logical).map_err(question)?;
    writeln!(
        out,
        "{}: {} x {} scales in a box of {} x {}, {} in all; offsets in scales",
        layout.name,
        logical.rows,
        logical.cols,
        physical.rows,
        physical.cols,
        physical.count()
    )?;
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
    out.write_all(table.as_bytes())?;
    Ok(())
}

fn find(name: &str) -> Result<&'static Layout, Trouble> {
    let by_name = LAYOUTS.iter().find(|layout| layout.name == name);
    let found = by_name.or_else(|| LAYOUTS.iter().find(|layout| layout.aliases.contains(&name)));
    found.copied().ok_or_else(|| {
        let known: Vec<_> = LAYOUTS.iter().map(|layout| layout.name).collect();
        question(format!("there is no layout `{name}`; the table has {}", known.join(", ")))
    })
}
