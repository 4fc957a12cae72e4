//! How tokens get from the ranks that hold them to a backend: what travels, in which layout, and what
//! is done when it arrives. Ranks of one process; moving bytes between processes is a transport's own
//! business.

mod route;

use half::bf16;

pub use self::route::{Delivery, Grouped, Route, Transport};
use crate::backend::{Contract, Known, Reads};
use crate::cpu::quantize::{QuantizeError, handed_recipe, quantize, quantize_prepared};
use crate::cpu::relayout::relayout;
use crate::format::{Format, FormatSpec, Reach};
use crate::layout::{Layout, PerToken, ScaleLayout};
use crate::scale::Calibrated;
use crate::tensor::{Quantized, RawQuantized, Tokens, WrongSize};

/// Tokens of all ranks as they arrive, scales still in the layout of the wire. The only way on is
/// [`prepared`](Self::prepared).
#[derive(Debug, Clone)]
pub struct Dispatched<F: Format, W: ScaleLayout> {
    arrived: Quantized<F, W>,
}

/// All-gather: every rank gets the rows of all, in the order of the ranks. A layout in which rows do
/// not follow each other does not compile.
///
/// # Errors
/// [`WrongSize`] if ranks hold rows of different sizes.
pub fn all_gather<F: Format, W: PerToken>(ranks: &[Quantized<F, W>]) -> Result<Dispatched<F, W>, WrongSize> {
    let raw: Vec<&RawQuantized> = ranks.iter().map(Quantized::raw).collect();
    Ok(Dispatched { arrived: Quantized::from_engine(gather(F::SPEC, W::LAYOUT, &raw)?) })
}

impl<F: Format, W: ScaleLayout> Dispatched<F, W> {
    /// The tokens as backend `B` is handed them: converted once if its layout is another.
    ///
    /// # Errors
    /// [`WrongSize`] if the row's layout refuses the size.
    pub fn prepared<B: Reads<F>>(self) -> Result<Quantized<F, B::Prepared>, WrongSize> {
        self.arrived.relayout()
    }
}

/// Why nothing was delivered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeliverError {
    /// A transport that the table does not have.
    #[error("there is no transport `{transport}`; the table has {}", known.join(", "))]
    Unknown {
        /// The name.
        transport: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The table's decision.
    #[error("transport `{transport}` does not serve backend `{row}`: it {reason}")]
    Refused {
        /// The transport.
        transport: &'static str,
        /// The row.
        row: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// Several ranks and a transport on which nothing travels.
    #[error("transport `{transport}` moves nothing, and tokens are on {ranks} ranks")]
    Local {
        /// The transport.
        transport: &'static str,
        /// The ranks.
        ranks: usize,
    },
    /// A hidden size that does not travel.
    #[error("transport `{transport}` carries no rows of {hidden} columns to backend `{row}`{}", next(*larger))]
    Hidden {
        /// The transport.
        transport: &'static str,
        /// The row.
        row: &'static str,
        /// The hidden size.
        hidden: usize,
        /// The next larger one that travels, if there is one.
        larger: Option<usize>,
    },
    /// Quantisation, before or after dispatch.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// Gathering, or the conversion after it.
    #[error(transparent)]
    Size(#[from] WrongSize),
}

fn next(larger: Option<usize>) -> String {
    larger.map_or_else(String::new, |larger| format!("; pad them to {larger}"))
}

/// The tokens of `ranks` as the backend is handed them behind `transport`, decided by the table:
/// quantised before dispatch and converted once, or quantised after it.
///
/// # Errors
/// [`DeliverError`] if the table refuses, or sizes do not fit.
pub fn deliver(
    contract: &Contract,
    format: &'static FormatSpec,
    calibrated: Option<Calibrated>,
    transport: &str,
    ranks: &[Tokens<'_, bf16>],
) -> Result<RawQuantized, DeliverError> {
    let Some(route) = contract.routes.iter().find(|route| route.transport.name == transport) else {
        let known = contract.routes.iter().map(|route| route.transport.name).collect();
        return Err(DeliverError::Unknown { transport: transport.to_owned(), known });
    };
    let transport = route.transport.name;
    let cols = same_cols(format, ranks.iter().map(|rank| (rank.rows(), rank.cols())))?;
    let larger = route.hidden_from(cols);
    if larger != Some(cols) {
        return Err(DeliverError::Hidden { transport, row: contract.name, hidden: cols, larger });
    }
    let input = &contract.gemm1_input;
    let on_wire = |wire: &'static Layout| -> Result<RawQuantized, DeliverError> {
        let recipe = handed_recipe(contract, format, calibrated)?;
        let quantized = ranks.iter().map(|rank| quantize(*rank, format, recipe, wire, input.multiple));
        let quantized: Vec<_> = quantized.collect::<Result<_, _>>()?;
        Ok(gather(format, wire, &quantized.iter().collect::<Vec<_>>())?)
    };
    match route.delivery {
        Delivery::Local => match ranks {
            [one] => Ok(quantize_prepared(contract, format, calibrated, *one)?),
            _ => Err(DeliverError::Local { transport, ranks: ranks.len() }),
        },
        Delivery::Direct(wire) => on_wire(wire),
        Delivery::Convert { wire, prepared } => Ok(relayout(&on_wire(wire)?, prepared)?),
        Delivery::QuantizeAfter => {
            let rows = ranks.iter().flat_map(|rank| (0..rank.rows()).flat_map(|row| rank.row(row)));
            let values: Vec<bf16> = rows.copied().collect();
            let tokens = Tokens::new(&values, ranks.iter().map(Tokens::rows).sum(), cols)?;
            Ok(quantize_prepared(contract, format, calibrated, tokens)?)
        }
        Delivery::Refused(reason) => Err(DeliverError::Refused { transport, row: contract.name, reason }),
    }
}

/// The columns that the (rows, columns) of all ranks have in common; 0 without ranks.
fn same_cols(
    format: &FormatSpec,
    mut ranks: impl Iterator<Item = (usize, usize)> + Clone,
) -> Result<usize, WrongSize> {
    let cols = ranks.clone().next().map_or(0, |(_, cols)| cols);
    match ranks.find(|(_, other)| *other != cols) {
        None => Ok(cols),
        Some((rows, other)) => {
            let bytes = |cols| format.element.bytes(cols).saturating_mul(rows);
            let (expected, got) = (bytes(cols), bytes(other));
            Err(WrongSize::Payload { format: format.name, rows, cols, expected, got })
        }
    }
}

/// Rows of several ranks, one after the other.
fn gather(
    format: &'static FormatSpec,
    layout: &'static Layout,
    ranks: &[&RawQuantized],
) -> Result<RawQuantized, WrongSize> {
    let cols = same_cols(format, ranks.iter().map(|rank| (rank.rows, rank.cols)))?;
    // Ranks without tokens have no scales to agree on. The one scale of a tensor is every rank's.
    let busy: Vec<_> = ranks.iter().copied().filter(|rank| rank.rows > 0).collect();
    let first = busy.first().or(ranks.first()).ok_or(WrongSize::NoRanks { format: format.name })?;
    let is_whole = format.block.is_some_and(|block| block.rows == Reach::Whole);
    let differ =
        |rank: &&&RawQuantized| rank.global != first.global || (is_whole && rank.scales != first.scales);
    if busy.iter().find(differ).is_some() {
        return Err(WrongSize::RankScales { format: format.name });
    }
    let scales = if is_whole {
        first.scales.clone()
    } else {
        ranks.iter().flat_map(|rank| &rank.scales).copied().collect()
    };
    Ok(RawQuantized {
        format,
        layout,
        rows: ranks.iter().map(|rank| rank.rows).sum(),
        cols,
        payload: ranks.iter().flat_map(|rank| &rank.payload).copied().collect(),
        scales,
        zero_points: ranks.iter().flat_map(|rank| &rank.zero_points).copied().collect(),
        global: first.global,
    })
}

/// What `contract` is handed behind each transport, in words.
pub fn describe(contract: &Contract) -> impl Iterator<Item = (&'static str, String)> {
    let prepared = match contract.gemm1_input.layout {
        Known::Is(layout) => layout.prepared.name,
        Known::Vendor(why) => why,
    };
    contract.routes.iter().map(move |route| {
        let words = match route.delivery {
            Delivery::Local => format!("nothing travels; prepare writes {prepared}"),
            Delivery::Direct(wire) => {
                format!("travels in {}, which is what the backend is handed", wire.name)
            }
            Delivery::Convert { wire, prepared } => {
                format!("travels in {}, converted to {} on arrival", wire.name, prepared.name)
            }
            Delivery::QuantizeAfter => format!("travels in 16 bits, quantised into {prepared} on arrival"),
            Delivery::Refused(reason) => format!("refused: it {reason}"),
        };
        (route.transport.name, words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::BackendId;
    use crate::generated::formats::{FP8_TENSOR, MXFP8};
    use crate::generated::layouts::LINEAR;
    use crate::recipe::Recipe;
    use crate::scale::Multiplier;

    static AFTER: Transport = Transport {
        name: "after",
        all2all: &[],
        hands_over: Grouped::Tokens,
        devices: None,
        hidden_sizes: &[],
    };
    static BEFORE: Transport = Transport { name: "before", ..AFTER };
    static ROUTES: &[Route] = &[Route::quantize_after(&AFTER), Route::direct(&BEFORE, &LINEAR)];

    /// Also where the sum is what equal ranks would have, and where padding makes them equal.
    #[test]
    fn ranks_of_different_hidden_sizes_are_refused() {
        let values = [bf16::ONE; 512];
        let mut contract = BackendId::FlashinferCutlassMxfp4Mxfp8.contract().clone();
        contract.routes = ROUTES;
        for (transport, cols) in [("after", [256, 384, 128]), ("before", [256, 250, 256])] {
            let ranks = cols.map(|cols| Tokens::new(&values[..cols], 1, cols).unwrap());
            let error = deliver(&contract, &MXFP8, None, transport, &ranks).unwrap_err();
            assert!(matches!(error, DeliverError::Size(WrongSize::Payload { .. })), "{transport}: {error}");
        }
    }

    /// Ranks without tokens have no scale that could differ.
    #[test]
    fn ranks_share_the_scale_of_the_gathered_tensor() {
        let contract = BackendId::CutlassFp8PerTensor.contract();
        let values = [bf16::ONE; 64];
        let busy = Tokens::new(&values, 1, 64).unwrap();
        let idle = Tokens::new(&values[..0], 0, 64).unwrap();
        let deliver = |scale: Option<f32>, ranks: &[Tokens<'_, bf16>]| {
            let scale = scale.map(|scale| Calibrated::Static(Multiplier::new(scale).unwrap()));
            deliver(contract, &FP8_TENSOR, scale, "naive_dp_ep", ranks)
        };
        let arrived = deliver(Some(0.5), &[idle, busy, idle]).unwrap();
        assert_eq!((arrived.rows, arrived.scales), (1, 0.5f32.to_le_bytes().to_vec()));
        let no_scale = DeliverError::Quantize(QuantizeError::NoScale { format: "fp8_tensor" });
        assert_eq!(deliver(None, &[busy]).unwrap_err(), no_scale);
        let nobody = DeliverError::Size(WrongSize::NoRanks { format: "fp8_tensor" });
        assert_eq!(deliver(Some(0.5), &[]).unwrap_err(), nobody);

        let by = |scale| {
            let recipe = Recipe {
                calibrated: Some(Calibrated::Static(Multiplier::new(scale).unwrap())),
                ..Recipe::default()
            };
            quantize(busy, &FP8_TENSOR, recipe, &LINEAR, 1).unwrap()
        };
        let error = gather(&FP8_TENSOR, &LINEAR, &[&by(0.5), &by(0.25)]).unwrap_err();
        assert_eq!(error, WrongSize::RankScales { format: "fp8_tensor" });
    }
}
