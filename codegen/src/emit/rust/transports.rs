//! What each transport does for the rows: one list for all rows that are handed the same.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{Module, imports, static_ident};
use crate::model::words::{QuantizeAt, ScaleSource};
use crate::model::{Backend, Delivery, Input, Known, Scales, Table};

pub(super) fn module(table: &Table) -> Module {
    let lists: BTreeMap<Ident, &Backend> =
        table.backends.iter().map(|row| (list_ident(row), &**row)).collect();
    let lists = lists.into_iter().map(|(name, row)| {
        let deliveries = table.transports.iter().map(|transport| {
            let (name, delivery) = (&transport.name, delivery(&transport.delivery(row)));
            quote!((#name, #delivery))
        });
        let doc = format!(" Rows that are handed {}.", handed(&row.gemm1).join(" "));
        quote! {
            #[doc = #doc]
            pub static #name: &[(&str, Delivery)] = &[#(#deliveries),*];
        }
    });
    let items = quote!(#(#lists)*);
    let delivery = imports(quote!(::scalewright::backend), &["Delivery"], &items);
    let siblings = imports(quote!(super), &["layouts"], &items);
    Module {
        name: "transports".to_owned(),
        doc: "What each transport does for rows.".to_owned(),
        items: quote!(#delivery #siblings #items),
        children: Vec::new(),
    }
}

/// The name of a row's list.
pub(super) fn list_ident(row: &Backend) -> Ident {
    static_ident(&handed(&row.gemm1).join("_"))
}

/// All that a transport looks at, in words.
fn handed(input: &Input) -> Vec<&str> {
    let mut words: Vec<_> = input.handed().iter().map(|format| format.name.as_str()).collect();
    words.push(match &input.layout {
        Known::Is(Scales::At { prepared, .. }) => &prepared.name,
        Known::Is(Scales::Unscaled) => "unscaled",
        Known::Vendor(_) => "vendor",
    });
    words.extend((input.source == Some(ScaleSource::Dynamic)).then_some("dynamic"));
    words.extend((input.quantize == Some(QuantizeAt::Expert)).then_some("by_experts"));
    words
}

fn delivery(delivery: &Delivery) -> TokenStream {
    match delivery {
        Delivery::Local => quote!(Delivery::Local),
        Delivery::Direct(None) => quote!(Delivery::Direct { wire: &::scalewright::layout::UNSCALED }),
        Delivery::Direct(Some(wire)) => {
            let wire = static_ident(&wire.name);
            quote!(Delivery::Direct { wire: &layouts::#wire })
        }
        Delivery::Convert { wire, prepared } => {
            let (wire, prepared) = (static_ident(&wire.name), static_ident(&prepared.name));
            quote!(Delivery::Convert { wire: &layouts::#wire, prepared: &layouts::#prepared })
        }
        Delivery::QuantizeAfter => quote!(Delivery::QuantizeAfter),
        Delivery::Refused(reason) => quote!(Delivery::Refused { reason: #reason }),
    }
}
