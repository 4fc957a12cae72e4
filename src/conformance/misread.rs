//! What a wrong layout costs: the same layer with scales read where they are not.

use std::borrow::Cow;

use crate::backend::{Contract, InputLayout, Known, WeightScale};
use crate::cpu::layer::{LayerError, forward};
use crate::layout::{Extent, Layout};
use crate::tensor::{RawQuantized, WrongSize, scale_extent};
use crate::weights::prepared::{MatrixPlan, PreparedMatrix, RawPrepared, plan};

use super::fixtures::misreading;
use super::measure::{Case, Failure, relative_error};

/// What comes of reading the scales of the tokens in another layout, or, where they have none, those of
/// the weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Misread {
    /// The row has no layout at stake: no scales, or so few that both layouts put them in the same
    /// places.
    NotAtStake,
    /// What the row finds there is no scale, and it says so.
    Refused,
    /// The error against the reference on the same quantised operands.
    OffBy(f64),
}

/// Runs the layer with scales misread, and compares it with what is right.
pub(super) fn misread(
    contract: &Contract,
    case: &Case<'_>,
    prepared: &RawPrepared,
    input: &RawQuantized,
    judged: &[f64],
) -> Result<Misread, Failure> {
    let of_tokens = tokens_in_another_layout(contract, case, input)?;
    let (contract, prepared, input) = match of_tokens {
        Some((contract, input)) => (contract, Cow::Borrowed(prepared), Cow::Owned(input)),
        None => match weights_in_another_layout(contract, case, prepared)? {
            Some((contract, prepared)) => (contract, Cow::Owned(prepared), Cow::Borrowed(input)),
            None => return Ok(Misread::NotAtStake),
        },
    };
    match forward(&contract, &case.config, &prepared, &input, case.routing) {
        Ok(output) => Ok(Misread::OffBy(relative_error(&output, judged))),
        Err(LayerError::Repack(_)) => Ok(Misread::Refused),
        Err(error) => Err(error.into()),
    }
}

/// A contract that reads the tokens' scales in another layout, and the bytes of `input` as it would
/// find them: the same buffer, cut or continued with zeros to the size that it reads. `None` if there
/// are no scales, or so few that both layouts put all that belong to a value in the same places.
fn tokens_in_another_layout(
    contract: &Contract,
    case: &Case<'_>,
    input: &RawQuantized,
) -> Result<Option<(Contract, RawQuantized)>, Failure> {
    let (Some(block), Known::Is(layout)) = (input.format.block, contract.gemm1_input.layout) else {
        return Ok(None);
    };
    let (own, other) = (layout.prepared, misreading(layout.prepared));
    let logical = scale_extent(input.format, input.rows, input.cols)?;
    let own_box = own.physical(logical).map_err(WrongSize::from)?;
    let other_box = other.physical(logical).map_err(WrongSize::from)?;
    let cols = block.cols.count(case.weights.hidden);
    if agree((own, own_box), (other, other_box), Extent { rows: logical.rows, cols }) {
        return Ok(None);
    }
    let mut contract = contract.clone();
    contract.gemm1_input.layout = Known::Is(InputLayout { prepared: other, kernel: layout.kernel });
    let mut input = RawQuantized { layout: other, ..input.clone() };
    input.scales.resize(other_box.count() * block.scale.bytes(), 0);
    Ok(Some((contract, input)))
}

/// The same of the weights' scales, expert by expert.
fn weights_in_another_layout(
    contract: &Contract,
    case: &Case<'_>,
    prepared: &RawPrepared,
) -> Result<Option<(Contract, RawPrepared)>, Failure> {
    let scale = contract.weight.scale.as_ref();
    let Some((scale, own)) = scale.and_then(|scale| Some((scale, scale.layout.is()?))) else {
        return Ok(None);
    };
    let mut other = contract.clone();
    other.weight.scale = Some(WeightScale { layout: Known::Is(misreading(own)), ..scale.clone() });
    let kind = case.config.activation.kind();
    let (here, there) = (plan(contract, kind, prepared.logical)?, plan(&other, kind, prepared.logical)?);
    let agrees = |here: &MatrixPlan, there: &MatrixPlan| match (&here.scale, &there.scale) {
        (Some(here), Some(there)) => {
            agree((here.layout, here.physical), (there.layout, there.physical), here.logical)
        }
        _ => true,
    };
    if agrees(&here.gate_up, &there.gate_up) && agrees(&here.down, &there.down) {
        return Ok(None);
    }
    let found = |matrix: &PreparedMatrix, here: &MatrixPlan, there: &MatrixPlan| {
        let experts = matrix.scales.chunks(here.scale_bytes().max(1));
        let resized = experts.flat_map(|scales| {
            let mut scales = scales.to_vec();
            scales.resize(there.scale_bytes(), 0);
            scales
        });
        PreparedMatrix { scales: resized.collect(), ..matrix.clone() }
    };
    let gate_up = found(&prepared.gate_up, &here.gate_up, &there.gate_up);
    let down = found(&prepared.down, &here.down, &there.down);
    Ok(Some((other, RawPrepared { gate_up, down, ..prepared.clone() })))
}

/// Whether two layouts, each in its box, put all scales of `logical` rows and columns in the same places.
fn agree(one: (&Layout, Extent), other: (&Layout, Extent), logical: Extent) -> bool {
    let place = |(layout, physical): (&Layout, Extent), row, col| layout.offset_by_digits(row, col, physical);
    let mut places = (0..logical.rows).flat_map(|row| (0..logical.cols).map(move |col| (row, col)));
    places.all(|(row, col)| place(one, row, col) == place(other, row, col))
}
