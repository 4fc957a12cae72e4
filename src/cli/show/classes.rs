//! The classes of a row in words.

use std::fmt::Display;

use scalewright::backend::Contract;
use scalewright::oracle::{ActivationFormat, Choice, ClassKind, ExpertsClass, Need, Range, Refusal, When};

use super::list;

/// The classes that run the row: what each asks for, when it is tried, what it offers and refuses.
pub(super) fn describe(lines: &mut Vec<String>, contract: &Contract) {
    let runs_it =
        |class: &&ExpertsClass| contract.classes.is_empty() || contract.classes.contains(&class.name);
    let mut classes = contract.experts.iter().filter(runs_it).peekable();
    if classes.peek().is_some() {
        lines.push("\nvLLM's classes, in order".to_owned());
    }
    for class in classes {
        let words = requires(class);
        let colon = if words.is_empty() { "" } else { ": " };
        lines.push(format!("  {}{colon}{}", class.name, words.join("; ")));
        let tried = situation(&class.when);
        lines.extend((!tried.is_empty()).then(|| format!("    tried {}", tried.join(", "))));
        lines.extend(some("    offers", class.offers));
        refusals(lines, "refuses at once", class.refuses_first);
        refusals(lines, "refuses", class.refuses);
    }
}

fn refusals(lines: &mut Vec<String>, verb: &str, refusals: &[Refusal]) {
    for refusal in refusals {
        let when = match situation(&refusal.when).as_slice() {
            [] => "always".to_owned(),
            words => words.join(", "),
        };
        lines.push(format!("    {verb} {when}: {}", refusal.reason.sentence()));
    }
}

fn requires(class: &ExpertsClass) -> Vec<String> {
    let requires = &class.requires;
    let mut words = Vec::new();
    words.extend((class.kind == ClassKind::Monolithic).then(|| "routes itself".to_owned()));
    words.extend(requires.devices.map(|devices| match devices {
        [] => "on no device".to_owned(),
        devices => format!("on {}", list(devices)),
    }));
    words.extend(some("with", requires.libraries));
    let settings = requires.settings.iter();
    words.extend(settings.map(|(setting, value)| format!("with the setting {} {value}", setting.name)));
    words.extend(requires.activations.map(|functions| format!("activation {}", list(functions))));
    words.extend(requires.routing.map(|methods| format!("routing {}", list(methods))));
    words.extend(requires.router_dtype.map(|types| format!("router logits {}", list(types))));
    if requires.activation_format == ActivationFormat::Batched {
        words.push("a buffer of tokens for each expert".to_owned());
    }
    match requires.all2all {
        None => {}
        Some([]) => words.push("no all-to-all".to_owned()),
        Some(all2all) => words.push(format!("all-to-all {}", list(all2all))),
    }
    words.extend(some("not behind", requires.all2all_refused));
    words.extend(need("an all-to-all", requires.all2all_use));
    words.extend(requires.data_parallel_max.map(|max| format!("at most {max} data-parallel ranks")));
    words.extend(need("expert-parallel ranks", requires.expert_parallel));
    words.extend(need("sequence-parallel ranks", requires.sequence_parallel));
    words.extend(requires.gemm_type.map(|gemm_type| format!("{gemm_type} GEMM")));
    words.extend(requires.hidden_multiple.map(|multiple| format!("hidden sizes in multiples of {multiple}")));
    words
}

fn need(what: &str, need: Need) -> Option<String> {
    match need {
        Need::Free => None,
        Need::Required => Some(format!("only with {what}")),
        Need::Refused => Some(format!("not with {what}")),
    }
}

/// `before` and the words, if there are any.
fn some(before: &str, words: &[impl Display]) -> Option<String> {
    (!words.is_empty()).then(|| format!("{before} {}", list(words)))
}

/// What has to hold, one thing after the other; nothing for always.
fn situation(when: &When) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(when.choice.map(|choice| match choice {
        Choice::Automatic => "where nothing is asked for by name".to_owned(),
        Choice::Named => "where something is asked for by name".to_owned(),
    }));
    words.extend(when.names.map(|names| format!("where {} is asked for", list(names))));
    words.extend(when.devices.map(|devices| format!("on {}", list(devices))));
    words.extend(when.schemes.map(|schemes| format!("for {}", list(schemes))));
    words.extend(when.activations.map(|functions| format!("with {}", list(functions))));
    words.extend(when.routing.map(|methods| format!("with {} routing", list(methods))));
    words.extend(when.all2all.map(|all2all| format!("behind {}", list(all2all))));
    words.extend(when.activation_format.map(|format| format!("with {format} tokens")));
    words.extend(when.token_dtype.map(|types| format!("with {} tokens", list(types))));
    words.extend(when.checkpoint.map(|checkpoints| format!("from {}", list(checkpoints))));
    words.extend(
        when.group
            .map(|groups| format!("in groups of {}", list(&groups.iter().map(group).collect::<Vec<_>>()))),
    );
    words.extend(when.model_types.map(|types| format!("for models {}", list(types))));
    words.extend(some("with", when.has));
    words.extend(some("without", when.lacks));
    words.extend(some("with the library", when.library));
    words.extend(some("without the library", when.library_missing));
    let settings = when.settings.iter();
    words.extend(settings.map(|(setting, value)| format!("with the setting {} {value}", setting.name)));
    words.extend(some("with a value set for", when.set));
    words.extend(some("with no value set for", when.unset));
    for (what, range) in [
        ("hidden size", when.hidden),
        ("intermediate size", when.intermediate),
        ("number of experts", when.experts),
        ("number of data-parallel ranks", when.data_parallel),
        ("number of expert-parallel ranks", when.expert_parallel),
    ] {
        words.extend(bounds(range).map(|bounds| format!("where the {what} is {bounds}")));
    }
    words
}

fn group(size: &usize) -> String {
    match size {
        0 => "a channel".to_owned(),
        _ => size.to_string(),
    }
}

/// The bounds of a range; `None` if it has none.
fn bounds(Range { min, max, not_multiple }: Range) -> Option<String> {
    let mut words = Vec::new();
    words.extend((min > 0).then(|| format!("at least {min}")));
    words.extend((max < usize::MAX).then(|| format!("at most {max}")));
    words.extend((not_multiple > 0).then(|| format!("no multiple of {not_multiple}")));
    (!words.is_empty()).then(|| words.join(" and "))
}
