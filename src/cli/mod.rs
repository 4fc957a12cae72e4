//! The commands of the program. Results go to stdout, diagnostics to stderr; the exit status is 0 if
//! all is well, 1 if what was looked at is wrong, 2 if the question was.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

mod backends;
mod check;
mod contract;
mod dequantize;
mod layout;
mod names;
mod output;
mod quantize;
mod relayout;
mod select;
mod show;
mod tensors;
mod verify;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Quantised mixture-of-experts backends as a checked table.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one MoE layer on every row that this crate executes and compares it with the reference.
    Verify(verify::Arguments),
    /// Chooses the backend for a layer as an engine does, and says why not the ones before it.
    Select(Box<select::Arguments>),
    /// Lists the rows of the table.
    Backends(backends::Arguments),
    /// Says what one row asks for, and what travels to it on each transport.
    Show(show::Arguments),
    /// Prints, or draws, where each scale of a layout is stored.
    Layout(layout::Arguments),
    /// Quantises a tensor of a safetensors file and puts its scales where a layout says.
    Quantize(quantize::Arguments),
    /// Moves the scales of a quantised tensor to another layout.
    Relayout(relayout::Arguments),
    /// Turns a quantised tensor back into numbers.
    Dequantize(dequantize::Arguments),
    /// Checks a table and prints every finding.
    Check(check::Arguments),
}

/// What keeps a command from a good end.
enum Trouble {
    /// What was looked at is wrong; it has been said how.
    Wrong,
    /// What a file holds is wrong, and how.
    File(String),
    /// What was asked for makes no sense.
    Question(String),
    /// Nobody reads the results any more, as behind `| head`.
    Unread,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Unread,
            _ => question(format!("cannot write the results: {error}")),
        }
    }
}

/// The question was wrong because of `error`.
fn question(error: impl std::fmt::Display) -> Trouble {
    Trouble::Question(error.to_string())
}

/// What a file holds is wrong because of `error`.
fn wrong_file(error: impl std::fmt::Display) -> Trouble {
    Trouble::File(error.to_string())
}

/// [`question`], with what lies beneath `error`.
fn question_with_cause(error: impl std::error::Error) -> Trouble {
    match error.source() {
        Some(cause) => question(format!("{error} ({cause})")),
        None => question(error),
    }
}

/// Reads the arguments and does what they say.
pub(crate) fn run() -> ExitCode {
    let out = &mut io::stdout();
    let done = match Arguments::parse().command {
        Command::Verify(arguments) => verify::run(&arguments, out),
        Command::Select(arguments) => select::run(*arguments, out),
        Command::Backends(arguments) => backends::run(&arguments, out),
        Command::Show(arguments) => show::run(&arguments, out),
        Command::Layout(arguments) => layout::run(&arguments, out),
        Command::Check(arguments) => check::run(&arguments, out),
        Command::Quantize(arguments) => quantize::run(&arguments, out),
        Command::Relayout(arguments) => relayout::run(&arguments, out),
        Command::Dequantize(arguments) => dequantize::run(&arguments, out),
    };
    match done {
        Ok(()) | Err(Trouble::Unread) => ExitCode::SUCCESS,
        Err(Trouble::Wrong) => ExitCode::FAILURE,
        Err(Trouble::File(message)) => {
            eprintln!("scalewright: {message}");
            ExitCode::FAILURE
        }
        Err(Trouble::Question(message)) => {
            eprintln!("scalewright: {message}");
            ExitCode::from(2)
        }
    }
}
