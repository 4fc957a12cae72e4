//! Files that a command writes: whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Trouble, question};

/// Where a command that makes a tensor file writes it.
#[derive(clap::Args)]
pub(super) struct Target {
    /// The file to write; an existing one is kept unless --force is given.
    #[arg(short, long = "out", value_name = "OUT")]
    out: PathBuf,
    /// Replaces OUT if it exists, even where it is IN. IN is replaced only once all is written.
    #[arg(long)]
    force: bool,
}

impl Target {
    /// Refuses an OUT that may not be written, before any work is done for it.
    pub(super) fn check(&self, input: &Path) -> Result<(), Trouble> {
        if self.force || fs::symlink_metadata(&self.out).is_err() {
            return Ok(());
        }
        let what = if is_same(&self.out, input) { "is the file to read" } else { "exists" };
        let out = self.out.display();
        Err(question(format!("{out} {what}; name another file to write, or replace it with --force")))
    }

    /// Writes `bytes`.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), Trouble> {
        write(&self.out, bytes)
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.out
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Writes `bytes` to `path`: to a new file beside it, which takes its name once it is whole.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Trouble> {
    let refuse = |error: io::Error| question(format!("{} cannot be written: {error}", path.display()));
    let Some(name) = path.file_name() else {
        return Err(question(format!("{} names no file", path.display())));
    };
    // A pipe or a device would be replaced by a file of its name.
    if path.exists() && !path.is_file() {
        return Err(question(format!("{} is not a file; name one to write", path.display())));
    }
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let file = File::create_new(&beside).map_err(refuse)?;
    let written = fill(file, bytes).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        // What matters is why there is no file; a rest that cannot be removed says so itself.
        drop(fs::remove_file(&beside));
        refuse(error)
    })
}

fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}
