//! What keeps a row from being executed by this crate.

use crate::backend::{Contract, Kernel, Known};

/// A row that this crate does not execute, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotExecutable {
    /// The row is described only.
    #[error("backend `{row}` is external: only the vendor's library executes it")]
    External {
        /// The row.
        row: &'static str,
    },
    /// Something is in the way, as the table's checker found.
    #[error("backend `{row}` cannot be executed: {obstacle}")]
    Described {
        /// The row.
        row: &'static str,
        /// What is in the way.
        obstacle: &'static str,
    },
    /// The row leaves something open.
    #[error("backend `{row}` cannot be executed: its row leaves open {open}")]
    Incomplete {
        /// The row.
        row: &'static str,
        /// What is open.
        open: &'static str,
    },
    /// Only the vendor's library knows something that execution needs.
    #[error("backend `{row}` cannot be executed: only the vendor's library knows its {field} ({why})")]
    Vendor {
        /// The row.
        row: &'static str,
        /// The key of the table.
        field: &'static str,
        /// The table's words.
        why: &'static str,
    },
}

/// Whether this crate executes the row.
///
/// # Errors
/// [`NotExecutable`] if the row is external or only described.
pub fn check(contract: &Contract) -> Result<(), NotExecutable> {
    let row = contract.name;
    match contract.kernel {
        Kernel::Generated => Ok(()),
        Kernel::External => Err(NotExecutable::External { row }),
        Kernel::Described(obstacle) => Err(NotExecutable::Described { row, obstacle }),
    }
}

/// The closed form of `field`.
pub(crate) fn known<T>(
    contract: &Contract,
    field: &'static str,
    value: Known<T>,
) -> Result<T, NotExecutable> {
    match value {
        Known::Is(value) => Ok(value),
        Known::Vendor(why) => Err(NotExecutable::Vendor { row: contract.name, field, why }),
    }
}

/// The value of a `field` that the row may leave out but execution needs.
pub(crate) fn said<T>(
    contract: &Contract,
    field: &'static str,
    value: Option<T>,
) -> Result<T, NotExecutable> {
    value.ok_or(NotExecutable::Incomplete { row: contract.name, open: field })
}
