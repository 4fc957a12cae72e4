//! The engine and the reference against other people's software: every relation of
//! `golden/manifest.json` is either checked or listed, with the reason, in `golden/unsupported.json`.

#[path = "golden/activations.rs"]
mod activations;
#[path = "golden/casts.rs"]
mod casts;
#[path = "golden/data.rs"]
mod data;
#[path = "golden/engine.rs"]
mod engine;
#[path = "golden/layouts.rs"]
mod layouts;
#[path = "golden/moe.rs"]
mod moe;
#[path = "golden/quantisers.rs"]
mod quantisers;

use data::{File, Listed, Outcome, Relation, Tensors};

/// What became of one relation.
enum Fate {
    Passed,
    Listed,
    Failed(String),
}

/// The outcome of a relation, in all rows but `left_out`; `None` if no check knows it.
fn outcome(file: &File, tensors: &Tensors, relation: &Relation, left_out: &[usize]) -> Option<Outcome> {
    match file.kind.as_str() {
        "cast" => casts::check(tensors, relation),
        "layout" => layouts::check(tensors, relation),
        "quant" => quantisers::check(file, tensors, relation, left_out),
        "activation" => activations::check(tensors, relation),
        "moe_gptoss" => moe::check(file, tensors, relation),
        _ => None,
    }
}

fn fate(file: &File, tensors: &Tensors, relation: &Relation, listed: &[Listed]) -> Fate {
    let entries: Vec<&Listed> = listed.iter().filter(|entry| entry.covers(file, relation)).collect();
    let (partly, wholly): (Vec<&Listed>, Vec<&Listed>) =
        entries.into_iter().partition(|entry| entry.rows.is_some());
    if !wholly.is_empty() {
        return match outcome(file, tensors, relation, &[]) {
            Some(Ok(())) => {
                Fate::Failed("is listed, but it is checked and passes: take it off the list".into())
            }
            _ => Fate::Listed,
        };
    }
    let left_out: Vec<usize> =
        partly.iter().filter_map(|entry| entry.rows.as_deref()).flatten().copied().collect();
    match outcome(file, tensors, relation, &left_out) {
        None => return Fate::Failed("is neither checked nor listed".into()),
        Some(Err(difference)) => return Fate::Failed(difference),
        Some(Ok(())) => {}
    }
    // A row that is left out has to differ, or the list hides what works.
    let fails_with = |row: &&usize| {
        let others: Vec<usize> = left_out.iter().copied().filter(|other| other != *row).collect();
        matches!(outcome(file, tensors, relation, &others), Some(Err(_)))
    };
    match left_out.iter().find(|row| !fails_with(row)) {
        Some(row) => Fate::Failed(format!("row {row} is listed, but passes: take it off the list")),
        None => Fate::Passed,
    }
}

/// The fates of all relations in files of the kinds `kinds`, with their descriptions.
fn fates(kinds: &[&str]) -> Vec<(String, Fate)> {
    let listed = data::listed();
    let manifest = data::manifest();
    let files = manifest.files.iter().filter(|file| kinds.contains(&file.kind.as_str()));
    let fates = files.flat_map(|file| {
        let tensors = data::tensors(file);
        let fate = |relation: &Relation| (relation.describe(file), fate(file, &tensors, relation, &listed));
        file.relations.iter().map(fate).collect::<Vec<_>>()
    });
    fates.collect()
}

/// Fails with every difference; otherwise says how many relations passed and how many are listed.
#[expect(clippy::print_stdout, reason = "the count is what a reader of the log looks for")]
fn assert_fates(kinds: &[&str]) {
    let fates = fates(kinds);
    let failures: Vec<String> = fates
        .iter()
        .filter_map(|(relation, fate)| match fate {
            Fate::Failed(why) => Some(format!("{relation}\n    {why}")),
            _ => None,
        })
        .collect();
    let passed = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Passed)).count();
    println!("{kinds:?}: {} relations: {passed} passed, {} listed", fates.len(), fates.len() - passed);
    assert!(failures.is_empty(), "{} of {} fail\n{}", failures.len(), fates.len(), failures.join("\n"));
    assert!(passed > 0, "nothing of {kinds:?} is checked");
}

#[test]
fn casts_and_decode_tables() {
    assert_fates(&["cast"]);
}

#[test]
fn layouts_and_row_orders() {
    assert_fates(&["layout"]);
}

#[test]
fn block_quantisers() {
    assert_fates(&["quant"]);
}

#[test]
fn activation_functions() {
    assert_fates(&["activation"]);
}

#[test]
fn gpt_oss_layers() {
    assert_fates(&["moe_gptoss"]);
}

/// No relation escapes the tests above, and nothing is listed that the manifest does not have.
#[test]
fn every_relation_is_accounted_for() {
    let manifest = data::manifest();
    let relations =
        || manifest.files.iter().flat_map(|file| file.relations.iter().map(move |relation| (file, relation)));
    for file in &manifest.files {
        assert!(KINDS.contains(&file.kind.as_str()), "{}: no test for kind `{}`", file.file, file.kind);
    }
    let listed = data::listed();
    let stale: Vec<&str> = listed
        .iter()
        .filter(|entry| !relations().any(|(file, relation)| entry.covers(file, relation)))
        .map(|entry| entry.reason.as_str())
        .collect();
    assert!(stale.is_empty(), "these entries of unsupported.json cover nothing: {stale:#?}");
    assert_fates(KINDS);
}

const KINDS: &[&str] = &["cast", "layout", "quant", "activation", "moe_gptoss"];
