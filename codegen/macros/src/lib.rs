//! `backends!` and `#[backend_test]` of scalewright.

use std::path::Path;

use proc_macro::TokenStream;
use quote::{quote, quote_spanned};
use scalewright_codegen::emit::rust::{Door, root};
use scalewright_codegen::{Source, check, emit};

/// Everything that follows from a table of your own, in place: `backends!("table.toml")`, the path
/// relative to the crate's root.
///
/// The same modules as scalewright's own `generated/`: `backends`, `layouts`, `formats`, `oracle`,
/// `cuda`, and the enum `BackendId`. Findings in the table are errors at the path; an edit of the
/// table rebuilds.
#[proc_macro]
pub fn backends(input: TokenStream) -> TokenStream {
    let path = syn::parse_macro_input!(input as syn::LitStr);
    expand(&path).unwrap_or_else(|message| quote_spanned!(path.span()=> compile_error!(#message);)).into()
}

fn expand(path: &syn::LitStr) -> Result<proc_macro2::TokenStream, String> {
    let root_folder =
        std::env::var("CARGO_MANIFEST_DIR").map_err(|error| format!("CARGO_MANIFEST_DIR: {error}"))?;
    let file = Path::new(&root_folder).join(path.value());
    let mut source = Source::read(&file).map_err(|error| error.to_string())?;
    source.name = path.value();
    let checked =
        check(&source).map_err(|report| format!("{} is not a table that works\n{report}", path.value()))?;
    let kernels = emit::cuda::kernels(&checked.table);
    let tokens = root(&checked.table, &kernels, Door::Macro).into_tokens();
    let file = file.to_str().ok_or("the path of the table is not UTF-8")?;
    Ok(quote! {
        // Makes the compiler watch the table.
        const _: &[u8] = include_bytes!(#file);
        #tokens
    })
}

/// Runs a test once for each row of the table in scope:
///
/// ```ignore
/// use scalewright::for_each_backend;
/// use scalewright::generated::backends::*;
///
/// #[backend_test]
/// fn has_a_name<B: Backend>() {
///     assert!(!B::CONTRACT.name.is_empty());
/// }
/// ```
///
/// makes the tests `has_a_name::flashinfer_cutlass_mxfp4_mxfp8` and so on. The macro
/// `for_each_backend` and the types of the rows have to be in scope.
#[proc_macro_attribute]
pub fn backend_test(_: TokenStream, item: TokenStream) -> TokenStream {
    let function = syn::parse_macro_input!(item as syn::ItemFn);
    let one_type = function.sig.generics.type_params().count() == 1 && function.sig.inputs.is_empty();
    if !one_type {
        let message = "a backend test is `fn name<B: Backend>()`: one type, no arguments";
        return syn::Error::new_spanned(&function.sig, message).to_compile_error().into();
    }
    let (name, output) = (&function.sig.ident, &function.sig.output);
    quote! {
        #[cfg(test)]
        #function

        #[cfg(test)]
        mod #name {
            use super::*;

            macro_rules! each {
                ($($row:ident: $ty:ident,)*) => {
                    $(#[test] fn $row() #output { super::#name::<$ty>() })*
                };
            }
            for_each_backend!(each);
        }
    }
    .into()
}
