//! Layouts as types and values; orders and payloads as values.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::{Module, count, doc, ident, imports, option, static_ident, type_ident, variant};
use crate::model::digits::{Axis, Digit, Number};
use crate::model::{Fit, Layout, Multiples, Order, Payload, Table};

pub(super) fn module(table: &Table) -> Module {
    let layouts = table.layouts.iter().map(|layout| one_layout(layout));
    let orders = table.orders.iter().map(|order| one_order(order));
    let payloads = table.payloads.iter().map(|payload| one_payload(payload));
    let layout_names = table.layouts.iter().map(|layout| static_ident(&layout.name));
    let order_names = table.orders.iter().map(|order| order_ident(&order.name));
    let payload_names = table.payloads.iter().map(|payload| payload_ident(&payload.name));
    let items = quote! {
        #(#layouts)*
        #(#orders)*
        #(#payloads)*

        /// Every scale layout of the table, sorted by name.
        pub static LAYOUTS: &[&Layout] = &[#(&#layout_names),*];

        /// Every order of the table, sorted by name.
        pub static ORDERS: &[&Order] = &[#(&#order_names),*];

        /// Every payload of the table, sorted by name.
        pub static PAYLOADS: &[&Payload] = &[#(&#payload_names),*];
    };
    let digits = imports(quote!(::scalewright::digits), &["Axis", "Digit"], &items);
    let scale = imports(quote!(::scalewright::format), &["ScaleType"], &items);
    let names =
        ["Extent", "Fit", "Half", "Layout", "Order", "Payload", "PayloadWord", "PerToken", "ScaleLayout"];
    let layout = imports(quote!(::scalewright::layout), &names, &items);
    let items = quote!(#digits #scale #layout #items);
    Module {
        name: "layouts".to_owned(),
        doc: "Scale layouts, orders of weight rows and payloads.".to_owned(),
        items,
        children: Vec::new(),
    }
}

/// The static of an order. Orders and payloads have names of their own, which may be a layout's.
pub(super) fn order_ident(name: &str) -> Ident {
    format_ident!("ORDER_{}", super::static_name(name))
}

/// The static of a payload.
pub(super) fn payload_ident(name: &str) -> Ident {
    format_ident!("PAYLOAD_{}", super::static_name(name))
}

fn one_layout(layout: &Layout) -> TokenStream {
    let (name, ty, value) = (&layout.name, type_ident(&layout.name), static_ident(&layout.name));
    let doc = doc(&describe(layout));
    let value_doc = format!(" [`enum@{ty}`] as a value.");
    let (digits, fit) = (digits(&layout.number), fit(layout.fit));
    let scales = layout.scales.iter().map(|scale| variant(*scale));
    let aliases = &layout.aliases;
    let offset = offset(&layout.number);
    let locate = locate(&layout.number);
    let physical = if uses_extent(&layout.number) { quote!(physical) } else { quote!(_) };
    let per_token = layout.is_per_token().then(|| {
        quote! {
            #[diagnostic::do_not_recommend]
            impl PerToken for #ty {}
        }
    });
    quote! {
        #doc
        #[derive(Debug, Clone, Copy)]
        pub enum #ty {}

        #[diagnostic::do_not_recommend]
        impl ::scalewright::__private::Sealed for #ty {}

        #[diagnostic::do_not_recommend]
        impl ScaleLayout for #ty {
            const LAYOUT: &'static Layout = &#value;

            #[inline]
            fn offset(row: usize, col: usize, #physical: Extent) -> usize {
                #offset
            }

            #[inline]
            fn locate(offset: usize, #physical: Extent) -> (usize, usize) {
                #locate
            }
        }

        #per_token

        #[doc = #value_doc]
        pub static #value: Layout = Layout {
            name: #name,
            digits: &[#(#digits),*],
            fit: #fit,
            scales: &[#(ScaleType::#scales),*],
            aliases: &[#(#aliases),*],
            offset: <#ty as ScaleLayout>::offset,
            locate: <#ty as ScaleLayout>::locate,
        };
    }
}

fn one_order(order: &Order) -> TokenStream {
    let (name, value, multiple) = (&order.name, order_ident(&order.name), count(order.multiple));
    let doc = format!(" `[order.{name}]`: {}.", list(&order.number));
    let digits = digits(&order.number);
    let first = super::option(order.first.map(|first| {
        let first = variant(first);
        quote!(Half::#first)
    }));
    quote! {
        #[doc = #doc]
        pub static #value: Order =
            Order { name: #name, digits: &[#(#digits),*], first: #first, multiple: #multiple };
    }
}

fn one_payload(payload: &Payload) -> TokenStream {
    let (name, value) = (&payload.name, payload_ident(&payload.name));
    let doc = format!(" `[payload.{name}]`: {}.", list(&payload.number));
    let (digits, fit) = (digits(&payload.number), fit(payload.fit));
    let word = option(payload.word.map(|word| {
        let word = variant(word);
        quote!(PayloadWord::#word)
    }));
    quote! {
        #[doc = #doc]
        pub static #value: Payload =
            Payload { name: #name, digits: &[#(#digits),*], fit: #fit, word: #word };
    }
}

fn fit(fit: Fit) -> TokenStream {
    let Multiples { row, col } = fit.multiples();
    let (row, col) = (count(row), count(col));
    match fit {
        Fit::Pad(_) => quote!(Fit::Pad(Extent { rows: #row, cols: #col })),
        Fit::Divide(_) => quote!(Fit::Divide(Extent { rows: #row, cols: #col })),
    }
}

fn digits(number: &Number) -> impl Iterator<Item = TokenStream> {
    number.digits().iter().map(|digit| {
        let axis = match digit.axis {
            Axis::Row => quote!(Axis::Row),
            Axis::Col => quote!(Axis::Col),
            Axis::Half => quote!(Axis::Half),
        };
        let divisor = count(digit.divisor);
        let radix = super::option(digit.radix.map(count).map(|radix| quote!(#radix)));
        quote!(Digit::new(#axis, #divisor, #radix))
    })
}

fn list(number: &Number) -> String {
    let digits: Vec<_> = number.digits().iter().map(|digit| format!("`{digit}`")).collect();
    digits.join(" · ")
}

/// The documentation of a layout, with the offsets of its first rows as a picture.
fn describe(layout: &Layout) -> String {
    let Multiples { row, col } = layout.fit.multiples();
    let (rows, cols) = (8usize.next_multiple_of(row), 8usize.next_multiple_of(col));
    let mut doc = format!("`[layout.{}]`: {}.\n\n", layout.name, list(&layout.number));
    match layout.fit {
        Fit::Pad(Multiples { row: 1, col: 1 }) => doc += "Takes any size.",
        Fit::Pad(_) => doc += &format!("Rows are padded to {row}, columns to {col}."),
        Fit::Divide(_) => doc += &format!("Refuses rows that {row} and columns that {col} does not divide."),
    }
    if !layout.aliases.is_empty() {
        // An alias is somebody else's text; escaped, it cannot end the comment.
        let aliases = layout.aliases.iter().map(|alias| format!("`{}`", alias.escape_debug()));
        doc += &format!(" Also called {}.", aliases.collect::<Vec<_>>().join(", "));
    }
    doc += &format!(" In a box of {rows} × {cols} the first scales are stored at\n\n```text\n");
    for r in 0..rows.min(4) {
        let offsets =
            (0..cols.min(8)).map(|c| format!("{:>5}", layout.number.encode([r, c, 0], [rows, cols, 1])));
        doc += &format!("row {r}: {}\n", offsets.collect::<Vec<_>>().join(" "));
    }
    doc + "```"
}

/// Whether the map needs the physical size: the outermost digit's radix multiplies nothing.
fn uses_extent(number: &Number) -> bool {
    number.digits().iter().skip(1).any(|digit| digit.radix.is_none())
}

fn radix(digit: &Digit) -> TokenStream {
    if let Some(radix) = digit.radix.map(count) {
        return quote!(#radix);
    }
    let (extent, divisor) = (axis_extent(digit.axis), count(digit.divisor));
    if digit.divisor == 1 { extent } else { quote!((#extent / #divisor)) }
}

/// The physical size along `axis`: `physical.rows` or `physical.cols`.
fn axis_extent(axis: Axis) -> TokenStream {
    let field = format_ident!("{}s", axis.name());
    quote!(physical.#field)
}

fn term(digit: &Digit) -> TokenStream {
    let axis = ident(digit.axis.name());
    let (divisor, radix) = (count(digit.divisor), digit.radix.map(count));
    match (digit.divisor, radix) {
        (1, None) => quote!(#axis),
        (1, Some(radix)) => quote!(#axis % #radix),
        (_, None) => quote!(#axis / #divisor),
        (_, Some(radix)) => quote!(#axis / #divisor % #radix),
    }
}

/// `((row / 128 * …) * 32 + row % 32) …`, one digit a line.
fn offset(number: &Number) -> TokenStream {
    let Some((outermost, inner)) = number.digits().split_first() else { return quote!(0) };
    let outermost = term(outermost);
    let Some((last, middle)) = inner.split_last() else { return outermost };
    if middle.is_empty() {
        let (radix, term) = (radix(last), term(last));
        return quote!(#outermost * #radix + #term);
    }
    let outermost = quote!(let offset = #outermost;);
    let middle = middle.iter().map(|digit| {
        let (radix, term) = (radix(digit), term(digit));
        quote!(let offset = offset * #radix + #term;)
    });
    let (radix, term) = (radix(last), term(last));
    quote!(#outermost #(#middle)* offset * #radix + #term)
}

/// The inverse: takes the digits off, innermost first.
fn locate(number: &Number) -> TokenStream {
    let digits = number.digits();
    let mut body = TokenStream::new();
    for (index, digit) in digits.iter().enumerate().skip(1).rev() {
        let (name, radix) = (format_ident!("digit_{index}"), radix(digit));
        body.extend(quote! {
            let #name = offset % #radix;
            let offset = offset / #radix;
        });
    }
    let axis = |axis: Axis| {
        let terms =
            digits.iter().enumerate().filter(|(_, digit)| digit.axis == axis).map(|(index, digit)| {
                let name = if index == 0 { ident("offset") } else { format_ident!("digit_{index}") };
                let divisor = count(digit.divisor);
                if digit.divisor == 1 { quote!(#name) } else { quote!(#name * #divisor) }
            });
        quote!(#(#terms)+*)
    };
    let (row, col) = (axis(Axis::Row), axis(Axis::Col));
    quote!(#body (#row, #col))
}
