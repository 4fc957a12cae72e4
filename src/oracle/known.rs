//! The words that an oracle's data is written in and that no enum lists: schemes and libraries.

use std::collections::BTreeSet;

use super::{ExpertsClass, Member, Oracle, Refusal, When};

impl Oracle {
    /// The schemes that rows of the family serve.
    pub fn schemes(&self) -> BTreeSet<&'static str> {
        self.members().flat_map(|member| member.rows).flat_map(|row| row.serves).copied().collect()
    }

    /// The libraries that a choice of the family may depend on.
    pub fn libraries(&self) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        let mut see = |when: &When| found.extend(when.library.iter().chain(when.library_missing));
        for order in self.orders {
            order.refuse.iter().for_each(|refusal| see(&refusal.when));
            order.reorder.iter().for_each(|rule| see(&rule.when));
        }
        for member in self.members() {
            member.refuse.iter().for_each(|refusal| see(&refusal.when));
            classes(member).flat_map(situations).for_each(&mut see);
        }
        found.extend(self.members().flat_map(classes).flat_map(|class| class.requires.libraries));
        found
    }

    fn members(&self) -> impl Iterator<Item = &'static Member> {
        self.orders.iter().flat_map(|order| order.members.iter().chain(order.explicit))
    }
}

fn classes(member: &'static Member) -> impl Iterator<Item = &'static ExpertsClass> {
    member.rows.iter().flat_map(|row| row.experts)
}

fn situations(class: &'static ExpertsClass) -> impl Iterator<Item = &'static When> {
    let refusals = class.refuses_first.iter().chain(class.refuses);
    std::iter::once(&class.when).chain(refusals.map(|Refusal { when, .. }| when))
}
