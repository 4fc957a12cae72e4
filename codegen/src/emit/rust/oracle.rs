//! The oracles: orders and rules as const data, one `select` a family.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Module, ident, imports, select, variant};
use crate::model::Table;
use crate::model::select::{Change, EngineOrder, Member, Oracle, Reorder};

pub(super) fn module(table: &Table) -> Module {
    let families: Vec<_> = table.oracles.iter().map(|oracle| ident(&oracle.family)).collect();
    let dropped = table.dropped.iter().map(|dropped| {
        let (name, until, instead) = (&dropped.name, &dropped.until, &dropped.instead);
        quote!(::scalewright::oracle::Dropped { name: #name, until: #until, instead: #instead })
    });
    let plain = table.schemes.iter().filter(|scheme| scheme.input.is_none());
    let plain = plain.map(|scheme| &scheme.name);
    let items = quote! {
        /// Schemes that ask for no token format.
        static PLAIN_SCHEMES: &[&str] = &[#(#plain),*];

        /// Every family's oracle, sorted by name.
        pub static ORACLES: &[&::scalewright::oracle::Oracle] = &[#(&#families::ORACLE),*];

        /// Names that the engine has dropped: `[[dropped]]`.
        pub static DROPPED: &[::scalewright::oracle::Dropped] = &[#(#dropped),*];
    };
    Module {
        name: "oracle".to_owned(),
        doc: "Which backend runs a family of weights.".to_owned(),
        items,
        children: table.oracles.iter().map(|oracle| one(oracle, table)).collect(),
    }
}

fn one(oracle: &Oracle, table: &Table) -> Module {
    let family = &oracle.family;
    let orders = oracle.orders.iter().map(|one| order(one, table));
    let doc = format!("The oracle of {family} weights: `[oracle.{family}]`.");
    let select_doc =
        format!(" The backend for a layer with {family} weights, and why not the ones before it.");
    let items = quote! {
        #[doc = #select_doc]
        ///
        /// # Errors
        /// [`NoSelection`], with every refusal.
        pub fn select(request: &Request) -> Result<Selection, NoSelection> {
            evaluate(&ORACLE, request)
        }

        /// The orders of the family.
        pub static ORACLE: Oracle =
            Oracle { family: #family, orders: &[#(#orders),*], dropped: super::DROPPED };
    };
    let function = imports(quote!(::scalewright::row), &["functions"], &items);
    let names =
        ["Engine", "Member", "NoSelection", "Oracle", "Order", "Reorder", "Request", "Selection", "evaluate"];
    let names: Vec<_> = names.into_iter().chain(select::NAMES).collect();
    let oracle_names = imports(quote!(::scalewright::oracle), &names, &items);
    let siblings = imports(quote!(super::super), &["backends", "device_groups", "settings"], &items);
    let items = quote!(#function #oracle_names #siblings #items);
    Module { name: family.clone(), doc, items, children: Vec::new() }
}

fn order(order: &EngineOrder, table: &Table) -> TokenStream {
    let (engine, input) = (variant(order.engine), variant(order.input));
    let members = order.members.iter().map(|one| member(one, table));
    let explicit = order.explicit.iter().map(|one| member(one, table));
    let ignored = &order.ignored_names;
    let refuse = select::refusals(&order.refuse, table);
    let rules = order.reorder.iter().map(|one| rule(one, table));
    quote! {
        Order {
            engine: Engine::#engine,
            input: InputRule::#input,
            plain_schemes: super::PLAIN_SCHEMES,
            members: &[#(#members),*],
            explicit: &[#(#explicit),*],
            ignored_names: &[#(#ignored),*],
            refuse: #refuse,
            reorder: &[#(#rules),*],
        }
    }
}

fn member(member: &Member, table: &Table) -> TokenStream {
    let (name, flags) = (&member.name, &member.flags);
    let rows = member.rows.iter().map(|row| ident(&row.name));
    let refuse = select::refusals(&member.refuse, table);
    quote! {
        Member {
            name: #name,
            flags: &[#(#flags),*],
            rows: &[#(&backends::#rows::CONTRACT),*],
            refuse: #refuse,
        }
    }
}

fn rule(rule: &Reorder, table: &Table) -> TokenStream {
    let when = select::when(&rule.when, table);
    let change = match &rule.change {
        Change::Before { member, anchor } => quote!(Change::Before { member: #member, anchor: #anchor }),
        Change::After { member, anchor } => quote!(Change::After { member: #member, anchor: #anchor }),
        Change::First(member) => quote!(Change::First(#member)),
        Change::Last(member) => quote!(Change::Last(#member)),
        Change::Drop(members) => quote!(Change::Drop(&[#(#members),*])),
        Change::Only(members) => quote!(Change::Only(&[#(#members),*])),
        Change::Force(members) => quote!(Change::Force(&[#(#members),*])),
    };
    quote!(Reorder { when: #when, change: #change })
}
