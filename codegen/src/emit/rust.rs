//! Rust: one tree of modules, printed to files or returned as tokens.

mod backends;
mod cuda;
mod formats;
mod layouts;
mod oracle;
mod root;
mod select;
mod transports;

use std::collections::BTreeSet;

use proc_macro2::{Ident, Literal, Span, TokenStream, TokenTree};
use quote::quote;

use super::cuda::Kernel;
use super::{MARKER, Output};
use crate::model::Table;
use crate::model::names::{static_name, type_name};
use crate::model::words::Word;

pub use root::root;

/// Where the tokens go. The two doors differ in two things: files name the kernels beside them where
/// tokens carry the text, and only files can export a macro by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Into `generated/`.
    Files,
    /// Back to the caller of `backends!`.
    Macro,
}

/// A module of the tree.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its name; empty for the root.
    pub name: String,
    /// What is in it, as `//!` lines.
    pub doc: String,
    /// Its items, modules aside.
    pub items: TokenStream,
    /// Its modules.
    pub children: Vec<Module>,
}

impl Module {
    /// The module's content with its children inside.
    pub fn into_tokens(self) -> TokenStream {
        let items = self.items;
        let children = self.children.into_iter().map(|child| {
            let (name, doc) = (ident(&child.name), doc(&child.doc));
            let content = child.into_tokens();
            quote! {
                #doc
                pub mod #name { #content }
            }
        });
        quote! { #items #(#children)* }
    }

    /// The module's files below `folder`.
    pub fn into_files(self, folder: &str, output: &mut Output) {
        let children = self.children.iter().map(|child| ident(&child.name));
        let items = &self.items;
        let text = print(&self.doc, quote! { #(pub mod #children;)* #items });
        if self.children.is_empty() {
            output.insert(format!("{folder}{}.rs", self.name), text);
            return;
        }
        let folder = if self.name.is_empty() { String::new() } else { format!("{folder}{}/", self.name) };
        output.insert(format!("{folder}mod.rs"), text);
        for child in self.children {
            child.into_files(&folder, output);
        }
    }
}

/// A formatted file with its marker and documentation.
fn print(doc: &str, items: TokenStream) -> String {
    let file: syn::File = syn::parse2(items).expect("emitted tokens are items");
    let doc: String = doc.lines().map(|line| format!("//! {line}").trim_end().to_owned() + "\n").collect();
    format!("{MARKER}\n\n{doc}\n{}", spaced(&prettyplease::unparse(&file)))
}

/// How lines that begin an item begin.
const ITEMS: [&str; 9] = ["///", "#[", "pub ", "fn ", "impl ", "use ", "mod ", "macro_rules!", "const "];

/// A blank line between items, which the printer leaves out.
fn spaced(text: &str) -> String {
    let mut spaced = String::new();
    let (mut previous, mut start) = ("", "");
    for line in text.lines() {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let begins = ITEMS.iter().any(|item| line.trim_start().starts_with(item));
        let ended = previous.ends_with(['}', ';']) && indent(previous) == indent(line);
        let same_kind = ["use ", "pub mod ", "pub use "]
            .iter()
            .any(|kind| start.starts_with(kind) && line.starts_with(kind));
        if begins && ended && !same_kind {
            spaced.push('\n');
        }
        if begins {
            start = line;
        }
        spaced.push_str(line);
        spaced.push('\n');
        previous = line;
    }
    spaced
}

/// Documentation, one attribute a line.
fn doc(text: &str) -> TokenStream {
    let lines = text.lines().map(|line| if line.is_empty() { String::new() } else { format!(" {line}") });
    quote!(#(#[doc = #lines])*)
}

/// A number without its type.
fn count(number: usize) -> Literal {
    Literal::usize_unsuffixed(number)
}

/// `use path::{…};` with those of `names` that `items` mention.
fn imports(path: TokenStream, names: &[&str], items: &TokenStream) -> TokenStream {
    let mut mentioned = BTreeSet::new();
    collect(items.clone(), &mut mentioned);
    // `Activation as Function`: the name that is mentioned is the last.
    let used =
        names.iter().filter(|name| name.rsplit(' ').next().is_some_and(|name| mentioned.contains(name)));
    let used: Vec<TokenStream> = used.map(|name| name.parse().expect("an import is tokens")).collect();
    if used.is_empty() { TokenStream::new() } else { quote!(use #path::{#(#used),*};) }
}

fn collect(tokens: TokenStream, idents: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                idents.insert(ident.to_string());
            }
            TokenTree::Group(group) => collect(group.stream(), idents),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn ident(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

fn type_ident(name: &str) -> Ident {
    ident(&type_name(name))
}

fn static_ident(name: &str) -> Ident {
    ident(&static_name(name))
}

/// The runtime's enum variant for a word of the table.
fn variant<W: Word>(word: W) -> Ident {
    ident(word.variant())
}

fn option(value: Option<TokenStream>) -> TokenStream {
    value.map_or_else(|| quote!(None), |value| quote!(Some(#value)))
}

/// All modules below the root.
fn modules(table: &Table, kernels: &[Kernel], door: Door) -> Vec<Module> {
    vec![
        backends::module(table),
        cuda::module(kernels, door),
        select::device_groups(table),
        select::experts(table),
        formats::module(table),
        layouts::module(table),
        oracle::module(table),
        select::settings(table),
        transports::module(table),
    ]
}
