//! The root: the rows as an enum, and as a list for macros.

use quote::quote;

use super::{Door, Module, ident, modules, type_ident};
use crate::emit::cuda::Kernel;
use crate::model::Table;

/// The whole tree.
pub fn root(table: &Table, kernels: &[Kernel], door: Door) -> Module {
    let rows: Vec<_> = table.backends.iter().map(|row| ident(&row.name)).collect();
    let types: Vec<_> = table.backends.iter().map(|row| type_ident(&row.name)).collect();
    let docs = table.backends.iter().map(|row| format!(" `[backend.{}]`", row.name));
    // `#[macro_export]` from a macro's expansion cannot be named by path, and two tables of one crate
    // would clash; there the macro is in scope by text, after the call of `backends!`.
    let export = match door {
        Door::Files => quote!(#[macro_export]),
        Door::Macro => quote!(#[allow(unused_macros, reason = "for `#[backend_test]`")]),
    };
    let items = quote! {
        /// Calls a macro with every row: `for_each_backend!(each)` is
        /// `each! { row_name: RowType, … }`. The types are those of `backends`.
        #export
        macro_rules! for_each_backend {
            ($each:ident) => { $each! { #(#rows: #types,)* } };
        }

        /// A row of the table, at run time.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum BackendId {
            #(#[doc = #docs] #types,)*
        }

        impl BackendId {
            /// Every row, sorted by name.
            pub const ALL: &'static [Self] = &[#(Self::#types),*];

            /// The row's contract.
            pub fn contract(self) -> &'static ::scalewright::backend::Contract {
                // Both are sorted by name.
                backends::CONTRACTS[self as usize]
            }

            /// The row's name in the table.
            pub fn name(self) -> &'static str {
                self.contract().name
            }
        }

        impl ::std::fmt::Display for BackendId {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for BackendId {
            type Err = ::scalewright::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let known = Self::ALL.iter().map(|row| row.name());
                let found = Self::ALL.iter().copied().find(|row| row.name() == word);
                found.ok_or_else(|| ::scalewright::UnknownWord { word: word.to_owned(), known: known.collect() })
            }
        }
    };
    Module {
        name: String::new(),
        doc: "Everything that follows from the table.".to_owned(),
        items,
        children: modules(table, kernels, door),
    }
}
