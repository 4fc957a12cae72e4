//! Tables edited as text, and small crates built with what follows from them.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The root of the checkout.
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The table of the checkout.
pub(crate) fn table() -> String {
    fs::read_to_string(Path::new(ROOT).join("backends.toml")).unwrap()
}

/// `text` with `from` replaced by `to` in section `[section]`, where it has to stand once.
pub(crate) fn edit(text: &str, section: &str, from: &str, to: &str) -> String {
    let header = format!("\n[{section}]\n");
    let start = text.find(&header).unwrap_or_else(|| panic!("no section [{section}]")) + header.len();
    let end = text[start..].find("\n[").map_or(text.len(), |length| start + length);
    assert_eq!(text[start..end].matches(from).count(), 1, "`{from}` in [{section}]");
    format!("{}{}{}", &text[..start], text[start..end].replacen(from, to, 1), &text[end..])
}

/// The sections of row `row`, whole, with the row renamed to `name`.
pub(crate) fn copy_of_row(text: &str, row: &str, name: &str) -> String {
    let start = text.find(&format!("\n[backend.{row}]\n")).unwrap_or_else(|| panic!("no row {row}"));
    let belongs = |line: &str| line.contains(&format!("[backend.{row}")) || !line.starts_with(['[', '#']);
    let lines = text[start + 1..].lines().take_while(|line| belongs(line));
    let lines = lines.map(|line| line.replace(&format!("[backend.{row}"), &format!("[backend.{name}")));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The table with row `row` reading the scales of its tokens in `layout`, everywhere.
pub(crate) fn with_layout(text: &str, row: &str, layout: &str) -> String {
    let mut text = text.to_owned();
    for gemm in ["gemm1_input", "gemm2_input"] {
        let section = format!("backend.{row}.{gemm}");
        let start = text.find(&format!("\n[{section}]\n")).unwrap_or_else(|| panic!("no [{section}]"));
        let line = text[start..].lines().find(|line| line.starts_with("layout = ")).unwrap().to_owned();
        let new = match gemm {
            "gemm1_input" => format!("layout = {{ prepared = \"{layout}\", kernel = \"{layout}\" }}"),
            _ => format!("layout = {{ kernel = \"{layout}\" }}"),
        };
        text = edit(&text, &section, &line, &new);
    }
    text
}

/// A copy of the crate in `tests/NAME` below the target folder, with its path to this checkout made
/// absolute.
pub(crate) fn copy_of_crate(name: &str) -> PathBuf {
    let from = Path::new(ROOT).join("tests").join(name);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let read = |path: &str| fs::read_to_string(from.join(path)).unwrap();
    let manifest = read("Cargo.toml").replace("\"../..\"", &format!("{ROOT:?}")) + &profile();
    write(&folder.join("Cargo.toml"), &manifest);
    for path in ["table.toml", "src/lib.rs"] {
        write(&folder.join(path), &read(path));
    }
    lock(&folder);
    folder
}

/// The checkout's profile, so that what both depend on is compiled once.
fn profile() -> String {
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap();
    manifest[manifest.find("\n[profile.").unwrap_or(manifest.len())..].to_owned()
}

/// Versions that the checkout has downloaded already.
fn lock(folder: &Path) {
    fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
}

/// A crate of its own workspace below the target folder, which depends on this checkout. Files that
/// are as they should be stay untouched, so that a second run builds nothing.
pub(crate) fn crate_at(name: &str, dependencies: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [workspace]\n\n[dependencies]\n{dependencies}{}",
        profile()
    );
    write(&folder.join("Cargo.toml"), &manifest);
    lock(&folder);
    for (path, text) in files {
        write(&folder.join(path), text);
    }
    folder
}

fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// `scalewright` of this checkout as a dependency, with `features`.
pub(crate) fn scalewright(features: &str) -> String {
    format!("scalewright = {{ path = {ROOT:?}, default-features = false, features = [{features}] }}\n")
}

/// Runs cargo on the crate at `folder`, with `variables`, without a network, in the checkout's own target folder: what
/// is compiled there already is not compiled again.
pub(crate) fn cargo(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder).args(arguments).arg("--offline");
    command.env("CARGO_TARGET_DIR", target).env("CARGO_TERM_COLOR", "never").envs(variables.iter().copied());
    command.output().unwrap()
}

/// What `output` says on both streams.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
