//! Transports, and what each does for the rows: one list for all rows that are handed the same.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{Module, count, imports, select, static_ident, variant};
use crate::model::transport::{Delivery, Transport};
use crate::model::words::{GroupingWord, QuantizeAt, ScaleSource, Word};
use crate::model::{Backend, Known, Layout, Scales, Table};

pub(super) fn module(table: &Table) -> Module {
    let names = table.transports.iter().map(|transport| static_ident(&transport.name));
    let transports = table.transports.iter().map(|transport| one(transport, table));
    let lists: BTreeMap<Ident, &Backend> =
        table.backends.iter().map(|row| (list_ident(row), &**row)).collect();
    let lists = lists.into_iter().map(|(name, row)| list(name, row, table));
    let items = quote! {
        #(#transports)*

        /// Every transport, sorted by name.
        pub static TRANSPORTS: &[&Transport] = &[#(&#names),*];

        #(#lists)*
    };
    let names = ["Grouped", "Route", "Transport"];
    let names = imports(quote!(::scalewright::transport), &names, &items);
    let oracle = imports(quote!(::scalewright::oracle), &["All2all", "Device"], &items);
    let unscaled = imports(quote!(::scalewright::layout), &["UNSCALED"], &items);
    let siblings = imports(quote!(super), &["device_groups", "layouts"], &items);
    Module {
        name: "transports".to_owned(),
        doc: "What each transport does for rows.".to_owned(),
        items: quote!(#names #oracle #unscaled #siblings #items),
        children: Vec::new(),
    }
}

fn one(transport: &Transport, table: &Table) -> TokenStream {
    let (ident, name) = (static_ident(&transport.name), &transport.name);
    let doc = format!(" `[transport.{name}]`");
    let all2all = transport.all2all.iter().map(|all2all| variant(*all2all));
    let grouped = variant(transport.grouping);
    let devices = select::devices(transport.devices.as_ref(), table);
    let hidden_sizes = transport.hidden_sizes.iter().map(|size| count(*size));
    quote! {
        #[doc = #doc]
        pub static #ident: Transport = Transport {
            name: #name,
            all2all: &[#(All2all::#all2all),*],
            hands_over: Grouped::#grouped,
            devices: #devices,
            hidden_sizes: &[#(#hidden_sizes),*],
        };
    }
}

fn list(name: Ident, row: &Backend, table: &Table) -> TokenStream {
    let routes = table.transports.iter().map(|transport| route(transport, row));
    let doc = format!(" Rows that are handed {}.", handed(row).join(" "));
    quote! {
        #[doc = #doc]
        pub static #name: &[Route] = &[#(#routes),*];
    }
}

/// The name of a row's list.
pub(super) fn list_ident(row: &Backend) -> Ident {
    static_ident(&format!("to_{}", handed(row).join("_")))
}

/// All that a transport looks at, in words.
fn handed(row: &Backend) -> Vec<&str> {
    let input = &row.gemm1;
    let mut words: Vec<_> = input.handed().iter().map(|format| format.name.as_str()).collect();
    words.push(match &input.layout {
        Known::Is(Scales::At { prepared, .. }) => &prepared.name,
        Known::Is(Scales::Unscaled) => "unscaled",
        Known::Vendor(_) => "vendor",
    });
    words.extend((input.source == Some(ScaleSource::Dynamic)).then_some("dynamic"));
    words.extend((input.quantize == Some(QuantizeAt::Expert)).then_some("by_experts"));
    words.extend((row.reads_grouped_as() == GroupingWord::Slots).then(|| GroupingWord::Slots.name()));
    words
}

fn route(transport: &Transport, row: &Backend) -> TokenStream {
    let (delivery, hidden_multiple) = transport.delivery(row);
    let transport = static_ident(&transport.name);
    let layout = |layout: &Layout| {
        let layout = static_ident(&layout.name);
        quote!(&layouts::#layout)
    };
    let route = match delivery {
        Delivery::Local => quote!(Route::local(&#transport)),
        Delivery::Direct(None) => quote!(Route::direct(&#transport, &UNSCALED)),
        Delivery::Direct(Some(wire)) => {
            let wire = layout(&wire);
            quote!(Route::direct(&#transport, #wire))
        }
        Delivery::Convert { wire, prepared } => {
            let (wire, prepared) = (layout(&wire), layout(&prepared));
            quote!(Route::convert(&#transport, #wire, #prepared))
        }
        Delivery::QuantizeAfter => quote!(Route::quantize_after(&#transport)),
        Delivery::Refused(reason) => quote!(Route::refused(&#transport, #reason)),
    };
    let multiple = (hidden_multiple != 1).then(|| {
        let multiple = count(hidden_multiple);
        quote!(.hidden_multiple(#multiple))
    });
    quote!(#route #multiple)
}
