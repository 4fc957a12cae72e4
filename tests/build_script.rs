//! What `cargo build` does to `generated/`: nothing if it follows from the table, and otherwise
//! exactly what is needed, or one error.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod nested;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use nested::{ROOT, cargo, crate_at, said};
use scalewright_codegen::emit::MARKER;
use scalewright_codegen::{Builder, Failure, Mode};

/// Every file below `folder`: its bytes, and when it was written.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut snapshot(&path));
        } else {
            let written = fs::metadata(&path).unwrap().modified().unwrap();
            found.insert(path.clone(), (fs::read(&path).unwrap(), written));
        }
    }
    found
}

fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    bytes_of(snapshot(folder))
}

fn bytes_of(snapshot: BTreeMap<PathBuf, (Vec<u8>, SystemTime)>) -> BTreeMap<PathBuf, Vec<u8>> {
    snapshot.into_iter().map(|(path, (bytes, _))| (path, bytes)).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::write(to, fs::read(&path).unwrap()).unwrap();
        }
    }
}

/// A copy of the table and of what follows from it, and what brings the copy up to date.
fn checkout() -> (tempfile::TempDir, PathBuf, Builder) {
    let folder = tempfile::tempdir().unwrap();
    let (table, generated) = (folder.path().join("backends.toml"), folder.path().join("generated"));
    fs::write(&table, nested::table()).unwrap();
    copy(&Path::new(ROOT).join("generated"), &generated);
    let builder = Builder::new(table, &generated);
    (folder, generated, builder)
}

fn run(builder: &Builder, mode: Mode) -> Result<usize, Failure> {
    builder.run(mode).map(|(_, difference)| difference.stale.len() + difference.orphaned.len())
}

#[test]
fn an_untouched_tree_is_left_alone() {
    let (_folder, generated, builder) = checkout();
    let before = snapshot(&generated);
    assert_eq!(run(&builder, Mode::Write).unwrap(), 0);
    assert_eq!(run(&builder, Mode::Check).unwrap(), 0);
    assert!(before == snapshot(&generated));
}

#[test]
fn a_hand_edit_heals_and_nothing_else_is_written() {
    let (_folder, generated, builder) = checkout();
    let before = snapshot(&generated);
    let edited = generated.join("layouts.rs");
    fs::write(&edited, fs::read_to_string(&edited).unwrap().replace("% 32", "% 16")).unwrap();
    fs::remove_file(generated.join("cuda/quantize_mxfp8_linear.cu")).unwrap();
    assert_eq!(run(&builder, Mode::Write).unwrap(), 2);

    let mut after = snapshot(&generated);
    for path in [&edited, &generated.join("cuda/quantize_mxfp8_linear.cu")] {
        assert_eq!(after.get(path).unwrap().0, before[path].0);
        after.insert(path.clone(), before[path].clone());
    }
    assert!(before == after, "another file was written");
}

#[test]
fn checking_fails_once_and_changes_nothing() {
    let (_folder, generated, builder) = checkout();
    fs::write(generated.join("formats.rs"), format!("{MARKER}\n")).unwrap();
    fs::write(generated.join("left_over.rs"), format!("{MARKER}\n")).unwrap();
    let before = snapshot(&generated);
    let failure = run(&builder, Mode::Check).unwrap_err();
    assert!(before == snapshot(&generated));
    assert!(matches!(failure, Failure::Stale { .. }));
    let said = failure.to_string();
    for words in ["formats.rs is stale", "left_over.rs is left over", "run `cargo build`"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_is_ours_is_pruned_and_what_is_not_stays() {
    let (_folder, generated, builder) = checkout();
    let wanted = bytes(&generated);
    let ours = ["left_over.rs", "backends/dropped_row.rs", "old/folder/kernel.cu"];
    for path in ours {
        let path = generated.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{MARKER}\nleft over\n")).unwrap();
    }
    let foreign = [generated.join("NOTES.md"), generated.join("cuda/mine.cu")];
    foreign.iter().for_each(|path| fs::write(path, "not generated\n").unwrap());
    assert_eq!(run(&builder, Mode::Write).unwrap(), ours.len());

    let mut left = bytes(&generated);
    foreign.iter().for_each(|path| assert!(left.remove(path).is_some(), "{} is gone", path.display()));
    assert!(left == wanted);
}

/// A folder where a file has to go cannot be written over, whoever runs the test.
#[test]
fn a_stale_tree_that_cannot_be_written_is_one_error() {
    let (_folder, generated, builder) = checkout();
    let blocked = generated.join("layouts.rs");
    fs::remove_file(&blocked).unwrap();
    fs::create_dir(&blocked).unwrap();
    fs::write(generated.join("formats.rs"), "stale").unwrap();
    let before = snapshot(&generated);
    let failure = run(&builder, Mode::Write).unwrap_err();
    assert!(matches!(failure, Failure::ReadOnly { .. }));
    assert!(before == snapshot(&generated));
    let said = failure.to_string();
    for words in ["layouts.rs", "cannot be brought up to date", "build from a writable checkout"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Without permissions; a user that has them anyway (root) is told so and tries nothing.
#[cfg(unix)]
#[test]
fn a_stale_tree_without_permissions_is_one_error() {
    use std::os::unix::fs::PermissionsExt as _;

    let (_folder, generated, builder) = checkout();
    fs::write(generated.join("formats.rs"), "stale").unwrap();
    let permit = |mode| fs::set_permissions(&generated, fs::Permissions::from_mode(mode)).unwrap();
    permit(0o555);
    if fs::write(generated.join("probe"), "").is_ok() {
        println!("skipped: this user writes to read-only folders");
        return;
    }
    let failure = run(&builder, Mode::Write);
    permit(0o755);
    assert!(matches!(failure.unwrap_err(), Failure::ReadOnly { .. }));
    assert_eq!(fs::read_to_string(generated.join("formats.rs")).unwrap(), "stale");
}

/// The build script itself, in a package that has nothing else.
#[test]
fn cargo_runs_the_script_when_it_has_to() {
    let script = fs::read_to_string(Path::new(ROOT).join("build.rs")).unwrap();
    let table = nested::table();
    let files = [("build.rs", script.as_str()), ("backends.toml", &table), ("src/lib.rs", "//! Nothing.\n")];
    let codegen = format!(
        "\n[build-dependencies]\nscalewright-codegen = {{ path = {:?}, default-features = false }}\n",
        Path::new(ROOT).join("codegen")
    );
    let folder = crate_at("scripted", &codegen, &files);
    let generated = folder.join("generated");
    if generated.exists() {
        fs::remove_dir_all(&generated).unwrap();
    }
    copy(&Path::new(ROOT).join("generated"), &generated);
    let build = |mode: &str| {
        let output = cargo(&folder, &["build"], &[("SCALEWRIGHT_CODEGEN", mode)]);
        (output.status.success(), said(&output))
    };

    let before = snapshot(&generated);
    let (built, said) = build("write");
    assert!(built, "{said}");
    assert!(before == snapshot(&generated), "a build of an untouched tree has written");
    let (built, said) = build("write");
    assert!(built && !said.contains("Compiling scripted"), "a second build is not fresh: {said}");

    let edited = generated.join("formats.rs");
    fs::write(&edited, "edited\n").unwrap();
    let (built, said) = build("check");
    assert!(!built && fs::read_to_string(&edited).unwrap() == "edited\n");
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("error: scripted")).collect();
    assert!(matches!(errors[..], [error] if error.contains("formats.rs is stale")), "{said}");

    let (built, said) = build("write");
    assert!(built, "{said}");
    assert_eq!(bytes(&generated), bytes_of(before), "a hand edit has to heal");
}

#[test]
fn the_package_ships_what_is_generated_and_not_the_script() {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(ROOT).args(["package", "-p", "scalewright", "--list", "--offline", "--allow-dirty"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let listed = String::from_utf8(output.stdout).unwrap();
    let is_listed = |path: &str| listed.lines().any(|line| line == path);
    for path in ["backends.toml", "generated/mod.rs", "generated/cuda/quantize_mxfp8_linear.cu", "src/lib.rs"]
    {
        assert!(is_listed(path), "{path} is not in the package:\n{listed}");
    }
    assert!(!is_listed("build.rs"), "the package ships build.rs");
}
