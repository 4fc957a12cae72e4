//! A contract in words.

use scalewright::backend::{Contract, Known};

/// The contract in one line.
pub(super) fn in_a_line(contract: &Contract) -> String {
    let input = &contract.gemm1_input;
    let tokens: Vec<_> = input.formats.iter().map(|format| format.name).collect();
    let layout = match input.layout {
        Known::Is(layout) if layout.prepared == layout.kernel => layout.kernel.name.to_owned(),
        Known::Is(layout) => format!("{} to {}", layout.prepared.name, layout.kernel.name),
        Known::Vendor(why) => why.to_owned(),
    };
    format!("{} weights, {} tokens, scales {layout}", contract.weight.format.name, tokens.join(" or "))
}
