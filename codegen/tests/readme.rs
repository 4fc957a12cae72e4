//! The two long comments about the table's keys name all of them.

use std::collections::BTreeSet;
use std::path::Path;

use scalewright_codegen::model::words::{All2all, Device, Library, RoutingMethod, Word};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The keys of the schema: the fields of its records.
fn keys() -> BTreeSet<String> {
    let schema = std::fs::read_to_string(root().join("src/schema.rs")).unwrap();
    let records =
        schema.split("\nrecord! {").skip(1).map(|text| text.split("\n}").next().unwrap_or_default());
    let fields = records.flat_map(str::lines).filter_map(|line| line.strip_prefix("        "));
    let keys = fields.filter_map(|line| line.split_once(": ")).map(|(key, _)| key.trim_start_matches("r#"));
    keys.map(str::to_owned).collect()
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect()
}

fn missing<'a>(keys: &'a BTreeSet<String>, text: &str) -> Vec<&'a str> {
    let words = words(text);
    keys.iter().map(String::as_str).filter(|key| !words.contains(key)).collect()
}

#[test]
fn the_readme_names_every_key() {
    let keys = keys();
    for key in ["digits", "spread_ranges", "move", "vendor", "data_parallel_max"] {
        assert!(keys.contains(key), "the schema is not read as it is written: no {key} in {keys:?}");
    }
    assert_eq!(missing(&keys, &code()), [""; 0], "README.md does not name them as code");
}

/// Everything that the README shows as code.
fn code() -> String {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    readme.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

fn names<W: Word>() -> impl Iterator<Item = String> {
    W::ALL.iter().map(|word| word.name().to_owned())
}

#[test]
fn the_readme_names_every_word_of_the_oracles() {
    let words = names::<Device>().chain(names::<Library>());
    let words = words.chain(names::<RoutingMethod>()).chain(names::<All2all>()).collect();
    assert_eq!(missing(&words, &code()), [""; 0], "README.md does not name them as code");
}

#[test]
fn the_comment_of_the_table_names_every_key() {
    let Ok(table) = std::fs::read_to_string(root().join("../backends.toml")) else { return };
    let comment: Vec<_> = table.lines().take_while(|line| line.is_empty() || line.starts_with('#')).collect();
    assert_eq!(missing(&keys(), &comment.join("\n")), [""; 0], "the comment block of backends.toml");
}

#[test]
fn the_finding_that_the_readme_shows_is_one() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let report = std::fs::read_to_string(root().join("tests/reject/E0205.stderr")).unwrap();
    let shown = report.replace("E0205.toml", "backends.toml");
    assert!(readme.contains(&format!("```text\n{shown}```\n")), "README.md does not show\n{shown}");
}
