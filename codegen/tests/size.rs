//! Code grows with distinct layouts and formats, not with rows.

use std::path::Path;

use scalewright_codegen::{Source, check, emit};

/// The most bytes of Rust that a row may add whose formats and layouts are there already.
const MOST_OF_A_ROW: usize = 5 * 1024;
/// The most bytes of Rust that the table may become.
const MOST: usize = 600 * 1024;

fn emitted(text: &str) -> emit::Output {
    let checked = check(&Source::new("backends.toml", text)).unwrap_or_else(|report| panic!("{report}"));
    emit::files(&checked.table)
}

/// The bytes of Rust, and the number of kernels.
fn size(output: &emit::Output) -> (usize, usize) {
    let rust = output.iter().filter(|(path, _)| path.ends_with(".rs"));
    let kernels = output.keys().filter(|path| path.ends_with(".cu"));
    (rust.map(|(_, text)| text.len()).sum(), kernels.count())
}

/// The lines of every row as those of a row `again_…`.
fn copied(text: &str) -> String {
    let mut inside = false;
    let mut copy = String::from("\n");
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line.trim_start_matches('[').starts_with("backend.");
        }
        if inside {
            copy += &line.replacen("[backend.", "[backend.again_", 1);
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
    let after = emitted(&(text.clone() + &copied(&text)));
    let rows: Vec<_> =
        before.keys().filter(|path| path.starts_with("backends/") && !path.ends_with("mod.rs")).collect();
    for path in &rows {
        let copy = &after[&path.replace("backends/", "backends/again_")];
        assert!(copy.len() < MOST_OF_A_ROW, "another row like {path} adds {} bytes of Rust", copy.len());
    }
    let ((rust_before, kernels_before), (rust_after, kernels_after)) = (size(&before), size(&after));
    assert!(rust_before < MOST, "{rust_before} bytes of Rust");
    assert!(
        (rust_after - rust_before) / rows.len() < MOST_OF_A_ROW,
        "{rust_before} bytes become {rust_after}"
    );
    assert_eq!(kernels_after, kernels_before, "rows of known parts add kernels");
}
