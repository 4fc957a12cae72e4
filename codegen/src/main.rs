//! `scalewright-codegen`: checks and generates tables, explains findings.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use scalewright_codegen::diagnostic::{Code, Severity};
use scalewright_codegen::{Builder, Mode, Source, check};

/// Checks a scalewright table and generates what follows from it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checks a table. Prints every finding.
    Check {
        /// The table.
        table: PathBuf,
    },
    /// Generates a folder from a table: writes what differs, removes what is no longer produced.
    Write {
        /// The table.
        table: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// Explains a finding, `E0101` say; without a code, lists them all.
    Explain {
        /// The code.
        code: Option<String>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Check { table } => match Source::read(&table).map(|source| check(&source)) {
            Ok(Ok(checked)) => {
                checked.report.render(Severity::Warning).iter().for_each(|text| eprintln!("{text}\n"));
                println!("{}: {} backends, no errors", table.display(), checked.table.backends.len());
                ExitCode::SUCCESS
            }
            Ok(Err(report)) => fail(&report.to_string(), ExitCode::FAILURE),
            Err(unreadable) => fail(&unreadable.to_string(), ExitCode::from(2)),
        },
        Command::Write { table, folder } => match Builder::new(table, folder).run(Mode::Write) {
            Ok((_, difference)) => {
                difference.stale.iter().for_each(|path| println!("wrote {}", path.display()));
                difference.orphaned.iter().for_each(|path| println!("removed {}", path.display()));
                ExitCode::SUCCESS
            }
            Err(failure) => fail(&failure.to_string(), ExitCode::FAILURE),
        },
        Command::Explain { code: None } => {
            Code::ALL.iter().for_each(|code| println!("{} {}", code.name(), code.title()));
            ExitCode::SUCCESS
        }
        Command::Explain { code: Some(name) } => match Code::parse(&name) {
            Some(code) => {
                explain(code);
                ExitCode::SUCCESS
            }
            None => {
                fail(&format!("there is no finding `{name}`; `explain` alone lists them"), ExitCode::from(2))
            }
        },
    }
}

fn explain(code: Code) {
    println!("{}: {}\n\n{}\n\nFor example:\n", code.name(), code.title(), code.explanation());
    code.example().lines().for_each(|line| println!("    {line}"));
    if let Err(report) = check(&Source::new("example.toml", code.example())) {
        println!("\n{report}");
    }
}

fn fail(text: &str, code: ExitCode) -> ExitCode {
    eprintln!("{text}");
    code
}
