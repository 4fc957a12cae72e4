//! The oracles: orders and rules as const data, one `select` a family.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Module, ident, imports, option, variant};
use crate::model::words::Word;
use crate::model::{Change, EngineOrder, Oracle, Reorder, Table};

pub(super) fn module(table: &Table) -> Module {
    let families: Vec<_> = table.oracles.iter().map(|oracle| ident(&oracle.family)).collect();
    let items = quote! {
        /// Every family's oracle, sorted by name.
        pub static ORACLES: &[&::scalewright::oracle::Oracle] = &[#(&#families::ORACLE),*];
    };
    Module {
        name: "oracle".to_owned(),
        doc: "Which backend runs a family of weights.".to_owned(),
        items,
        children: table.oracles.iter().map(one).collect(),
    }
}

fn one(oracle: &Oracle) -> Module {
    let family = &oracle.family;
    let orders = oracle.orders.iter().map(order);
    let doc = format!("The oracle of {family} weights: `[oracle.{family}]`.");
    let select_doc =
        format!(" The backend for a layer with {family} weights, and why not the ones before it.");
    let items = quote! {
        #[doc = #select_doc]
        ///
        /// # Errors
        /// [`NothingFits`], with every refusal.
        pub fn select(request: &Request) -> Result<Selection, NothingFits> {
            evaluate(&ORACLE, request)
        }

        /// The orders of the family.
        pub static ORACLE: Oracle = Oracle { family: #family, orders: &[#(#orders),*] };
    };
    let activation = imports(quote!(::scalewright::backend), &["Activation"], &items);
    let names = [
        "Change",
        "Device",
        "Engine",
        "NothingFits",
        "Oracle",
        "Order",
        "Reorder",
        "Request",
        "Selection",
        "Situation",
        "evaluate",
    ];
    let oracle_names = imports(quote!(::scalewright::oracle), &names, &items);
    let backends = imports(quote!(super::super), &["backends"], &items);
    let items = quote!(#activation #oracle_names #backends #items);
    Module { name: family.clone(), doc, items, children: Vec::new() }
}

fn order(order: &EngineOrder) -> TokenStream {
    let engine = variant(order.engine);
    let rows = order.rows.iter().map(|row| ident(row));
    let rules = order.reorder.iter().map(rule);
    quote! {
        Order {
            engine: Engine::#engine,
            rows: &[#(&backends::#rows::CONTRACT),*],
            reorder: &[#(#rules),*],
        }
    }
}

fn rule(rule: &Reorder) -> TokenStream {
    let devices = words("Device", rule.devices.as_deref());
    let activations = words("Activation", rule.activations.as_deref());
    let change = match &rule.change {
        Change::Before { row, anchor } => quote!(Change::Before { row: #row, anchor: #anchor }),
        Change::After { row, anchor } => quote!(Change::After { row: #row, anchor: #anchor }),
        Change::First(row) => quote!(Change::First(#row)),
        Change::Last(row) => quote!(Change::Last(#row)),
        Change::Drop(rows) => quote!(Change::Drop(&[#(#rows),*])),
        Change::Only(rows) => quote!(Change::Only(&[#(#rows),*])),
    };
    quote!(Reorder { when: Situation { devices: #devices, activations: #activations }, change: #change })
}

fn words<W: Word>(ty: &str, words: Option<&[W]>) -> TokenStream {
    let ty = ident(ty);
    option(words.map(|words| {
        let words = words.iter().map(|word| variant(*word));
        quote!(&[#(#ty::#words),*])
    }))
}
