//! The third door: `backends!` on another crate's table, and that it returns what stands in
//! `generated/`.

mod nested;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nested::{ROOT, cargo, copy_of_crate, said};
use proc_macro2::Literal;
use scalewright_codegen::emit::rust::{Door, root};
use scalewright_codegen::{Source, check, emit};
use syn::{AttrStyle, File, Item};

/// The crate in `tests/own_table` passes its tests and those that were generated for it; an edit of
/// its table rebuilds it; a table that is wrong is an error at the name of the table, with every
/// finding.
#[test]
fn a_crate_with_a_table_of_its_own() {
    let folder = copy_of_crate("own_table");
    let output = cargo(&folder, &["test", "--lib"], &[]);
    let passed = said(&output);
    assert!(output.status.success(), "{passed}");
    let generated =
        ["layouts", "transports", "layer", "mutants"].map(|suite| format!("backends::house::tests::{suite}"));
    let own = [
        "tests::every_row_is_handed_tokens::house",
        "tests::is_known_by_name",
        "tests::quantises_into_its_own_layout",
        "tests::runs_a_layer_behind_its_transport",
        "tests::selects",
    ];
    for test in generated.iter().map(String::as_str).chain(own) {
        assert!(passed.contains(&format!("test {test} ... ok\n")), "{test} did not run:\n{passed}");
    }

    let path = folder.join("table.toml");
    let table = fs::read_to_string(&path).unwrap();
    let wrong = table.replace("encoding = \"as_stored\"", "encoding = \"as_storde\"");
    let wrong = wrong.replace("rounding = \"rceil\"", "rounding = \"rcell\"");
    fs::write(&path, wrong).unwrap();
    let output = cargo(&folder, &["test", "--lib", "--no-run"], &[]);
    let error = said(&output);
    assert!(!output.status.success(), "a wrong table was taken:\n{error}");
    let place = error.find("--> src/lib.rs:3:24\n").unwrap_or_else(|| panic!("not at the name:\n{error}"));
    for finding in ["`as_storde`", "`rcell`", "table.toml:"] {
        assert!(error[..place].contains(finding), "{finding} is not reported:\n{error}");
    }

    fs::write(&path, table).unwrap();
    let output = cargo(&folder, &["test", "--lib", "--no-run"], &[]);
    assert!(output.status.success(), "{}", said(&output));
}

/// The files of the tree below `file`, by path: inline modules become files, as `generated/` has them.
fn split(name: &str, folder: &str, mut file: File, found: &mut BTreeMap<String, File>) {
    let (mut declared, mut items, mut children) = (Vec::new(), Vec::new(), Vec::new());
    for item in file.items {
        match item {
            Item::Mod(mut module) if matches!(module.vis, syn::Visibility::Public(_)) => {
                let (_, content) = module.content.take().expect("modules of an expansion are inline");
                let mut attrs = std::mem::take(&mut module.attrs);
                attrs.iter_mut().for_each(|attr| attr.style = AttrStyle::Inner(Default::default()));
                children.push((
                    module.ident.to_string(),
                    File { shebang: None, attrs, items: content, frontmatter: None },
                ));
                module.semi = Some(Default::default());
                declared.push(Item::Mod(module));
            }
            item => items.push(item),
        }
    }
    declared.append(&mut items);
    file.items = declared;
    let inside = if name.is_empty() { String::new() } else { format!("{folder}{name}/") };
    let path = if children.is_empty() { format!("{folder}{name}.rs") } else { format!("{inside}mod.rs") };
    found.insert(path, file);
    for (name, file) in children {
        split(&name, &inside, file, found);
    }
}

/// What the two doors do differently on purpose: how `for_each_backend!` gets to its callers.
fn without_door(mut file: File) -> File {
    for item in &mut file.items {
        if let Item::Macro(item) = item {
            item.attrs.retain(|attr| !attr.path().is_ident("macro_export") && !attr.path().is_ident("allow"));
        }
    }
    file
}

#[test]
fn the_expansion_of_our_table_is_what_is_generated() {
    let source = Source::read(&Path::new(ROOT).join("backends.toml")).unwrap();
    let table = check(&source).unwrap_or_else(|report| panic!("{report}")).table;
    let kernels = emit::cuda::kernels(&table);
    let expansion: File = syn::parse2(root(&table, &kernels, Door::Macro).into_tokens()).unwrap();
    let mut expanded = BTreeMap::new();
    split("", "", expansion, &mut expanded);
    assert!(expanded.contains_key("backends/flashinfer_cutlass_mxfp4_mxfp8.rs"), "{:?}", expanded.keys());

    let written = emit::files(&table);
    let written: Vec<_> = written.keys().filter(|path| path.ends_with(".rs")).collect();
    assert_eq!(written, expanded.keys().collect::<Vec<_>>());
    for (path, expanded) in expanded {
        let mut text = fs::read_to_string(Path::new(ROOT).join("generated").join(&path)).unwrap();
        // The other door carries the kernels' text.
        for kernel in &kernels {
            let name = format!("include_str!(\"cuda/{}.cu\")", kernel.name);
            text = text.replace(&name, &Literal::string(&kernel.text).to_string());
        }
        let mut generated = syn::parse_file(&text).unwrap();
        if path == "mod.rs" {
            generated.attrs.clear();
        }
        // Through the printer, which adds commas and braces.
        let printed = |file| syn::parse_file(&prettyplease::unparse(&without_door(file))).unwrap();
        let (expanded, generated) = (printed(expanded), printed(generated));
        assert!(expanded == generated, "{path}: the expansion of `backends!` is another");
    }
}
