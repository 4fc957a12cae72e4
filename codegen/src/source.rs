//! A table's text and where it came from.

use std::ops::Range;
use std::path::Path;

/// A byte range of a table.
pub type Span = Range<usize>;

/// The text of a table and the name to show for it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Shown in reports.
    pub name: String,
    /// The text.
    pub text: String,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the table {name}: {error}")]
pub struct Unreadable {
    name: String,
    error: std::io::Error,
}

impl Source {
    /// A table given as text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// A table in a file.
    ///
    /// # Errors
    /// [`Unreadable`] if there is no such file, or it is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, Unreadable> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self { name, text }),
            Err(error) => Err(Unreadable { name, error }),
        }
    }
}

/// A value and where it stands in the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}
