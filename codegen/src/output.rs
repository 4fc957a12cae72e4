//! Files: writes what differs, removes what is ours and no longer produced, touches nothing else.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::emit::{MARKER, Output};

/// How the files of a folder differ from an output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Produced, and not there or other than there.
    pub stale: Vec<PathBuf>,
    /// Ours by the marker, and no longer produced.
    pub orphaned: Vec<PathBuf>,
}

impl Difference {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.stale.is_empty() && self.orphaned.is_empty()
    }
}

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {error}", path.display())]
pub struct IoFailure {
    action: &'static str,
    path: PathBuf,
    error: io::Error,
}

fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> IoFailure + use<'a> {
    move |error| IoFailure { action, path: path.to_owned(), error }
}

/// How `folder` differs from `output`.
///
/// # Errors
/// [`IoFailure`] if the folder cannot be read.
pub fn compare(output: &Output, folder: &Path) -> Result<Difference, IoFailure> {
    let mut difference = Difference::default();
    for (path, text) in output {
        let path = folder.join(path);
        match fs::read(&path) {
            Ok(bytes) if bytes == text.as_bytes() => {}
            Ok(_) => difference.stale.push(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => difference.stale.push(path),
            Err(error) => return Err(at("read", &path)(error)),
        }
    }
    for path in files(folder)? {
        let relative = path.strip_prefix(folder).unwrap_or(&path);
        let key = relative
            .components()
            .map(|part| part.as_os_str().to_string_lossy())
            .collect::<Vec<_>>()
            .join("/");
        if !output.contains_key(&key) && is_ours(&path)? {
            difference.orphaned.push(path);
        }
    }
    Ok(difference)
}

/// Makes `folder` hold `output`: a file that differs is replaced whole, by a rename.
///
/// # Errors
/// [`IoFailure`] if a file cannot be read, written or removed. Files done before it stay done.
pub fn write(output: &Output, folder: &Path) -> Result<Difference, IoFailure> {
    let difference = compare(output, folder)?;
    for path in &difference.stale {
        let relative = path.strip_prefix(folder).unwrap_or(path);
        let key = relative
            .components()
            .map(|part| part.as_os_str().to_string_lossy())
            .collect::<Vec<_>>()
            .join("/");
        replace(path, &output[&key])?;
    }
    for path in &difference.orphaned {
        fs::remove_file(path).map_err(at("remove", path))?;
        // The folder goes too if this was its last file; that it is not empty is no failure.
        if let Some(parent) = path.parent().filter(|parent| *parent != folder) {
            let _ = fs::remove_dir(parent);
        }
    }
    Ok(difference)
}

fn replace(path: &Path, text: &str) -> Result<(), IoFailure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(at("create", folder))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = fs::File::create(&temporary).and_then(|mut file| file.write_all(text.as_bytes()));
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    renamed.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        at("write", path)(error)
    })
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, IoFailure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at("read", folder)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(at("read", folder))?;
        let path = entry.path();
        // A link is nobody's output; what it leads to may lie anywhere.
        let kind = entry.file_type().map_err(at("read", &path))?;
        if kind.is_dir() {
            found.extend(files(&path)?);
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_ours(path: &Path) -> Result<bool, IoFailure> {
    let bytes = fs::read(path).map_err(at("read", path))?;
    Ok(bytes.starts_with(MARKER.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(files: &[(&str, &str)]) -> Output {
        files.iter().map(|(path, text)| (path.to_string(), format!("{MARKER}\n{text}"))).collect()
    }

    #[test]
    fn writes_what_differs_and_prunes_what_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        write(&output(&[("a.rs", "1"), ("sub/b.rs", "2"), ("sub/c.rs", "3")]), path).unwrap();
        fs::write(path.join("theirs.rs"), "hand-written").unwrap();
        let before = fs::metadata(path.join("a.rs")).unwrap().modified().unwrap();

        let second = output(&[("a.rs", "1"), ("sub/b.rs", "22")]);
        let difference = write(&second, path).unwrap();
        assert_eq!(difference.stale, [path.join("sub/b.rs")]);
        assert_eq!(difference.orphaned, [path.join("sub/c.rs")]);
        assert_eq!(fs::metadata(path.join("a.rs")).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read_to_string(path.join("theirs.rs")).unwrap(), "hand-written");
        assert!(!path.join("sub/c.rs").exists());
        assert!(compare(&second, path).unwrap().is_empty());
    }

    #[test]
    fn a_hand_edit_heals() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = output(&[("a.rs", "1")]);
        write(&wanted, folder.path()).unwrap();
        fs::write(folder.path().join("a.rs"), format!("{MARKER}\nedited")).unwrap();
        assert!(!compare(&wanted, folder.path()).unwrap().is_empty());
        write(&wanted, folder.path()).unwrap();
        assert!(compare(&wanted, folder.path()).unwrap().is_empty());
    }
}
