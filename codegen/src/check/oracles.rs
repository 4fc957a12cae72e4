//! Oracles: orders of rows and rules that change them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Checker;
use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::model::words::{End, Engine, Word};
use crate::model::{Backend, Change, EngineOrder, Kernel, Oracle, Reorder};
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
                orders.push(self.engine_order(engine, order, backends, &table.backend));
            }
            oracles.push(Oracle { family: family.value.clone(), orders });
        }
        oracles
    }

    /// Rows that no oracle ever chooses; in a table that has oracles, and where all of them are read.
    pub(super) fn unreachable_rows(&mut self, table: &schema::Table) {
        let orders =
            table.oracle.entries.iter().flat_map(|(_, oracle)| [&oracle.vllm, &oracle.native]).flatten();
        let ordered: BTreeSet<&str> =
            orders.flat_map(|order| &order.order).map(|name| name.value.as_str()).collect();
        if table.oracle.entries.is_empty() || !table.oracle.is_complete() {
            return;
        }
        for (name, _) in
            table.backend.entries.iter().filter(|(name, _)| !ordered.contains(name.value.as_str()))
        {
            self.push(
                Diagnostic::new(
                    Code::W0702,
                    name.span.clone(),
                    format!("`{}` is in no order, so it is never chosen", name.value),
                )
                .help("add it to an `[oracle.….vllm]` or `[oracle.….native]` order"),
            );
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
        for name in &order.order {
            self.row_exists(name);
            if !seen.insert(&name.value) {
                let first = order
                    .order
                    .iter()
                    .find(|other| other.value == name.value)
                    .map(|other| other.span.clone());
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
        let rules = order.reorder.iter().flatten();
        let rules: Vec<_> = rules.map(|rule| self.reorder(rule, order)).collect();
        EngineOrder {
            engine,
            rows: order.order.iter().map(|name| name.value.clone()).collect(),
            reorder: rules.into_iter().flatten().collect(),
        }
    }

    fn row_exists(&mut self, name: &Name) {
        let written = self.entries.written.get("backend").cloned().unwrap_or_default();
        if !written.contains(&name.value) {
            let help = suggest(&name.value, written.iter().map(String::as_str));
            let message = format!("there is no backend `{}`", name.value);
            self.push(Diagnostic::new(Code::E0301, name.span.clone(), message).help(help));
        }
    }

    fn reorder(&mut self, rule: &schema::Reorder, order: &schema::EngineOrder) -> Option<Reorder> {
        let lists = [&rule.drop, &rule.only].into_iter().flatten().flatten();
        for name in [&rule.r#move, &rule.before, &rule.after].into_iter().flatten().chain(lists) {
            if !order.order.iter().any(|row| row.value == name.value) {
                let help = suggest(&name.value, order.order.iter().map(|row| row.value.as_str()));
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
        let devices = rule.when.device.as_ref().map(|devices| self.devices(devices));
        let names = |list: &[Name]| list.iter().map(|name| name.value.clone()).collect::<Vec<_>>();
        let ends = (&rule.before, &rule.after, &rule.to);
        let change = match (&rule.r#move, ends, &rule.drop, &rule.only) {
            (Some(row), (Some(anchor), None, None), None, None) => {
                Some(Change::Before { row: row.value.clone(), anchor: anchor.value.clone() })
            }
            (Some(row), (None, Some(anchor), None), None, None) => {
                Some(Change::After { row: row.value.clone(), anchor: anchor.value.clone() })
            }
            (Some(row), (None, None, Some(end)), None, None) => Some(match end.value {
                End::First => Change::First(row.value.clone()),
                End::Last => Change::Last(row.value.clone()),
            }),
            (None, (None, None, None), Some(drop), None) => Some(Change::Drop(names(drop))),
            (None, (None, None, None), None, Some(only)) => Some(Change::Only(names(only))),
            _ => {
                let ends: Vec<_> = End::ALL.iter().map(|end| format!("\"{}\"", end.name())).collect();
                self.push(Diagnostic::new(Code::E0603, rule.span.clone(), misfit(rule)).help(format!(
                    "a rule has one verb: `move` with one of `before`, `after` and `to` ({}), or `drop`, or `only`",
                    ends.join(" or ")
                )));
                None
            }
        };
        let devices = match devices {
            Some(None) => return None,
            Some(Some(devices)) => Some(devices),
            None => None,
        };
        Some(Reorder { devices, activations: rule.when.activation.clone(), change: change? })
    }
}

/// What keeps a rule from being one change.
fn misfit(rule: &schema::Reorder) -> String {
    let written = |keys: [(&'static str, bool); 3]| {
        let keys = keys.into_iter().filter(|(_, is_written)| *is_written);
        keys.map(|(key, _)| format!("`{key}`")).collect::<Vec<_>>()
    };
    let verbs = written([
        ("move", rule.r#move.is_some()),
        ("drop", rule.drop.is_some()),
        ("only", rule.only.is_some()),
    ]);
    let places = written([
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
