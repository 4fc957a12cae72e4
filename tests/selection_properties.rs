//! What holds for every request to every oracle.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use scalewright::backend::{Activation, Kernel};
use scalewright::generated::oracle::{DROPPED, ORACLES};
use scalewright::generated::settings::SETTINGS;
use scalewright::oracle::{
    All2all, Checkpoint, Device, Engine, Feature, GemmType, InputRule, Member, NoSelection, Oracle, Order,
    Parallel, Rejected, Request, RoutingMethod, Selection, Switch, TokenType, evaluate,
};
use scalewright_codegen::model::words::{Library, Word};

/// A word that no vocabulary has.
const UNKNOWN: &str = "no_such_word";

fn members(order: &Order) -> impl Iterator<Item = &'static Member> {
    order.members.iter().chain(order.explicit)
}

fn orders() -> impl Iterator<Item = &'static Order> {
    ORACLES.iter().flat_map(|oracle| oracle.orders)
}

fn order(oracle: &Oracle, engine: Engine) -> Option<&'static Order> {
    oracle.orders.iter().find(|order| order.engine == engine)
}

/// A word of the oracle's own, mostly, or one of another oracle or of none.
fn word(own: Vec<&'static str>, all: Vec<&'static str>) -> impl Strategy<Value = String> {
    let all = all.into_iter().chain([UNKNOWN]).collect::<Vec<_>>();
    let own = if own.is_empty() { all.clone() } else { own };
    prop_oneof![8 => select(own), 1 => select(all)].prop_map(str::to_owned)
}

fn names<'a>(orders: impl Iterator<Item = &'a Order>) -> Vec<&'static str> {
    let names = |order: &Order| {
        members(order).flat_map(|member| member.flags).chain(order.ignored_names).copied().collect::<Vec<_>>()
    };
    orders.flat_map(names).collect()
}

fn other_names() -> Vec<&'static str> {
    names(orders()).into_iter().chain(DROPPED.iter().map(|dropped| dropped.name)).collect()
}

fn schemes<'a>(orders: impl Iterator<Item = &'a Order>) -> Vec<&'static str> {
    orders.flat_map(members).flat_map(|member| member.rows).flat_map(|row| row.serves).copied().collect()
}

fn models() -> Vec<&'static str> {
    let rules = orders().flat_map(|order| order.reorder);
    let models = rules.flat_map(|rule| rule.when.model_types.unwrap_or_default());
    models.chain([&UNKNOWN]).copied().collect()
}

fn parallel() -> impl Strategy<Value = Parallel> {
    let ranks = || select(vec![1, 2, 8]);
    (ranks(), of(ranks()), ranks(), weighted(0.4, select(All2all::ALL))).prop_map(
        |(data_parallel, expert_parallel, sequence_parallel, all2all)| Parallel {
            data_parallel,
            expert_parallel,
            sequence_parallel,
            all2all,
        },
    )
}

fn settings() -> impl Strategy<Value = Vec<(String, Switch)>> {
    let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).chain([UNKNOWN]).collect();
    vec((select(names).prop_map(str::to_owned), select(Switch::ALL)), 0..3)
}

fn libraries() -> impl Strategy<Value = Vec<String>> {
    let libraries: Vec<_> = Library::ALL.iter().map(|library| library.name().to_owned()).collect();
    let few = subsequence(libraries.clone(), 0..3);
    prop_oneof![4 => few, 1 => Just(libraries)]
}

prop_compose! {
    /// What a layer is.
    fn layers(oracle: &'static Oracle)(
        device in select(Device::ALL),
        activation in prop_oneof![select(Activation::ALL), Just(Activation::Silu)],
        scheme in weighted(0.9, word(schemes(oracle.orders.iter()), schemes(orders()))),
        hidden in select(vec![0, 1, 256, 2880, 4096, usize::MAX]),
        intermediate in select(vec![0, 352, 360, 1536, usize::MAX]),
        experts in select(vec![0, 8, 128, 992, 993, 2560]),
        routing in select(RoutingMethod::ALL),
        router_dtype in select(TokenType::ALL),
        token_dtype in select(TokenType::ALL),
        features in subsequence(Feature::ALL, 0..4),
        checkpoint in of(select(Checkpoint::ALL)),
        group in of(select(vec![0, 32, 64, 128])),
    ) -> Request {
        Request {
            scheme, intermediate, experts, routing, router_dtype, token_dtype, features, checkpoint, group,
            ..Request::new(device, activation, hidden)
        }
    }
}

prop_compose! {
    /// A layer, where it runs and what the user asks for.
    fn requests(oracle: &'static Oracle)(
        layer in layers(oracle),
        engine in prop_oneof![3 => Just(Engine::Vllm), 1 => Just(Engine::Native)],
        missing_libraries in libraries(),
        parallel in parallel(),
        model_type in weighted(0.1, select(models())),
        backend in weighted(0.4, word(names(oracle.orders.iter()), other_names())),
        settings in settings(),
        gemm_type in weighted(0.2, select(GemmType::ALL)),
    ) -> Request {
        let model_type = model_type.map(str::to_owned);
        Request { engine, missing_libraries, parallel, model_type, backend, settings, gemm_type, ..layer }
    }
}

/// One of `oracles`, and a request to it.
fn asked(oracles: &'static [&'static Oracle]) -> impl Strategy<Value = (&'static Oracle, Request)> {
    select(oracles).prop_flat_map(|oracle| (Just(oracle), requests(oracle)))
}

fn rejected(answer: &Result<Selection, NoSelection>) -> &[Rejected] {
    match answer {
        Ok(selection) => &selection.rejected,
        Err(nothing) => nothing.rejected(),
    }
}

/// The choice is a row of the order, and what the request asks for.
fn check_choice(order: &Order, request: &Request, selection: &Selection) -> Result<(), TestCaseError> {
    let row = selection.contract;
    let is_it = |member: &&Member| {
        member.name == selection.backend && member.rows.iter().any(|other| std::ptr::eq(*other, row))
    };
    prop_assert!(members(order).any(|member| is_it(&member)), "{} is no row of the order", row.name);
    if let Some(scheme) = request.scheme.as_deref().filter(|_| order.input == InputRule::Required) {
        prop_assert!(row.serves.contains(&scheme), "{} does not serve {scheme}", row.name);
    }
    match request.engine {
        Engine::Native => {
            prop_assert!(matches!(row.kernel, Kernel::Generated), "{} is not run here", row.name)
        }
        Engine::Vllm => {
            let class = row.experts.iter().find(|class| Some(class.name) == selection.class);
            prop_assert!(class.is_some(), "{:?} is no class of {}", selection.class, row.name);
            let runs_on =
                |devices: Option<&[Device]>| devices.is_none_or(|list| list.contains(&request.device));
            prop_assert!(runs_on(row.devices) && runs_on(class.and_then(|class| class.requires.devices)));
        }
    }
    Ok(())
}

/// Each refusal is about something that was there to be tried, once, and says why.
fn check_refusals(order: &Order, refusals: &[Rejected]) -> Result<(), TestCaseError> {
    let mut seen = BTreeSet::new();
    for refused in refusals {
        prop_assert!(!refused.reason.to_string().is_empty() && !refused.reason.code().is_empty());
        prop_assert!(seen.insert((refused.backend, refused.class)), "{refused} is said twice");
        let classes =
            members(order).filter(|member| member.name == refused.backend).flat_map(|member| member.rows);
        let known = classes.flat_map(|row| row.experts.iter().map(|class| Some(class.name)).chain([None]));
        prop_assert!(known.into_iter().any(|class| class == refused.class), "{refused} is of nothing tried");
    }
    Ok(())
}

/// What is asked for by name is chosen, or refused in so many words.
fn check_name(
    order: &Order,
    name: &str,
    answer: &Result<Selection, NoSelection>,
) -> Result<(), TestCaseError> {
    let is_its =
        |backend: &str| members(order).any(|member| member.name == backend && member.flags.contains(&name));
    for refused in rejected(answer) {
        prop_assert!(is_its(refused.backend), "{refused}, and {name} was asked for");
    }
    match answer {
        Ok(selection) => prop_assert!(is_its(selection.backend), "{} for {name}", selection.backend),
        Err(NoSelection::AskedFor { asked, .. }) => prop_assert!(asked == name || asked == "a setting"),
        Err(NoSelection::UnknownName { known, .. }) => {
            prop_assert!(!known.is_empty() && !known.contains(&name))
        }
        Err(NoSelection::Dropped { name: dropped, .. }) => prop_assert!(dropped.eq_ignore_ascii_case(name)),
        Err(NoSelection::Refused { .. }) => {}
        Err(NoSelection::NothingFits { .. }) => prop_assert!(false, "{name} is forgotten"),
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(50_000))]

    #[test]
    fn an_answer_is_sound((oracle, request) in asked(ORACLES)) {
        let answer = evaluate(oracle, &request);
        prop_assert_eq!(format!("{answer:?}"), format!("{:?}", evaluate(oracle, &request)));
        if let Err(nothing) = &answer {
            prop_assert!(!nothing.to_string().is_empty());
        }
        let Some(order) = order(oracle, request.engine) else {
            prop_assert!(answer.is_err() && rejected(&answer).is_empty());
            return Ok(());
        };
        if let Ok(selection) = &answer {
            check_choice(order, &request, selection)?;
        }
        check_refusals(order, rejected(&answer))?;
        if let Some(name) = request.backend.as_deref().filter(|name| !order.ignored_names.contains(name)) {
            check_name(order, name, &answer)?;
        }
    }
}

/// The oracles without rules that change their orders.
static PLAIN: LazyLock<Vec<&'static Oracle>> = LazyLock::new(|| {
    let plain = |order: &Order| Order {
        engine: order.engine,
        input: match order.input {
            InputRule::Preferred => InputRule::Ignored,
            input => input,
        },
        plain_schemes: order.plain_schemes,
        members: order.members,
        explicit: order.explicit,
        ignored_names: order.ignored_names,
        refuse: order.refuse,
        reorder: &[],
    };
    let without_rules = |oracle: &&'static Oracle| -> &'static Oracle {
        let orders: Vec<_> = oracle.orders.iter().map(plain).collect();
        Box::leak(Box::new(Oracle {
            family: oracle.family,
            orders: Box::leak(orders.into_boxed_slice()),
            dropped: oracle.dropped,
        }))
    };
    ORACLES.iter().map(without_rules).collect()
});

proptest! {
    #![proptest_config(config(20_000))]

    /// Where no rule changes the order, it is followed from its beginning, and nothing is passed over.
    #[test]
    fn every_member_before_the_choice_has_a_reason((oracle, request) in asked(&PLAIN)) {
        let request = Request { backend: None, ..request };
        let Some(order) = order(oracle, request.engine) else { return Ok(()) };
        let answer = evaluate(oracle, &request);
        if matches!(answer, Err(NoSelection::Refused { .. })) {
            return Ok(());
        }
        let chosen = answer.as_ref().ok().map(|selection| selection.backend);
        let before = order.members.iter().map(|member| member.name).take_while(|name| Some(*name) != chosen);
        let mut refused: Vec<_> = rejected(&answer).iter().map(|refused| refused.backend).collect();
        refused.dedup();
        // Its first classes may have refused before one accepted.
        refused.retain(|name| Some(*name) != chosen);
        prop_assert_eq!(refused, before.collect::<Vec<_>>());
    }
}
