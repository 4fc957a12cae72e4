//! The committed `generated/` is what the table says.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::path::Path;

use scalewright_codegen::{Source, check, emit, output};

#[test]
fn generated_follows_from_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (table, folder) = (root.join("backends.toml"), root.join("generated"));
    if !table.exists() {
        eprintln!("skipped: this package stands alone, without a table of its own");
        return;
    }
    let source = Source::read(&table).unwrap();
    let checked = check(&source).unwrap_or_else(|report| panic!("{report}"));
    let difference = output::compare(&emit::files(&checked.table), &folder).unwrap();
    let stale = difference.stale.iter().map(|path| format!("  {} is stale", path.display()));
    let orphaned = difference.orphaned.iter().map(|path| format!("  {} is left over", path.display()));
    let all: Vec<_> = stale.chain(orphaned).collect();
    assert!(all.is_empty(), "run `cargo build` and commit what it changes:\n{}", all.join("\n"));
}
