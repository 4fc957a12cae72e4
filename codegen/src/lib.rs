//! Checks a scalewright table and generates the Rust and CUDA that follow from it.
//!
//! The way of a table: [`source`] (text) → `schema` (keys and places) → `check` (meaning, all
//! findings) → [`model`] (valid by construction) → [`emit`] (pure: tokens and text) → [`output`]
//! (files). Three doors lead through it: `build.rs` and other people's build scripts by [`Builder`],
//! the macro `backends!` by [`emit::rust`], and the program `scalewright-codegen`.

mod builder;
mod check;
pub mod diagnostic;
pub mod emit;
pub mod model;
pub mod output;
mod read;
mod schema;
pub mod source;

pub use builder::{Builder, Failure, Mode};
pub use diagnostic::Report;
pub use source::Source;

/// A checked table and what is worth a look in it.
#[derive(Debug)]
pub struct Checked {
    /// The table.
    pub table: model::Table,
    /// Warnings only.
    pub report: Report,
}

/// Reads and checks a table.
///
/// # Errors
/// The report, with every finding, if one of them is an error.
pub fn check(source: &Source) -> Result<Checked, Report> {
    let mut findings = Vec::new();
    let (root, errors) = toml::de::DeTable::parse_recoverable(&source.text);
    // The parser goes on after an error, and what it says then mostly follows from the first: one
    // bracket that is not closed would be hundreds of findings.
    if let Some(error) = errors.first() {
        let span = error.span().unwrap_or(0..source.text.len());
        findings.push(diagnostic::Diagnostic::new(diagnostic::Code::E0101, span, error.message()));
    }
    let table = if findings.is_empty() {
        let root = toml::Spanned::new(root.span(), toml::de::DeValue::Table(root.into_inner()));
        <schema::Table as read::Read>::read(&root, &mut findings)
    } else {
        None
    };
    let table = table.and_then(|table| check::check(&table, &mut findings));
    let report = Report::new(source.clone(), findings);
    match table {
        Some(table) if !report.stops() => Ok(Checked { table, report }),
        _ => Err(report),
    }
}
