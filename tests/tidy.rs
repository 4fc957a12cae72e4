//! Rules of the house that the compiler does not enforce: who may use whom, no `bool` in anything
//! public, marked generated files, no paths of somebody's machine. Exceptions stand in `tidy.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use syn::punctuated::Punctuated;
use syn::{Fields, FnArg, GenericArgument, ImplItem, Item, PathArguments, ReturnType, Signature};
use syn::{TraitItem, Type, TypeParamBound, UseTree, Visibility, WherePredicate};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Exceptions {
    public_bool: Vec<PublicBool>,
    uses_codegen: Vec<UsesCodegen>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublicBool {
    /// `file: Item`, as the test reports it.
    item: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsesCodegen {
    file: String,
    reason: String,
}

fn exceptions() -> Exceptions {
    toml::from_str(&fs::read_to_string("tests/tidy.toml").unwrap()).unwrap()
}

/// Fails unless `found` is what `excepted` lists, with reasons.
fn compare<'a>(
    rule: &str,
    found: &BTreeSet<String>,
    excepted: impl Iterator<Item = (&'a String, &'a String)>,
) {
    let mut unused = BTreeSet::new();
    let mut allowed = BTreeSet::new();
    for (name, reason) in excepted {
        assert!(!reason.trim().is_empty(), "tests/tidy.toml gives no reason for {name}");
        allowed.insert(name.clone());
        if !found.contains(name) {
            unused.insert(name);
        }
    }
    let broken: Vec<_> = found.difference(&allowed).collect();
    assert!(broken.is_empty(), "{rule}: {broken:#?}");
    assert!(unused.is_empty(), "tests/tidy.toml excepts what needs no exception: {unused:#?}");
}

/// Every file at or under `path`, slashes in names; empty if there is none. Build output is left out.
fn files(path: &str) -> Vec<String> {
    let mut open = vec![PathBuf::from(path)];
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() && !path.ends_with("target") {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.is_file() {
            found.push(path.to_str().unwrap().replace('\\', "/"));
        }
    }
    found.sort();
    found
}

/// The Rust files of a module, `root` being its path without `.rs`. There has to be one.
fn module(root: &str) -> Vec<String> {
    let own = format!("{root}.rs");
    let mut found = files(root);
    found.extend(Path::new(&own).is_file().then_some(own));
    found.retain(|file| file.ends_with(".rs"));
    assert!(!found.is_empty(), "no module at {root}");
    found
}

/// Paths and names that the code of `source` mentions, comments apart, grouped imports spelled out.
fn mentions(source: &str) -> BTreeSet<String> {
    let code: String =
        source.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    let is_path = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let mut found: BTreeSet<String> =
        code.split(|character| !is_path(character)).map(|word| word.trim_matches(':').to_owned()).collect();
    for import in
        code.split_inclusive(';').filter_map(|statement| statement.rfind("use ").map(|at| &statement[at..]))
    {
        if let Ok(import) = syn::parse_str::<syn::ItemUse>(import) {
            spell_out(&import.tree, String::new(), &mut found);
        }
    }
    found
}

fn spell_out(tree: &UseTree, before: String, found: &mut BTreeSet<String>) {
    let join = |name: &dyn std::fmt::Display| match before.as_str() {
        "" => name.to_string(),
        _ => format!("{before}::{name}"),
    };
    match tree {
        UseTree::Path(path) => spell_out(&path.tree, join(&path.ident), found),
        UseTree::Group(group) => group.items.iter().for_each(|tree| spell_out(tree, before.clone(), found)),
        UseTree::Name(name) => drop(found.insert(join(&name.ident))),
        UseTree::Rename(rename) => drop(found.insert(join(&rename.ident))),
        UseTree::Glob(_) => drop(found.insert(join(&"*"))),
    }
}

/// What `path` names directly below the crate's root, `modules` being the modules there. A path that
/// climbs by `super` counts if it arrives at one of them.
fn below_root<'a>(path: &'a str, modules: &BTreeSet<String>) -> Option<&'a str> {
    let mut segments = path.split("::").peekable();
    match segments.next()? {
        "crate" | "scalewright" => segments.next(),
        "super" => segments.find(|segment| *segment != "super").filter(|name| modules.contains(*name)),
        _ => None,
    }
}

/// The modules below a crate's root.
fn modules(source: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// `file: path` for each path in `files` that `is_forbidden`.
fn offences(files: &[String], is_forbidden: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let mentioned = mentions(&fs::read_to_string(file).unwrap());
        found
            .extend(mentioned.iter().filter(|path| is_forbidden(path)).map(|path| format!("{file}: {path}")));
    }
    found
}

#[test]
fn the_model_uses_nothing_of_ours() {
    let modules = modules("codegen/src");
    let found = offences(&module("codegen/src/model"), |path| {
        below_root(path, &modules).is_some_and(|name| name != "model")
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_checker_never_emits() {
    let modules = modules("codegen/src");
    let found = offences(&module("codegen/src/check"), |path| {
        matches!(below_root(path, &modules), Some("emit" | "output"))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_emitter_is_pure() {
    let found = offences(&module("codegen/src/emit"), |path| {
        ["std::fs", "std::env", "std::time"].iter().any(|outside| path.starts_with(outside))
            || path.split("::").any(|name| name == "HashMap" || name == "HashSet")
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_library_never_uses_the_generator() {
    let is_codegen = |path: &str| path.split("::").any(|name| name == "scalewright_codegen");
    let found =
        files("src").into_iter().filter(|file| !offences(std::slice::from_ref(file), is_codegen).is_empty());
    let exceptions = exceptions().uses_codegen;
    let excepted = exceptions.iter().map(|exception| (&exception.file, &exception.reason));
    compare("src uses codegen", &found.collect(), excepted);
}

#[test]
fn the_reference_shares_no_code_with_the_engines() {
    let modules = modules("src");
    let found = offences(&module("src/reference"), |path| {
        matches!(below_root(path, &modules), Some("generated" | "cpu" | "cuda" | "moe" | "element"))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nothing_public_is_a_bool() {
    let mut found = BTreeSet::new();
    for file in files("src").into_iter().chain(files("generated")).filter(|file| file.ends_with(".rs")) {
        let parsed = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
        found.extend(public_bools(&parsed.items).into_iter().map(|item| format!("{file}: {item}")));
    }
    let exceptions = exceptions().public_bool;
    let excepted = exceptions.iter().map(|exception| (&exception.item, &exception.reason));
    compare("public bools", &found, excepted);
}

/// Names of public functions, fields, constants and aliases whose type mentions `bool`.
fn public_bools(items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |is_bool: bool, name: String| found.extend(is_bool.then_some(name));
    for item in items {
        match item {
            Item::Fn(item) if is_public(&item.vis) => {
                note(in_signature(&item.sig), item.sig.ident.to_string())
            }
            Item::Const(item) if is_public(&item.vis) => note(in_type(&item.ty), item.ident.to_string()),
            Item::Static(item) if is_public(&item.vis) => note(in_type(&item.ty), item.ident.to_string()),
            Item::Type(item) if is_public(&item.vis) => note(in_type(&item.ty), item.ident.to_string()),
            Item::Struct(item) if is_public(&item.vis) => {
                for name in bool_fields(&item.fields, is_public) {
                    note(true, format!("{}.{name}", item.ident));
                }
            }
            Item::Enum(item) if is_public(&item.vis) => {
                for variant in &item.variants {
                    for name in bool_fields(&variant.fields, |_| true) {
                        note(true, format!("{}::{}.{name}", item.ident, variant.ident));
                    }
                }
            }
            Item::Trait(item) if is_public(&item.vis) => {
                for member in &item.items {
                    match member {
                        TraitItem::Fn(member) => {
                            note(in_signature(&member.sig), format!("{}::{}", item.ident, member.sig.ident))
                        }
                        TraitItem::Const(member) => {
                            note(in_type(&member.ty), format!("{}::{}", item.ident, member.ident))
                        }
                        _ => {}
                    }
                }
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let owner = type_name(&item.self_ty);
                for member in &item.items {
                    match member {
                        ImplItem::Fn(member) if is_public(&member.vis) => {
                            note(in_signature(&member.sig), format!("{owner}::{}", member.sig.ident))
                        }
                        ImplItem::Const(member) if is_public(&member.vis) => {
                            note(in_type(&member.ty), format!("{owner}::{}", member.ident))
                        }
                        _ => {}
                    }
                }
            }
            Item::Mod(item) => {
                let content = item.content.as_ref().map_or(&[][..], |(_, items)| items);
                for name in public_bools(content) {
                    note(true, format!("{}::{name}", item.ident));
                }
            }
            _ => {}
        }
    }
    found
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn bool_fields(fields: &Fields, counts: impl Fn(&Visibility) -> bool) -> Vec<String> {
    let name = |(index, field): (usize, &syn::Field)| match &field.ident {
        Some(ident) => ident.to_string(),
        None => index.to_string(),
    };
    fields
        .iter()
        .enumerate()
        .filter(|(_, field)| counts(&field.vis) && in_type(&field.ty))
        .map(name)
        .collect()
}

fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => path.path.segments.last().map_or_else(String::new, |last| last.ident.to_string()),
        _ => "_".to_owned(),
    }
}

/// Whether a signature mentions `bool`; the functions below ask the same of its parts.
fn in_signature(signature: &Signature) -> bool {
    let generics = &signature.generics;
    let inputs = signature.inputs.iter().any(|input| match input {
        FnArg::Typed(input) => in_type(&input.ty),
        FnArg::Receiver(_) => false,
    });
    let clause = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    inputs
        || in_return(&signature.output)
        || generics.type_params().any(|param| in_bounds(&param.bounds))
        || generics.const_params().any(|param| in_type(&param.ty))
        || clause
            .into_iter()
            .any(|predicate| matches!(predicate, WherePredicate::Type(ty) if in_bounds(&ty.bounds)))
}

fn in_return(output: &ReturnType) -> bool {
    matches!(output, ReturnType::Type(_, ty) if in_type(ty))
}

fn in_bounds<P>(bounds: &Punctuated<TypeParamBound, P>) -> bool {
    bounds.iter().any(|bound| matches!(bound, TypeParamBound::Trait(bound) if in_path(&bound.path)))
}

fn in_path(path: &syn::Path) -> bool {
    path.is_ident("bool")
        || path.segments.iter().any(|segment| match &segment.arguments {
            PathArguments::None => false,
            PathArguments::AngleBracketed(arguments) => {
                arguments.args.iter().any(|argument| match argument {
                    GenericArgument::Type(ty) => in_type(ty),
                    GenericArgument::AssocType(assoc) => in_type(&assoc.ty),
                    GenericArgument::Constraint(constraint) => in_bounds(&constraint.bounds),
                    _ => false,
                })
            }
            PathArguments::Parenthesized(call) => {
                call.inputs.iter().any(|input| in_type(&input.ty)) || in_return(&call.output)
            }
        })
}

fn in_type(ty: &Type) -> bool {
    match ty {
        Type::Array(ty) => in_type(&ty.elem),
        Type::FnPtr(ty) => ty.inputs.iter().any(|input| in_type(&input.ty)) || in_return(&ty.output),
        Type::Group(ty) => in_type(&ty.elem),
        Type::ImplTrait(ty) => in_bounds(&ty.bounds),
        Type::Paren(ty) => in_type(&ty.elem),
        Type::Path(ty) => in_path(&ty.path),
        Type::Ptr(ty) => in_type(&ty.elem),
        Type::Reference(ty) => in_type(&ty.elem),
        Type::Slice(ty) => in_type(&ty.elem),
        Type::TraitObject(ty) => in_bounds(&ty.bounds),
        Type::Tuple(ty) => ty.elems.iter().any(in_type),
        _ => false,
    }
}

const MARKER: &str =
    "// @generated by scalewright-codegen from backends.toml. Edit the table and run cargo build.";

#[test]
fn generated_files_are_marked() {
    let files = files("generated");
    assert!(!files.is_empty(), "nothing is generated");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().next(), Some(MARKER), "{file}");
    }
}

/// Whether `text` names an absolute path into one of these folders, which only one machine has.
fn names_a_machine(text: &str) -> bool {
    ["home", "root", "tmp", "Users", "work"].iter().any(|folder| {
        let path = format!("/{folder}/");
        text.match_indices(&path).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            before.is_none_or(|before| before.is_whitespace() || "\"'`(=:".contains(before))
        })
    })
}

#[test]
fn no_file_names_a_machine() {
    let folders = [".ci", "benches", "codegen", "generated", "src", "tests"].into_iter().flat_map(files);
    let own = fs::read_dir(".").unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    for file in folders.map(PathBuf::from).chain(own) {
        // What is not text cannot be read as one.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        assert!(!names_a_machine(&text), "{} names a path of one machine", file.display());
    }
}

#[test]
fn the_rules_find_what_they_are_for() {
    let mentioned = mentions(
        "use std::{fs, time::{self, Instant}};\nuse super::emit; // crate::comment\nlet a = crate::cpu::run();",
    );
    for path in ["std::fs", "std::time::self", "std::time::Instant", "super::emit", "crate::cpu::run"] {
        assert!(mentioned.contains(path), "{path} not in {mentioned:?}");
    }
    assert!(!mentioned.contains("crate::comment"));
    let modules = BTreeSet::from(["emit".to_owned()]);
    assert_eq!(below_root("super::super::emit::cuda", &modules), Some("emit"));
    assert_eq!(below_root("super::word", &modules), None);
    assert_eq!(below_root("crate::word", &modules), Some("word"));

    for public in [
        "pub fn f(on: bool) {}",
        "pub fn f() -> Option<bool> { None }",
        "pub fn f(test: impl Fn(u8) -> bool) {}",
        "pub fn f<F: Fn(bool)>(f: F) {}",
        "pub fn f<const ON: bool>() {}",
        "pub struct S { pub on: [bool; 2] }",
        "pub struct S(pub &'static [(u8, bool)]);",
        "pub struct S; impl S { pub fn f(&self, on: &bool) {} }",
        "pub struct S; impl S { pub const ON: bool = true; }",
        "pub enum E { On { on: bool } }",
        "pub trait T { fn f(on: bool); }",
        "pub const ON: bool = true;",
        "pub type On = fn(bool);",
        "mod inner { pub fn f(on: bool) {} }",
    ] {
        assert_eq!(public_bools(&syn::parse_file(public).unwrap().items).len(), 1, "{public}");
    }
    for private in [
        "fn f(on: bool) {}",
        "pub(crate) fn f(on: bool) {}",
        "pub struct S { on: bool }",
        "pub fn f() { let on = true; }",
    ] {
        assert!(public_bools(&syn::parse_file(private).unwrap().items).is_empty(), "{private}");
    }

    let folder = "home";
    assert!(names_a_machine(&format!("in `/{folder}/me/project`")));
    assert!(!names_a_machine(&format!("https://example.org/{folder}/page")));
}
