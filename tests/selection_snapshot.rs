//! What every oracle chooses, in a file that is reviewed: `tests/selection/snapshot.txt`. A changed
//! order, class or row shows there as the choices that it changes.
//! `UPDATE_EXPECT=1 cargo test --test selection_snapshot` renews it.

use std::collections::BTreeSet;

use expect_test::expect_file;
use scalewright::backend::Activation;
use scalewright::generated::oracle::ORACLES;
use scalewright::generated::settings::SETTINGS;
use scalewright::oracle::{
    All2all, Checkpoint, Device, Engine, Feature, GemmType, Oracle, Order, Parallel, Request, RoutingMethod,
    Switch, TokenType, evaluate,
};
use scalewright_codegen::model::words::{Library, Word};

const FORMAT: &str = "\
# What each oracle chooses. Renewed by `UPDATE_EXPECT=1 cargo test --test selection_snapshot`.
#
# A heading is a family of weights, a scheme of checkpoints and an engine. Below it are lines
#   request: row (class): devices
# The `default` request is silu, hidden 4096, intermediate 1536, 128 experts, one rank, every library.
# Each other one differs from it in what it is called by, and has lines for those devices where that
# alters the choice. `sm_75..sm_100` is every device from one to the other, in this order:
";

/// The most bytes that anyone would read.
const MOST: usize = 300_000;

type Change = (String, Box<dyn Fn(&mut Request)>);

fn default(engine: Engine, scheme: &str, device: Device) -> Request {
    let scheme = Some(scheme.to_owned());
    Request { engine, scheme, intermediate: 1536, ..Request::new(device, Activation::Silu, 4096) }
}

/// One change for each word of a vocabulary.
fn each<T: Copy + std::fmt::Display + 'static>(
    what: &str,
    words: &[T],
    set: impl Fn(&mut Request, T) + Copy + 'static,
) -> Vec<Change> {
    let change =
        |word: T| -> Change { (format!("{what} {word}"), Box::new(move |request| set(request, word))) };
    words.iter().map(|word| change(*word)).collect()
}

/// Every change of one thing in a request to `order`.
fn changes(order: &Order) -> Vec<Change> {
    let names: BTreeSet<&'static str> =
        order.members.iter().chain(order.explicit).flat_map(|member| member.flags).copied().collect();
    let names: Vec<_> = names.into_iter().collect();
    let models: BTreeSet<&'static str> =
        order.reorder.iter().flat_map(|rule| rule.when.model_types.unwrap_or_default()).copied().collect();
    let models: Vec<_> = models.into_iter().collect();
    let settings: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    let libraries: Vec<_> = Library::ALL.iter().map(|library| library.name()).collect();
    [
        each("activation", Activation::ALL, |request, word| request.activation = word),
        each("8 ranks over", All2all::ALL, |request, word| {
            request.parallel = Parallel {
                data_parallel: 8,
                expert_parallel: Some(8),
                sequence_parallel: 1,
                all2all: Some(word),
            };
        }),
        each("expert-parallel ranks", &[8], |request, ranks| request.parallel.expert_parallel = Some(ranks)),
        each("data-parallel ranks", &[8], |request, ranks| request.parallel.data_parallel = ranks),
        each("sequence-parallel ranks", &[8], |request, ranks| request.parallel.sequence_parallel = ranks),
        each("feature", Feature::ALL, |request, word| request.features = vec![word]),
        each("routing", RoutingMethod::ALL, |request, word| request.routing = word),
        each("router logits", TokenType::ALL, |request, word| request.router_dtype = word),
        each("tokens", TokenType::ALL, |request, word| request.token_dtype = word),
        each("checkpoint", Checkpoint::ALL, |request, word| request.checkpoint = Some(word)),
        each("group", &[0, 32, 64, 128], |request, group| request.group = Some(group)),
        each("gemm type", GemmType::ALL, |request, word| request.gemm_type = Some(word)),
        each("hidden", &[2880], |request, hidden| request.hidden = hidden),
        each("intermediate", &[360], |request, size| request.intermediate = size),
        each("experts", &[1024, 2560], |request, experts| request.experts = experts),
        each("without", &libraries, |request, word| request.missing_libraries = vec![word.to_owned()]),
        each("setting on", &settings, |request, name| request.settings = vec![(name.to_owned(), Switch::On)]),
        each("setting off", &settings, |request, name| {
            request.settings = vec![(name.to_owned(), Switch::Off)]
        }),
        each("model", &models, |request, word| request.model_type = Some(word.to_owned())),
        each("asked for", &names, |request, name| request.backend = Some(name.to_owned())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn choice(oracle: &Oracle, request: &Request) -> String {
    match evaluate(oracle, request) {
        Ok(selection) => match selection.class {
            Some(class) => format!("{} ({class})", selection.contract.name),
            None => selection.contract.name.to_owned(),
        },
        Err(_) => "nothing".to_owned(),
    }
}

/// Devices, given by their places among all, in words; three or more that follow each other as a range.
fn devices(places: &[usize]) -> String {
    let name = |place: usize| Device::ALL[place].name();
    let runs = places.chunk_by(|place, next| place + 1 == *next).map(|run| match run {
        [first, _, .., last] => format!("{}..{}", name(*first), name(*last)),
        _ => run.iter().map(|place| name(*place)).collect::<Vec<_>>().join(" "),
    });
    runs.collect::<Vec<_>>().join(" ")
}

/// One line for each choice, with the devices where it is made.
fn lines(request: &str, choices: impl Iterator<Item = (usize, String)>) -> String {
    let mut lines: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, choice) in choices {
        match lines.iter_mut().find(|(other, _)| *other == choice) {
            Some((_, places)) => places.push(place),
            None => lines.push((choice, vec![place])),
        }
    }
    lines.iter().map(|(choice, at)| format!("  {request}: {choice}: {}\n", devices(at))).collect()
}

/// What is chosen for `scheme` by default, and by each change that alters it.
fn section(oracle: &Oracle, order: &Order, scheme: &str) -> String {
    let defaults: Vec<_> = Device::ALL.iter().map(|device| default(order.engine, scheme, *device)).collect();
    let chosen: Vec<_> = defaults.iter().map(|request| choice(oracle, request)).collect();
    let mut text = format!("{} {scheme} {}\n", oracle.family, order.engine);
    text += &lines("default", chosen.iter().cloned().enumerate());
    for (name, change) in changes(order) {
        let changed = defaults.iter().map(|request| {
            let mut request = request.clone();
            change(&mut request);
            choice(oracle, &request)
        });
        text += &lines(&name, changed.enumerate().filter(|(place, choice)| *choice != chosen[*place]));
    }
    text
}

#[test]
fn choices_are_those_that_were_reviewed() {
    let all: Vec<_> = Device::ALL.iter().map(|device| device.name()).collect();
    let mut text = format!("{FORMAT}#   {}\n", all.join(" "));
    for oracle in ORACLES {
        for order in oracle.orders {
            let rows = order.members.iter().chain(order.explicit).flat_map(|member| member.rows);
            let schemes: BTreeSet<_> = rows.flat_map(|row| row.serves).collect();
            for scheme in schemes {
                text += "\n";
                text += &section(oracle, order, scheme);
            }
        }
    }
    assert!(text.len() <= MOST, "{} bytes", text.len());
    expect_file!["selection/snapshot.txt"].assert_eq(&text);
}
