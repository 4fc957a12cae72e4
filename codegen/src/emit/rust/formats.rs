//! Formats as types and values.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Module, count, imports, option, static_ident, type_ident, variant};
use crate::model::{Format, Reach, Table};

pub(super) fn module(table: &Table) -> Module {
    let formats = table.formats.iter().map(|format| one(format));
    let statics = table.formats.iter().map(|format| static_ident(&format.name));
    let items = quote! {
        #(#formats)*

        /// Every format of the table, sorted by name.
        pub static FORMATS: &[&FormatSpec] = &[#(&#statics),*];
    };
    let names = ["BlockScale", "ElementType", "Format", "FormatSpec", "Reach", "ScaleType"];
    let imports = imports(quote!(::scalewright::format), &names, &items);
    let items = quote!(#imports #items);
    Module { name: "formats".to_owned(), doc: "Number formats.".to_owned(), items, children: Vec::new() }
}

fn one(format: &Format) -> TokenStream {
    let (name, ty, value) = (&format.name, type_ident(&format.name), static_ident(&format.name));
    let doc = format!(" `[format.{name}]`");
    let value_doc = format!(" [`enum@{ty}`] as a value.");
    let element = variant(format.element);
    let block = option(format.block.map(|block| {
        let (scale, rows, cols) = (variant(block.scale), reach(block.rows), reach(block.cols));
        let zero_point = option(block.zero_point.map(|zero_point| {
            let zero_point = variant(zero_point);
            quote!(ElementType::#zero_point)
        }));
        quote!(BlockScale { scale: ScaleType::#scale, rows: #rows, cols: #cols, zero_point: #zero_point })
    }));
    let global = option(format.global.map(|global| {
        let global = variant(global);
        quote!(ScaleType::#global)
    }));
    quote! {
        #[doc = #doc]
        #[derive(Debug, Clone, Copy)]
        pub enum #ty {}

        #[diagnostic::do_not_recommend]
        impl ::scalewright::__private::Sealed for #ty {}

        impl Format for #ty {
            const SPEC: &'static FormatSpec = &#value;
        }

        #[doc = #value_doc]
        pub static #value: FormatSpec = FormatSpec {
            name: #name,
            element: ElementType::#element,
            block: #block,
            global: #global,
        };
    }
}

fn reach(reach: Reach) -> TokenStream {
    match reach {
        Reach::Of(elements) => {
            let elements = count(elements);
            quote!(Reach::Of(#elements))
        }
        Reach::Whole => quote!(Reach::Whole),
    }
}
