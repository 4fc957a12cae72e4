//! `scalewright select`.

mod answer;
mod batch;
mod model;
mod question;

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use scalewright::oracle::{NoSelection, Request, evaluate};

use super::Trouble;
use answer::Answer;
use question::Question;

const NOTES: &str = "\
Rows are tried in the order of the engine; each that is refused before the choice is listed with its reason. The exit \
status is 1 if none fits, 2 if the question makes no sense. docs/select.md has every word and default, and the form of \
--batch.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct Arguments {
    #[command(flatten)]
    question: Question,
    /// Takes what the other flags leave open from the config.json of a Hugging Face checkpoint.
    #[arg(long, value_name = "CONFIG")]
    model: Option<PathBuf>,
    /// Tensor-parallel ranks, which share the intermediate size of the model.
    #[arg(long, value_name = "N", requires = "model", conflicts_with = "expert_parallel")]
    tp: Option<NonZeroUsize>,
    /// Answers with a JSON object.
    #[arg(long)]
    json: bool,
    /// Answers a request a line, one JSON object each, from FILE or from stdin (`-`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Question", "model", "json"])]
    batch: Option<PathBuf>,
}

pub(super) fn run(arguments: Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    if let Some(requests) = arguments.batch {
        return batch::run(&requests, out);
    }
    let question = match &arguments.model {
        Some(config) => model::complete(arguments.question, config, arguments.tp)?,
        None => arguments.question,
    };
    let top_k = question.top_k;
    let (oracle, request) = question.request().map_err(Trouble::Question)?;
    let selection = evaluate(oracle, &request);
    if let Err(error @ (NoSelection::UnknownName { .. } | NoSelection::Dropped { .. })) = &selection {
        return Err(super::question(error));
    }
    let answer = Answer::new(oracle.family, &selection);
    if arguments.json {
        answer.write_json(out)?;
    } else {
        writeln!(out, "{}\n", heading(oracle.family, &request, top_k))?;
        answer.write_words(out)?;
    }
    if selection.is_ok() { Ok(()) } else { Err(Trouble::Wrong) }
}

/// What is asked, in a line for people.
fn heading(family: &str, request: &Request, top_k: Option<NonZeroUsize>) -> String {
    let Request { engine, device, activation, hidden, intermediate, experts, routing, .. } = request;
    let scheme = request.scheme.as_ref().map_or_else(String::new, |scheme| format!(" ({scheme})"));
    let top_k = top_k.map_or_else(String::new, |top_k| format!(" top-{top_k}"));
    let ranks =
        request.parallel.expert_parallel.map_or_else(String::new, |ranks| format!(" on {ranks} ranks"));
    let behind = request.parallel.all2all.map_or_else(String::new, |all2all| format!(" behind {all2all}"));
    format!(
        "{family}{scheme} for {engine} on {device}: {activation}, hidden {hidden}, intermediate {intermediate}, \
         {experts} experts{top_k}{ranks}{behind}, {routing} routing"
    )
}
