//! What keeps a row from being executed by this crate.

use crate::backend::{BiasOrder, Contract, InputContract, Kernel, Known};

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
    /// The row asks for what no engine here does.
    #[error("backend `{row}` cannot be executed: no engine here has {what}")]
    Unimplemented {
        /// The row.
        row: &'static str,
        /// What is missing.
        what: &'static str,
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
/// [`NotExecutable`] if the row is external or only described, or asks for what no engine does.
pub fn check(contract: &Contract) -> Result<(), NotExecutable> {
    let row = contract.name;
    match contract.kernel {
        Kernel::Generated => {}
        Kernel::External => return Err(NotExecutable::External { row }),
        Kernel::Described(obstacle) => return Err(NotExecutable::Described { row, obstacle }),
    }
    let weight = &contract.weight;
    let inputs = || std::iter::once(&contract.gemm1_input).chain(&contract.gemm2_input);
    let two_levels = weight.format.global.is_some()
        || inputs().any(|input| input.formats.iter().any(|format| format.global.is_some()));
    let unimplemented = [
        (two_levels, "second-level scales"),
        (inputs().any(converts_scales), "prepared scales of another type than the format's"),
        (weight.bias.is_some_and(|bias| bias.order == BiasOrder::Marlin), "biases in Marlin's order"),
    ];
    match unimplemented.into_iter().find(|(asked, _)| *asked) {
        None => Ok(()),
        Some((_, what)) => Err(NotExecutable::Unimplemented { row, what }),
    }
}

/// Whether the prepared scales have another type than the kernel's.
pub(crate) fn converts_scales(input: &InputContract) -> bool {
    input.prepared_dtype.is_some_and(|prepared| {
        input.formats.iter().any(|format| format.block.is_some_and(|block| block.scale != prepared))
    })
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
