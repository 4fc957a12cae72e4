//! Oracles: orders of rows and rules that change them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Checker;
use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::model::select::{Change, EngineOrder, Member, Oracle, Refusal, Reorder};
use crate::model::words::{CheckAt, End, Engine, InputRule, Word};
use crate::model::{Backend, Kernel};
use crate::read::Named;
use crate::schema::{self, Name};

impl Checker<'_> {
    pub(super) fn oracles(&mut self, table: &schema::Table, backends: &[Arc<Backend>]) -> Vec<Oracle> {
        let mut oracles = Vec::new();
        for (family, oracle) in &table.oracle.entries {
            let engines = [(Engine::Vllm, &oracle.vllm), (Engine::Native, &oracle.native)];
            let mut orders = Vec::new();
            for (engine, order) in
                engines.into_iter().filter_map(|(engine, order)| Some((engine, order.as_ref()?)))
            {
                let checked = self.engine_order(engine, order, backends, &table.backend);
                self.rivals(&checked, order, &table.backend);
                orders.push(checked);
            }
            oracles.push(Oracle { family: family.value.clone(), orders });
        }
        oracles
    }

    /// Rows that no oracle ever chooses, and names of vLLM's that select nothing; in a table that has
    /// oracles, and where all of them are read.
    pub(super) fn unreachable_rows(&mut self, table: &schema::Table) {
        if table.oracle.entries.is_empty() || !table.oracle.is_complete() {
            return;
        }
        let oracles = || table.oracle.entries.iter().map(|(_, oracle)| oracle);
        let vllm = listed(oracles().filter_map(|oracle| oracle.vllm.as_ref()));
        let native = listed(oracles().filter_map(|oracle| oracle.native.as_ref()));
        for (name, row) in &table.backend.entries {
            let is_named = row.vllm.is_some() && oracles().any(|oracle| oracle.vllm.is_some());
            let (message, help) = match (vllm.contains(&*name.value), native.contains(&*name.value)) {
                (false, false) => (
                    format!("`{}` is in no order, so it is never chosen", name.value),
                    "add it to an `[oracle.….vllm]` or `[oracle.….native]` order",
                ),
                (false, true) if is_named => (
                    format!(
                        "`{}` is in none of vLLM's orders, so vLLM's names for it choose nothing",
                        name.value
                    ),
                    "add it to an `[oracle.….vllm]` order or its `explicit`, or remove `vllm` from the row",
                ),
                _ => continue,
            };
            self.push(Diagnostic::new(Code::W0702, name.span.clone(), message).help(help));
        }
    }

    fn engine_order(
        &mut self,
        engine: Engine,
        order: &schema::EngineOrder,
        backends: &[Arc<Backend>],
        written: &Named<schema::Backend>,
    ) -> EngineOrder {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let listed: Vec<&Name> = order.order.iter().chain(order.explicit.iter().flatten()).collect();
        for name in listed.iter().copied() {
            self.row_exists(name);
            if !seen.insert(&name.value) {
                let first = listed.iter().find(|other| other.value == name.value);
                let first = first.map(|other| other.span.clone());
                self.push(
                    Diagnostic::new(
                        Code::E0601,
                        name.span.clone(),
                        format!("`{}` is in this order twice", name.value),
                    )
                    .and(first.unwrap_or_default(), "here already")
                    .help("remove one of the two"),
                );
            }
            let row = backends.iter().find(|row| row.name == name.value);
            if let (Engine::Native, Some(row)) = (engine, row)
                && row.kernel != Kernel::Generated
            {
                let why = match &row.kernel {
                    Kernel::Described(obstacle) => obstacle.clone(),
                    Kernel::External | Kernel::Generated => "its kernel is external".to_owned(),
                };
                let message = format!("`{}` is not executed here: {why}", name.value);
                let mut finding = Diagnostic::new(Code::E0602, name.span.clone(), message)
                    .help("the native order holds only rows that this crate runs");
                if let Some(written) = written.get(&name.value) {
                    finding = finding.and(written.kernel.span.clone(), "who executes it");
                }
                self.push(finding);
            }
        }
        let members = self.members(engine, &order.order, order, backends);
        let explicit = self.members(engine, order.explicit.as_deref().unwrap_or_default(), order, backends);
        let all: Vec<&Member> = members.iter().chain(&explicit).collect();
        let rows = order.refuse.iter().flatten().filter_map(|refusal| refusal.row.as_ref());
        for name in rows.filter(|name| !listed.iter().any(|row| row.value == name.value)) {
            let help = suggest(&name.value, listed.iter().map(|row| row.value.as_str()));
            let message = format!("`{}` is not in the order that refuses it", name.value);
            self.push(
                Diagnostic::new(Code::E0604, name.span.clone(), message)
                    .and(order.span.clone(), "the order")
                    .help(help),
            );
        }
        let rules = order.reorder.iter().flatten();
        let rules: Vec<_> = rules.map(|rule| self.reorder(rule, order, &all)).collect();
        let at_once =
            order.refuse.iter().flatten().filter(|refusal| refusal.row.is_none()).cloned().collect();
        EngineOrder {
            engine,
            input: order.input.unwrap_or(InputRule::Required),
            refuse: self.refusals(Some(&at_once), CheckAt::Last).unwrap_or_default(),
            members,
            explicit,
            ignored_names: order.ignored_names.clone().unwrap_or_default(),
            reorder: rules.into_iter().flatten().collect(),
        }
    }

    /// Rows that follow each other and are one member of the engine's enum; the crate's own order has
    /// no such members.
    fn members(
        &mut self,
        engine: Engine,
        names: &[Name],
        order: &schema::EngineOrder,
        backends: &[Arc<Backend>],
    ) -> Vec<Member> {
        let mut members: Vec<Member> = Vec::new();
        for name in names {
            let Some(row) = backends.iter().find(|row| row.name == name.value) else { continue };
            let vllm = row.vllm.as_ref().filter(|_| engine == Engine::Vllm);
            let member = vllm.map_or(&row.name, |vllm| &vllm.backend);
            let flags = vllm.map_or_else(|| vec![row.name.clone()], |vllm| vllm.flags.clone());
            match members.last_mut().filter(|last| last.name == *member && engine == Engine::Vllm) {
                Some(last) => last.rows.push(row.clone()),
                None => members.push(Member {
                    name: member.clone(),
                    flags,
                    rows: vec![row.clone()],
                    refuse: Vec::new(),
                }),
            }
        }
        for refusal in order.refuse.iter().flatten() {
            let Some(row) = &refusal.row else { continue };
            let is_its = |member: &&mut Member| member.rows.iter().any(|other| other.name == row.value);
            if let Some(member) = members.iter_mut().find(is_its)
                && let Some(when) = self.when(&refusal.when)
            {
                member.refuse.push(Refusal { when, reason: refusal.reason });
            }
        }
        members
    }

    fn row_exists(&mut self, name: &Name) {
        let written = self.entries.written.get("backend").cloned().unwrap_or_default();
        if !written.contains(&name.value) {
            let help = suggest(&name.value, written.iter().map(String::as_str));
            let message = format!("there is no backend `{}`", name.value);
            self.push(Diagnostic::new(Code::E0301, name.span.clone(), message).help(help));
        }
    }

    fn reorder(
        &mut self,
        rule: &schema::Reorder,
        order: &schema::EngineOrder,
        members: &[&Member],
    ) -> Option<Reorder> {
        let lists = [&rule.drop, &rule.only, &rule.force].into_iter().flatten().flatten();
        let listed = || order.order.iter().chain(order.explicit.iter().flatten());
        for name in [&rule.r#move, &rule.before, &rule.after].into_iter().flatten().chain(lists) {
            if !listed().any(|row| row.value == name.value) {
                let known: Vec<_> = listed().map(|row| row.value.as_str()).collect();
                let help = suggest(&name.value, known.iter().copied());
                let message = format!("`{}` is not in the order that this rule changes", name.value);
                self.push(
                    Diagnostic::new(Code::E0604, name.span.clone(), message)
                        .and(order.span.clone(), "the order")
                        .help(help),
                );
            }
        }
        for anchor in [&rule.before, &rule.after].into_iter().flatten() {
            if let Some(row) = rule.r#move.as_ref().filter(|row| row.value == anchor.value) {
                let message = format!("`{}` cannot be moved next to itself", anchor.value);
                self.push(
                    Diagnostic::new(Code::E0603, anchor.span.clone(), message)
                        .and(row.span.clone(), "the row that moves")
                        .help("name another row of the order"),
                );
            }
        }
        let when = self.when(&rule.when);
        let member = |name: &Name| {
            let has = |member: &&&Member| member.rows.iter().any(|row| row.name == name.value);
            members.iter().find(has).map_or_else(|| name.value.clone(), |member| member.name.clone())
        };
        let names = |list: &[Name]| {
            let mut names: Vec<_> = list.iter().map(member).collect();
            names.dedup();
            names
        };
        let ends = (&rule.before, &rule.after, &rule.to);
        let change = match (&rule.r#move, ends, (&rule.drop, &rule.only, &rule.force)) {
            (Some(row), (Some(anchor), None, None), (None, None, None)) => {
                Some(Change::Before { member: member(row), anchor: member(anchor) })
            }
            (Some(row), (None, Some(anchor), None), (None, None, None)) => {
                Some(Change::After { member: member(row), anchor: member(anchor) })
            }
            (Some(row), (None, None, Some(end)), (None, None, None)) => Some(match end.value {
                End::First => Change::First(member(row)),
                End::Last => Change::Last(member(row)),
            }),
            (None, (None, None, None), (Some(drop), None, None)) => Some(Change::Drop(names(drop))),
            (None, (None, None, None), (None, Some(only), None)) => Some(Change::Only(names(only))),
            (None, (None, None, None), (None, None, Some(force))) => Some(Change::Force(names(force))),
            _ => {
                let ends: Vec<_> = End::ALL.iter().map(|end| format!("\"{}\"", end.name())).collect();
                self.push(Diagnostic::new(Code::E0603, rule.span.clone(), misfit(rule)).help(format!(
                    "a rule has one verb: `move` with one of `before`, `after` and `to` ({}), or `drop`, `only` or `force`",
                    ends.join(" or ")
                )));
                None
            }
        };
        Some(Reorder { when: when?, change: change? })
    }
}

/// The rows that stand in one of `orders`.
fn listed<'a>(orders: impl Iterator<Item = &'a schema::EngineOrder>) -> BTreeSet<&'a str> {
    let names = orders.flat_map(|order| order.order.iter().chain(order.explicit.iter().flatten()));
    names.map(|name| name.value.as_str()).collect()
}

/// What keeps a rule from being one change.
fn misfit(rule: &schema::Reorder) -> String {
    let written = |keys: &[(&'static str, bool)]| {
        let keys = keys.iter().filter(|(_, is_written)| *is_written);
        keys.map(|(key, _)| format!("`{key}`")).collect::<Vec<_>>()
    };
    let verbs = written(&[
        ("move", rule.r#move.is_some()),
        ("drop", rule.drop.is_some()),
        ("only", rule.only.is_some()),
        ("force", rule.force.is_some()),
    ]);
    let places = written(&[
        ("before", rule.before.is_some()),
        ("after", rule.after.is_some()),
        ("to", rule.to.is_some()),
    ]);
    match (verbs.as_slice(), places.as_slice()) {
        ([], []) => "this rule changes nothing".to_owned(),
        ([], _) => format!("{} says where, and nothing moves there", places.join(" and ")),
        ([verb], []) => format!("{verb} does not say where to"),
        ([verb], _) if rule.r#move.is_some() => {
            format!("{verb} goes to one place, not {}", places.join(" and "))
        }
        ([verb], _) => format!("{verb} goes nowhere, so {} says nothing", places.join(" and ")),
        _ => format!("this rule has several verbs: {}", verbs.join(" and ")),
    }
}
