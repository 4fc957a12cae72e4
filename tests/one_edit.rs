//! A layout, a row, or another layout for a row: an edit of the table and of nothing else. A crate is
//! built from each edited table, and the tests that were generated with it are run.

mod nested;

use std::path::Path;

use nested::{cargo, copy_of_row, crate_at, edit, said, scalewright, table, with_layout};
use scalewright_codegen::model::Table;
use scalewright_codegen::model::words::ScaleType;
use scalewright_codegen::{Builder, Mode, Source, check};

const CUTLASS: &str = "flashinfer_cutlass_mxfp4_mxfp8";
const PER_TENSOR: &str = "cutlass_fp8_per_tensor";

const TILE: &str = r#"
[layout.tile_48x2]
digits = ["row/48", "col/2", "row%48", "col%2"]
scale = ["e8m0", "f32"]
pad = { row = 48, col = 2 }
"#;

fn checked(text: &str) -> Table {
    check(&Source::new("backends.toml", text)).unwrap_or_else(|report| panic!("{report}")).table
}

/// `text` with one row for each type of block scales once more in each layout that can hold them, as
/// `row_in_layout`, and the names of these rows. Rows that the backend is handed in another format than
/// its kernel's are left alone.
fn with_every_layout(text: &str) -> (String, Vec<String>) {
    let table = checked(text);
    let (mut all, mut names) = (text.to_owned(), Vec::new());
    let executed =
        table.backends.iter().filter(|row| row.kernel == scalewright_codegen::model::Kernel::Generated);
    let mut seen = Vec::new();
    for row in executed.filter(|row| row.gemm1.prepared_format.is_none()) {
        let block = row.gemm1.formats[0].block.as_ref();
        let Some(scale) = block.filter(|block| block.cols.fixed().is_some()) else { continue };
        // The CUTLASS row is the seed's.
        if seen.contains(&scale.scale) || (scale.scale == ScaleType::E8m0 && row.name != CUTLASS) {
            continue;
        }
        seen.push(scale.scale);
        for layout in table.layouts.iter().filter(|layout| layout.scales.contains(&scale.scale)) {
            let name = format!("{}_in_{}", row.name, layout.name);
            let copy = copy_of_row(text, &row.name, &name);
            all += &format!("\n{}", with_layout(&format!("\n{copy}"), &name, &layout.name));
            names.push(name);
        }
    }
    (all, names)
}

/// Generates from `text` into a crate of its own, with no other file than the one that includes what
/// is generated, and runs its tests. Returns the names of those that passed.
fn build_and_test(name: &str, text: &str) -> Vec<String> {
    let lib = "//! What follows from an edited table.\n\npub mod generated;\n";
    let files = [("backends.toml", text), ("src/lib.rs", lib)];
    let folder = crate_at(name, &scalewright(""), &files);
    Builder::new(folder.join("backends.toml"), folder.join("src/generated"))
        .run(Mode::Write)
        .unwrap_or_else(|failure| panic!("{failure}"));
    passed(&folder)
}

fn passed(folder: &Path) -> Vec<String> {
    let output = cargo(folder, &["test", "--lib"], &[]);
    assert!(output.status.success(), "{}", said(&output));
    let said = said(&output);
    let names = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"));
    names.map(str::to_owned).collect()
}

/// A new layout and a new row that reads it; one row for each type of block scales in every layout that
/// can hold them, the linear CUTLASS row of the seed's bug among them; and rows that quantise at another
/// time or by another scale.
#[test]
fn an_edit_of_the_table_is_all_it_takes() {
    let new_row =
        with_layout(&format!("\n{}", copy_of_row(&table(), CUTLASS, "one_edit")), "one_edit", "tile_48x2");
    let new_row =
        edit(&new_row, "backend.one_edit.gemm1_input", "start_multiple = 128", "start_multiple = 48");
    // Somebody may have made the very same edit.
    let tile = if table().contains("\n[layout.tile_48x2]\n") { "" } else { TILE };
    let (edited, mut rows) = with_every_layout(&(table() + tile));
    // The same contract with tokens that travel in 16 bits and are quantised inside the kernel.
    let expert = copy_of_row(&table(), CUTLASS, "one_edit_expert");
    let expert =
        edit(&format!("\n{expert}"), "backend.one_edit_expert.gemm1_input", "\"prepare\"", "\"expert\"");
    // The scale of a whole tensor, chosen from the numbers instead of calibrated: tokens of several ranks
    // are one tensor after dispatch only.
    let mut dynamic = format!("\n{}", copy_of_row(&table(), PER_TENSOR, "one_edit_dynamic"));
    for gemm in ["gemm1_input", "gemm2_input"] {
        let section = format!("backend.one_edit_dynamic.{gemm}");
        dynamic = edit(&dynamic, &section, "\"static\"", "\"dynamic\"");
    }
    let edited = edited + &new_row + &expert + &dynamic;
    rows.extend(["one_edit", "one_edit_expert", "one_edit_dynamic"].map(str::to_owned));
    assert!(
        rows.contains(&format!("{CUTLASS}_in_linear")) && rows.contains(&format!("{CUTLASS}_in_tile_48x2"))
    );

    let passed = build_and_test("one_edit", &edited);
    for row in &rows {
        for suite in ["layouts", "transports", "layer", "mutants"] {
            let test = format!("generated::backends::{row}::tests::{suite}");
            assert!(passed.contains(&test), "{test} did not run");
        }
    }
}
