//! `scalewright check`: the one command that needs the generator.

use std::io::Write;
use std::path::PathBuf;

use scalewright_codegen::diagnostic::Severity;
use scalewright_codegen::{Source, check};

use super::{Trouble, question};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The table.
    table: PathBuf,
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let source = Source::read(&arguments.table).map_err(question)?;
    match check(&source) {
        Ok(checked) => {
            checked.report.render(Severity::Warning).iter().for_each(|warning| eprintln!("{warning}\n"));
            writeln!(out, "{}: {} backends, no errors", source.name, checked.table.backends.len())?;
            Ok(())
        }
        Err(report) => {
            eprintln!("{report}");
            Err(Trouble::Wrong)
        }
    }
}
