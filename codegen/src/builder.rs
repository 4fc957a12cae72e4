//! The door for build scripts and programs: a table in, a folder of files out.

use std::path::{Path, PathBuf};

use crate::diagnostic::Severity;
use crate::output::{self, Difference, IoFailure};
use crate::source::{Source, Unreadable};
use crate::{Checked, Report, check, emit};

/// What to do with a folder that differs from what the table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Bring it up to date.
    Write,
    /// Fail.
    Check,
}

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no table.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The table is wrong.
    #[error("{0}")]
    Table(Report),
    /// The folder is stale, and it was to be checked only.
    #[error(
        "{} does not follow from {table}: {}; run `cargo build` without SCALEWRIGHT_CODEGEN=check and commit both",
        folder.display(),
        describe(difference)
    )]
    Stale {
        /// The table.
        table: String,
        /// The folder.
        folder: PathBuf,
        /// What differs.
        difference: Difference,
    },
    /// The folder is stale, and it cannot be brought up to date.
    #[error(
        "{} does not follow from {table}, and it cannot be brought up to date: {error}; build from a writable checkout",
        folder.display()
    )]
    ReadOnly {
        /// The table.
        table: String,
        /// The folder.
        folder: PathBuf,
        /// What happened.
        error: IoFailure,
    },
    /// The folder cannot be read.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

fn describe(difference: &Difference) -> String {
    let stale = difference.stale.iter().map(|path| format!("{} is stale", path.display()));
    let orphaned = difference.orphaned.iter().map(|path| format!("{} is left over", path.display()));
    stale.chain(orphaned).collect::<Vec<_>>().join(", ")
}

/// Generates a folder from a table.
///
/// In a build script of your own:
///
/// ```no_run
/// let out = std::env::var("OUT_DIR").unwrap();
/// scalewright_codegen::Builder::new("backends.toml", out).build_script();
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    table: PathBuf,
    folder: PathBuf,
}

impl Builder {
    /// From the table at `table` into `folder`.
    pub fn new(table: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        Self { table: table.into(), folder: folder.into() }
    }

    /// Does it. Returns the checked table and what was brought up to date.
    ///
    /// # Errors
    /// [`Failure`]. Every file of the folder is then whole: as it was or as it should be.
    pub fn run(&self, mode: Mode) -> Result<(Checked, Difference), Failure> {
        let source = Source::read(&self.table)?;
        let checked = check(&source).map_err(Failure::Table)?;
        let files = emit::files(&checked.table);
        let folder = self.folder.clone();
        let table = source.name;
        match mode {
            Mode::Check => {
                let difference = output::compare(&files, &self.folder)?;
                if !difference.is_empty() {
                    return Err(Failure::Stale { table, folder, difference });
                }
                Ok((checked, difference))
            }
            Mode::Write => match output::write(&files, &self.folder) {
                Ok(difference) => Ok((checked, difference)),
                Err(error) => Err(Failure::ReadOnly { table, folder, error }),
            },
        }
    }

    /// Does it inside a build script: tells cargo what to watch, prints warnings and errors the way
    /// cargo shows them, and writes unless `SCALEWRIGHT_CODEGEN` is `check`.
    #[allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]
    pub fn build_script(&self) {
        println!("cargo::rerun-if-changed={}", self.table.display());
        println!("cargo::rerun-if-changed={}", self.folder.display());
        println!("cargo::rerun-if-env-changed=SCALEWRIGHT_CODEGEN");
        let mode = match std::env::var("SCALEWRIGHT_CODEGEN").as_deref() {
            Ok("check") => Mode::Check,
            Ok("write") | Err(_) => Mode::Write,
            Ok(other) => {
                println!("cargo::error=SCALEWRIGHT_CODEGEN is `write` or `check`, not `{other}`");
                return;
            }
        };
        let lines = |kind: &str, text: &str| text.lines().for_each(|line| println!("cargo::{kind}={line}"));
        match self.run(mode) {
            Ok((checked, difference)) => {
                checked.report.render(Severity::Warning).iter().for_each(|text| lines("warning", text));
                if !difference.is_empty() {
                    same_time_as(&self.table, &difference.stale);
                }
            }
            Err(failure) => lines("error", &failure.to_string()),
        }
    }
}

/// Gives what was just written the time of the table, so that writing it is no reason for cargo to
/// run the script again. Nothing depends on it; where it fails there is one more run.
fn same_time_as(table: &Path, written: &[PathBuf]) {
    let Ok(time) = std::fs::metadata(table).and_then(|metadata| metadata.modified()) else { return };
    let folders = written.iter().filter_map(|path| path.parent());
    for path in written.iter().map(PathBuf::as_path).chain(folders) {
        if let Ok(file) = std::fs::File::open(path) {
            let _ = file.set_modified(time);
        }
    }
}
