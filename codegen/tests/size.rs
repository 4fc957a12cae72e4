//! Code grows with distinct layouts and formats, not with rows.

use std::path::Path;

use scalewright_codegen::{Source, check, emit};

/// The most bytes of Rust that a row may add whose formats and layouts are there already.
const MOST: usize = 8 * 1024;

fn emitted(text: &str) -> emit::Output {
    let checked = check(&Source::new("backends.toml", text)).unwrap_or_else(|report| panic!("{report}"));
    emit::files(&checked.table)
}

/// The lines of row `name` as those of a row `again`.
fn copied(text: &str, name: &str) -> String {
    let of_row = |header: &str| {
        let path = header.trim_matches(['[', ']']);
        path == format!("backend.{name}") || path.starts_with(&format!("backend.{name}."))
    };
    let mut inside = false;
    let mut copy = String::from("\n");
    for line in text.lines() {
        if line.starts_with('[') {
            inside = of_row(line.split(['#', ' ']).next().unwrap_or(line));
        }
        if inside {
            copy += &line.replace(&format!("backend.{name}"), "backend.again");
            copy.push('\n');
        }
    }
    copy
}

#[test]
fn a_row_of_known_parts_adds_little_rust_and_no_cuda() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let before = emitted(&text);
    let bytes = |output: &emit::Output| -> usize {
        output.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(_, text)| text.len()).sum()
    };
    let kernels = |output: &emit::Output| output.keys().filter(|path| path.ends_with(".cu")).count();
    let rows = before.keys().filter_map(|path| path.strip_prefix("backends/")?.strip_suffix(".rs"));
    for row in rows.filter(|row| *row != "mod") {
        let after = emitted(&(text.clone() + &copied(&text, row)));
        assert!(after.contains_key("backends/again.rs"), "{row} was not copied");
        let added = bytes(&after) - bytes(&before);
        assert!(added < MOST, "another row like {row} adds {added} bytes of Rust");
        assert_eq!(kernels(&after), kernels(&before), "another row like {row} adds kernels");
    }
}
