//! Rows that compete for the same requests: two that nothing decides between, and one that another
//! leaves nothing to.

use std::sync::Arc;

use super::Checker;
use super::reach::{Reach, are_refused, reaches};
use crate::diagnostic::{Code, Diagnostic};
use crate::model::Backend;
use crate::model::select::{Change, EngineOrder, Member};
use crate::model::words::InputRule;
use crate::read::Named;
use crate::schema::{self, Name};
use crate::source::Span;

impl Checker<'_> {
    /// Findings about the rows of `order`, which is checked; `written` is what stands in the table.
    pub(super) fn rivals(
        &mut self,
        order: &EngineOrder,
        written: &schema::EngineOrder,
        rows: &Named<schema::Backend>,
    ) {
        let headers = || rows.entries.iter().map(|(name, _)| name);
        let header = |row: &Backend| place(headers(), row);
        for member in order.members.iter().chain(&order.explicit) {
            self.share_classes(member, &header);
            self.undecided(order, member, &header);
            self.without_device(order, member, &header);
        }
        let in_order = |row: &Backend| place(written.order.iter(), row);
        for (index, member) in order.members.iter().enumerate() {
            for row in &member.rows {
                self.covered(order, &order.members[..index], (member, row), &in_order);
            }
        }
    }

    fn share_classes(&mut self, member: &Member, place: &impl Fn(&Backend) -> Span) {
        let Some((first, rest)) = member.rows.split_first() else { return };
        let has_classes = |row: &Backend| !row.experts.classes.is_empty();
        let differs = |row: &&Arc<Backend>| {
            !Arc::ptr_eq(&row.experts, &first.experts) && (has_classes(row) || has_classes(first))
        };
        for row in rest.iter().filter(differs) {
            let message =
                format!("`{}` is tried with the classes of `{}`, not with its own", row.name, first.name);
            self.push(
                Diagnostic::new(Code::E0606, place(row), message)
                    .and(place(first), format!("both are {}", member.name))
                    .help("let both name one `[[experts.x]]`, and pick from it with `classes`"),
            );
        }
    }

    fn undecided(&mut self, order: &EngineOrder, member: &Member, place: &impl Fn(&Backend) -> Span) {
        for (index, row) in member.rows.iter().enumerate() {
            // A row that is listed twice is another finding.
            for earlier in member.rows[..index].iter().filter(|earlier| earlier.name != row.name) {
                let (ours, theirs) = (reaches(order, member, row), reaches(order, member, earlier));
                let Some(common) =
                    ours.iter().find_map(|our| theirs.iter().find_map(|their| their.common(our)))
                else {
                    continue;
                };
                let message = format!(
                    "`{}` and `{}` are both for {common}, and nothing decides between them",
                    earlier.name, row.name
                );
                self.push(
                    Diagnostic::new(Code::E0605, place(row), message)
                        .and(place(earlier), format!("both are {}", member.name))
                        .help(told_apart_by(order, member)),
                );
            }
        }
    }

    fn without_device(&mut self, order: &EngineOrder, member: &Member, place: &impl Fn(&Backend) -> Span) {
        for row in &member.rows {
            let reaches = reaches(order, member, row);
            if !reaches.is_empty() && reaches.iter().all(|reach| reach.devices.is_empty()) {
                let message =
                    format!("`{}` is never chosen: its classes run on none of its devices", row.name);
                self.push(Diagnostic::new(Code::W0703, place(row), message).help(
                    "compare `devices` of the row with those of its classes, in `requires` and `when`",
                ));
            }
        }
    }

    /// `row` of `member`, if a row of those before it leaves nothing to it.
    fn covered(
        &mut self,
        order: &EngineOrder,
        before: &[Member],
        (member, row): (&Member, &Backend),
        place: &impl Fn(&Backend) -> Span,
    ) {
        let theirs: Vec<_> =
            reaches(order, member, row).into_iter().filter(|reach| !reach.is_empty()).collect();
        let covers = |ours: &[Reach<'_>]| theirs.iter().all(|reach| ours.iter().any(|our| our.covers(reach)));
        let first = before
            .iter()
            .filter(|earlier| stays_before(order, earlier, member))
            .flat_map(|earlier| earlier.rows.iter().map(move |other| (earlier, other)))
            .find(|(earlier, other)| other.name != row.name && covers(&reaches(order, earlier, other)));
        if let Some((_, first)) = first.filter(|_| !theirs.is_empty()) {
            let message = format!(
                "`{}` is never reached: `{}`, before it, accepts every request that it accepts",
                row.name, first.name
            );
            self.push(
                Diagnostic::new(Code::W0703, place(row), message).and(place(first), "is tried first").help(
                    "put it before that row, or into `explicit` if it is there to be asked for by name",
                ),
            );
        }
    }
}

/// Where the name of `row` stands among `names`.
fn place<'a>(mut names: impl Iterator<Item = &'a Name>, row: &Backend) -> Span {
    names.find(|name| name.value == row.name).map(|name| name.span.clone()).unwrap_or_default()
}

/// What decides between rows of a member.
fn told_apart_by(order: &EngineOrder, member: &Member) -> &'static str {
    if member.rows.iter().all(|row| row.experts.classes.is_empty()) {
        "tell them apart by `serves` or `honours`"
    } else if order.input == InputRule::Required {
        "tell them apart by `serves`, `devices` or `classes`"
    } else {
        "tell them apart by `devices` or `classes`: this order does not choose between rows of a member by scheme"
    }
}

/// Whether `earlier` is asked before `later` in every situation. Only where it is certain: a rule that
/// may change who comes first is taken to do so.
fn stays_before(order: &EngineOrder, earlier: &Member, later: &Member) -> bool {
    let keeps = |change: &Change| match change {
        Change::Before { member, .. }
        | Change::After { member, .. }
        | Change::First(member)
        | Change::Last(member) => *member != earlier.name && *member != later.name,
        Change::Drop(names) => !names.contains(&earlier.name),
        Change::Only(names) | Change::Force(names) => {
            names.contains(&earlier.name) || !names.contains(&later.name)
        }
    };
    let is_plain = |member: &Member| {
        let reads_plain = |row: &Arc<Backend>| row.gemm1.formats.iter().all(|format| format.block.is_none());
        member.rows.iter().any(reads_plain)
    };
    let serves = |member: &Member, scheme| member.rows.iter().any(|row| row.serves.contains(scheme));
    // Members that serve the scheme are tried first, then those that read 16-bit tokens, no others.
    let by_scheme = order.input != InputRule::Preferred
        || (later.rows.iter().flat_map(|row| &row.serves).all(|scheme| serves(earlier, scheme))
            && (is_plain(earlier) || !is_plain(later)));
    by_scheme
        && are_refused(&earlier.refuse, &later.refuse)
        && order.reorder.iter().all(|rule| keeps(&rule.change))
}
