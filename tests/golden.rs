//! The engine and the reference against other people's software: every relation of
//! `golden/manifest.json` is either checked or listed, with the reason, in `golden/unsupported.toml`.
//!
//! `SCALEWRIGHT_GOLDEN` names another folder of golden files, made with other seeds or shapes.

#[path = "golden/activations.rs"]
mod activations;
#[path = "golden/casts.rs"]
mod casts;
#[path = "golden/compare.rs"]
mod compare;
#[path = "golden/data.rs"]
mod data;
#[path = "golden/engine.rs"]
mod engine;
#[path = "golden/layouts.rs"]
mod layouts;
#[path = "golden/moe.rs"]
mod moe;
#[path = "golden/producers.rs"]
mod producers;
#[path = "golden/quantisers.rs"]
mod quantisers;
#[path = "golden/routing.rs"]
mod routing;

use std::collections::BTreeMap;
use std::io::Write as _;

use data::{Except, File, Listed, Outcome, Relation, Tensors};
use rayon::prelude::*;

/// What may stay unchecked, of all relations and of casts; of the other kinds nothing but quantisers.
const MAY_BE_LISTED: usize = 200;
const CASTS_MAY_BE_LISTED: usize = 15;

/// What became of one relation.
enum Fate {
    Passed,
    Listed,
    Failed(String),
}

/// The outcome of a relation; `None` if no check knows it.
fn outcome(file: &File, tensors: &Tensors, relation: &Relation, except: Option<Except>) -> Option<Outcome> {
    match file.kind.as_str() {
        "cast" => casts::check(tensors, relation),
        "layout" => layouts::check(tensors, relation),
        "quant" => quantisers::check(file, tensors, relation, except),
        "activation" => activations::check(tensors, relation),
        "routing" => routing::check(tensors, relation),
        "moe_gptoss" | "moe_hf" | "moe_quant" => moe::check(file, tensors, relation),
        _ => None,
    }
}

fn fate(file: &File, tensors: &Tensors, relation: &Relation, listed: &[Listed]) -> Fate {
    let entry = listed.iter().find(|entry| entry.covers(relation));
    let whole = outcome(file, tensors, relation, None);
    match (whole, entry) {
        (Some(Ok(())), Some(entry)) if entry.except.is_none() && data::other().is_none() => {
            Fate::Failed("is listed, but it is checked and passes: take it off the list".into())
        }
        (Some(Ok(())), _) => Fate::Passed,
        (Some(Err(difference)), Some(Listed { except: Some(except), .. })) => {
            match outcome(file, tensors, relation, Some(*except)) {
                Some(Ok(())) => Fate::Listed,
                _ => Fate::Failed(difference),
            }
        }
        (_, Some(_)) => Fate::Listed,
        (Some(Err(difference)), None) => Fate::Failed(difference),
        (None, None) => Fate::Failed("is neither checked nor listed".into()),
    }
}

/// Fails with every difference; otherwise says how many relations passed and how many are listed.
#[test]
fn every_relation_holds_or_is_listed() {
    let manifest = data::manifest();
    let listed = data::listed();
    let fates: Vec<(&File, &Relation, Fate)> = manifest
        .files
        .par_iter()
        .flat_map_iter(|file| {
            let tensors = data::tensors(file);
            let fate = |relation| (file, relation, fate(file, &tensors, relation, &listed));
            file.relations.iter().map(fate).collect::<Vec<_>>()
        })
        .collect();
    let failures: Vec<String> = fates
        .iter()
        .filter_map(|(file, relation, fate)| match fate {
            Fate::Failed(why) => Some(format!("{}\n    {why}", relation.describe(file))),
            Fate::Passed | Fate::Listed => None,
        })
        .collect();
    let mut of_kind: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, ..) in fates.iter().filter(|(.., fate)| matches!(fate, Fate::Listed)) {
        *of_kind.entry(&file.kind).or_default() += 1;
    }
    let unchecked: usize = of_kind.values().sum();
    let passed = fates.len() - failures.len() - unchecked;
    // Not `println`, which is seen in the log of a failed test only.
    writeln!(std::io::stdout(), "{} relations: {passed} passed, {unchecked} listed", fates.len()).unwrap();
    assert!(failures.is_empty(), "{} of {} fail\n{}", failures.len(), fates.len(), failures.join("\n"));
    assert!(passed > 0, "nothing is checked");
    if data::other().is_none() {
        assert_bounds(unchecked, &of_kind);
        assert_no_stale_entry(&listed, &fates);
    }
}

fn assert_bounds(unchecked: usize, of_kind: &BTreeMap<&str, usize>) {
    assert!(unchecked <= MAY_BE_LISTED, "{unchecked} are listed, of kinds {of_kind:?}");
    for (kind, count) in of_kind {
        let bound = match *kind {
            "cast" => CASTS_MAY_BE_LISTED,
            "quant" => MAY_BE_LISTED,
            _ => 0,
        };
        assert!(*count <= bound, "{count} of kind {kind} are listed, at most {bound} may be");
    }
}

/// Each entry is the first that covers some relation which is not checked in full.
fn assert_no_stale_entry(listed: &[Listed], fates: &[(&File, &Relation, Fate)]) {
    let unchecked = || fates.iter().filter(|(.., fate)| matches!(fate, Fate::Listed));
    let covers_first = |index: usize| {
        unchecked()
            .any(|(_, relation, _)| listed.iter().position(|entry| entry.covers(relation)) == Some(index))
    };
    let stale: Vec<&str> = (0..listed.len())
        .filter(|index| !covers_first(*index))
        .map(|index| listed[index].reason.as_str())
        .collect();
    assert!(stale.is_empty(), "these entries of unsupported.toml cover nothing: {stale:#?}");
}
