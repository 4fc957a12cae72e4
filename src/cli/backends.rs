//! `scalewright backends`.

use std::io::Write;

use scalewright::backend::Kernel;
use scalewright::generated::BackendId;
use serde_json::json;

use super::Trouble;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// One JSON object a row.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Trouble> {
    let width = BackendId::ALL.iter().map(|id| id.name().len()).max().unwrap_or(0);
    for id in BackendId::ALL {
        let contract = id.contract();
        let weights = contract.weight.format.name;
        let tokens: Vec<_> = contract.gemm1_input.formats.iter().map(|format| format.name).collect();
        let kernel = match contract.kernel {
            Kernel::Generated => "executed",
            Kernel::Described(_) => "described",
            Kernel::External => "external",
        };
        let vllm = contract.vllm.map(|vllm| vllm.backend);
        if arguments.json {
            writeln!(
                out,
                "{}",
                json!({ "backend": id.name(), "weights": weights, "tokens": tokens, "kernel": kernel, "vllm": vllm })
            )?;
        } else {
            let tokens = tokens.join("|");
            writeln!(out, "{id:width$}  {weights:12} {tokens:12} {kernel:10} {}", vllm.unwrap_or(""))?;
        }
    }
    Ok(())
}
