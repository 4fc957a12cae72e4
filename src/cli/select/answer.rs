//! What is answered: the choice, or that there is none, and every refusal met before.

use std::io::{self, Write};

use scalewright::backend::Contract;
use scalewright::oracle::{NoSelection, Reason, Rejected, Selection};
use serde::{Serialize, Serializer};

use crate::cli::contract;

/// An answer, as its JSON has it.
#[derive(Serialize)]
pub(super) struct Answer<'a> {
    /// The line of the request in a batch, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    oracle: &'a str,
    #[serde(serialize_with = "name")]
    row: Option<&'static Contract>,
    vllm: Option<&'a str>,
    experts: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(serialize_with = "refusals")]
    rejected: &'a [Rejected],
}

#[derive(Serialize)]
struct Refused {
    backend: &'static str,
    class: Option<&'static str>,
    code: &'static str,
    #[serde(serialize_with = "sentence")]
    reason: Reason,
}

impl<'a> Answer<'a> {
    pub(super) fn new(oracle: &'a str, selection: &'a Result<Selection, NoSelection>) -> Self {
        let chosen = selection.as_ref().ok();
        let row = chosen.map(|selection| selection.contract);
        Self {
            line: None,
            oracle,
            row,
            vllm: row.and_then(|row| row.vllm).map(|names| names.backend),
            experts: chosen.and_then(|selection| selection.class),
            error: selection.as_ref().err().map(NoSelection::headline),
            rejected: match selection {
                Ok(selection) => &selection.rejected,
                Err(nothing) => nothing.rejected(),
            },
        }
    }

    /// The answer to the request in `line` of a batch.
    pub(super) fn of_line(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }

    /// As one line of JSON.
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// For people.
    pub(super) fn write_words(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(row) = self.row {
            writeln!(out, "row       {}", row.name)?;
            let class = self.experts.map_or_else(String::new, |class| format!(", class {class}"));
            writeln!(out, "vllm      {}{class}", self.vllm.unwrap_or("has no such backend"))?;
            writeln!(out, "contract  {}", contract::in_a_line(row))?;
        }
        if let Some(error) = &self.error {
            writeln!(out, "{error}")?;
        }
        if !self.rejected.is_empty() {
            writeln!(out, "\nrefused{}", if self.row.is_some() { " before it" } else { "" })?;
        }
        let class = |rejected: &Rejected| rejected.class.unwrap_or("-");
        let width = |name: &dyn Fn(&Rejected) -> &'static str| {
            self.rejected.iter().map(|rejected| name(rejected).len()).max().unwrap_or(0)
        };
        let (backends, classes) = (width(&|rejected| rejected.backend), width(&class));
        self.rejected.iter().try_for_each(|rejected| {
            let (backend, class, reason) = (rejected.backend, class(rejected), rejected.reason);
            writeln!(out, "  {backend:backends$}  {class:classes$}  {reason}")
        })
    }
}

fn name<S: Serializer>(row: &Option<&'static Contract>, out: S) -> Result<S::Ok, S::Error> {
    row.map(|row| row.name).serialize(out)
}

fn sentence<S: Serializer>(reason: &Reason, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(reason)
}

fn refusals<S: Serializer>(rejected: &&[Rejected], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(rejected.iter().map(|&Rejected { backend, class, reason }| Refused {
        backend,
        class,
        code: reason.code(),
        reason,
    }))
}
