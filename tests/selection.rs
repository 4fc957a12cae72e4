//! Oracles against what vLLM itself decides: 21,849 requests that its own code was run on.
//!
//! `SCALEWRIGHT_SELECTION_OUT=FILE` writes the decisions.

#[path = "selection/cases.rs"]
#[allow(dead_code, reason = "the other test reads the configs")]
mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cases::{Case, Refusals, cases};
use scalewright::generated::oracle::ORACLES;
use scalewright::oracle::{Feature, Selection, evaluate};
use serde_json::json;

fn select(case: &Case) -> (Option<Selection>, Refusals) {
    let oracle = ORACLES.iter().find(|oracle| oracle.family == case.family).unwrap();
    let selection = evaluate(oracle, &case.request);
    let rejected = match &selection {
        Ok(selection) => &selection.rejected[..],
        Err(nothing) => nothing.rejected(),
    };
    let rejected = rejected.iter().map(|one| {
        (Some(one.backend.to_owned()), one.class.map(str::to_owned), one.reason.code().to_owned())
    });
    (selection.clone().ok(), rejected.collect())
}

#[derive(serde::Deserialize)]
struct Rules {
    rule: Vec<Rule>,
}

#[derive(serde::Deserialize)]
struct Rule {
    name: String,
    family: String,
    feature: String,
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are what one runs it for")]
fn decides_as_vllm_does() {
    let rules: Rules =
        toml::from_str(&fs::read_to_string("tests/selection/disagreements.toml").unwrap()).unwrap();
    let (mut backends, mut classes, mut refusals, mut out) = (0, 0, 0, String::new());
    let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unexplained = Vec::new();
    let cases = cases();
    for case in &cases {
        let (selection, rejected) = select(case);
        let backend = selection.as_ref().map(|selection| selection.backend);
        let class = selection.as_ref().and_then(|selection| selection.class);
        // vLLM's word for nothing on CPUs.
        let wanted = case.backend.as_deref().filter(|backend| *backend != "NONE");
        let ruled = rules.rule.iter().find(|rule| {
            let feature: Feature = rule.feature.parse().unwrap();
            backend.is_none()
                && wanted.is_some()
                && rule.family == case.family
                && case.request.features.contains(&feature)
        });
        if let Some(rule) = ruled {
            *by_rule.entry(rule.name.as_str()).or_default() += 1;
        }
        let same_backend = backend == wanted || ruled.is_some();
        backends += usize::from(same_backend);
        classes += usize::from(same_backend && (class == case.experts.as_deref() || ruled.is_some()));
        let set = |list: &Refusals| list.iter().cloned().collect::<BTreeSet<_>>();
        refusals += usize::from(set(&rejected) == set(&case.rejected) || ruled.is_some());
        if wanted.is_none() && backend.is_some() {
            unexplained.push(case.id.as_str());
        }
        let row = selection.as_ref().map(|selection| selection.contract.name);
        let line = json!({
            "id": case.id, "row": row, "vllm": backend, "experts": class, "rejected": rejected,
            "rule": ruled.map(|rule| rule.name.as_str()),
        });
        out.push_str(&format!("{line}\n"));
    }
    if let Ok(file) = std::env::var("SCALEWRIGHT_SELECTION_OUT") {
        fs::write(file, out).unwrap();
    }
    let all = cases.len();
    let share = |count: usize| 100.0 * count as f64 / all as f64;
    println!(
        "{all} cases: {backends} same backend ({:.2}%), {classes} same class ({:.2}%), {refusals} same refusals ({:.2}%)",
        share(backends),
        share(classes),
        share(refusals)
    );
    by_rule.iter().for_each(|(rule, count)| println!("{rule}: {count} cases"));
    assert!(share(backends) >= 99.5 && share(classes) >= 99.0 && share(refusals) >= 97.0);
    assert!(share(by_rule.values().sum()) <= 4.0);
    assert_eq!(unexplained, Vec::<&str>::new(), "chosen where nothing fits in vLLM");
}
