//! Known ways of getting a contract wrong, each made on purpose: the check that a row passes has to
//! fail on every one.
//!
//! A mutant is produced under one contract and consumed under another; the engine knows nothing of
//! it.

use half::bf16;

use crate::backend::{Bias, BiasOrder, Contract, InputLayout, Known, WeightScale};
use crate::cpu::layer::{LayerError, forward};
use crate::cpu::quantize::quantize_prepared;
use crate::cpu::scales::ROW_MAJOR;
use crate::layout::{Half, Order, Payload};
use crate::moe::routing::Routing;
use crate::scale::Multiplier;
use crate::tensor::{RawQuantized, scale_extent};
use crate::weights::canonical::{Biases, Canonical, Stack};
use crate::weights::prepared::{RawPrepared, plan, prepare};
use crate::weights::synthetic::Shape;

use super::fixtures::{Fixture, handed, orders, taken_weights};
use super::measure::{TOLERANCE, reference_output, relative_error};
use super::{Case, ok};

/// What a mutant's layer comes to: an output to be judged, or an error that already stopped it.
type Outcome = Result<Vec<bf16>, LayerError>;

/// Every mutant that applies to the row is refused, or at least ten times beyond the tolerance, for each
/// order of gate/up rows.
///
/// # Panics
/// If one is not, if it is refused for what no producer gets wrong, or if no mutant comes to an output.
pub fn mutants(contract: &'static Contract) {
    let mut judged_by_output = 0;
    for function in orders(contract) {
        // More than 16 blocks a row: no layout in use is row by row there.
        let shape = Shape { experts: 2, hidden: 544, intermediate: 32, top_k: 1 };
        let fixture = Fixture::new(contract, function, 133, shape);
        let case = fixture.case();
        let input = ok(quantize_prepared(contract, handed(contract), case.config.gemm1, case.tokens));
        let judged = ok(reference_output(contract, &case, &input));
        let mutants = [
            ("identity layout", identity_layout(contract, &case, &input)),
            ("double swizzle", double_swizzle(contract, &case, &input)),
            ("weight scales row by row", identity_weight_scales(contract, &case, &input)),
            ("weight scales swizzled twice", double_swizzled_weights(contract, &case, &input)),
            ("weight elements row by row", identity_payload(contract, &case, &input)),
            ("no second-level scale", no_second_level(contract, &case, &input)),
            ("biases as their rows", biases_as_rows(contract, &case, &input)),
            ("swapped halves", swapped_halves(contract, &case, &input)),
            ("padding at the end", end_padding(contract, &fixture, &input)),
        ];
        for (mutant, outcome) in mutants {
            let name = format!("{} {function}: `{mutant}`", contract.name);
            match outcome {
                None => println!("{name} does not apply"),
                // What a mistake of a producer can lead to; any other refusal is one of this test.
                Some(Err(
                    error @ (LayerError::Repack(_) | LayerError::Size(_) | LayerError::Layout { .. }),
                )) => println!("{name} is refused: {error}"),
                Some(Err(error)) => panic!("{name} is refused for another reason: {error}"),
                Some(Ok(output)) => {
                    let error = relative_error(&output, &judged);
                    println!("{name} is off by {error}");
                    assert!(error > 10.0 * TOLERANCE, "{name} would pass, off by {error}");
                    judged_by_output += 1;
                }
            }
        }
    }
    assert!(judged_by_output > 0, "no mutant of {} comes to an output", contract.name);
}

fn run(
    contract: &Contract,
    case: &Case<'_>,
    weights: &RawPrepared,
    input: &RawQuantized,
    routing: &Routing,
) -> Outcome {
    forward(contract, &case.config, weights, input, routing)
}

fn prepared(contract: &Contract, case: &Case<'_>) -> RawPrepared {
    ok(prepare(contract, case.config.activation.kind(), case.weights))
}

/// The producer writes row by row; what the consumer finds beyond is zero. vLLM before #42089.
fn identity_layout(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    let Known::Is(layout) = contract.gemm1_input.layout else { return None };
    input.format.block?;
    if layout.prepared.digits == ROW_MAJOR.digits || layout.prepared.digits.is_empty() {
        return None;
    }
    let mut producer = contract.clone();
    producer.gemm1_input.layout = Known::Is(InputLayout { prepared: &ROW_MAJOR, kernel: layout.kernel });
    let mut mutant = ok(quantize_prepared(&producer, handed(contract), case.config.gemm1, case.tokens));
    mutant.scales.resize(input.scales.len(), 0);
    // The faulty producer believes that this is what the row asks for.
    mutant.layout = layout.prepared;
    if mutant.scales == input.scales {
        return None;
    }
    Some(run(contract, case, &prepared(contract, case), &mutant, case.routing))
}

/// Scales that are swizzled already are taken for rows and swizzled again.
fn double_swizzle(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    let Known::Is(InputLayout { prepared: layout, .. }) = contract.gemm1_input.layout else { return None };
    let size = input.format.block?.scale.bytes();
    if layout.digits == ROW_MAJOR.digits {
        return None;
    }
    let physical = ok(layout.physical(ok(scale_extent(input.format, input.rows, input.cols))));
    let mut mutant = input.clone();
    for index in 0..physical.count() {
        let to = layout.offset_by_digits(index / physical.cols, index % physical.cols, physical) * size;
        mutant.scales[to..][..size].copy_from_slice(&input.scales[index * size..][..size]);
    }
    if mutant.scales == input.scales {
        return None;
    }
    Some(run(contract, case, &prepared(contract, case), &mutant, case.routing))
}

/// The weight scales stay as the checkpoint has them.
fn identity_weight_scales(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    let scale = contract.weight.scale.as_ref()?;
    if scale.layout.is()?.digits == ROW_MAJOR.digits {
        return None;
    }
    let mut producer = contract.clone();
    producer.weight.scale = Some(WeightScale { layout: Known::Is(&ROW_MAJOR), ..scale.clone() });
    let (right, mut mutant) = (prepared(contract, case), prepared(&producer, case));
    mutant.gate_up.scales.resize(right.gate_up.scales.len(), 0);
    mutant.down.scales.resize(right.down.scales.len(), 0);
    Some(run(contract, case, &mutant, input, case.routing))
}

/// The weight scales are taken for rows once more, and put where the layout says again.
fn double_swizzled_weights(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    let scale = contract.weight.scale.as_ref()?;
    let (layout, size) = (scale.layout.is()?, contract.weight.format.block?.scale.bytes());
    if layout.digits == ROW_MAJOR.digits {
        return None;
    }
    let plan = ok(plan(contract, case.config.activation.kind(), prepared(contract, case).logical));
    let mut mutant = prepared(contract, case);
    for (plan, matrix) in [(&plan.gate_up, &mut mutant.gate_up), (&plan.down, &mut mutant.down)] {
        let physical = plan.scale.as_ref()?.physical;
        let once = matrix.scales.clone();
        let experts =
            once.chunks(physical.count() * size).zip(matrix.scales.chunks_mut(physical.count() * size));
        for (once, twice) in experts {
            for index in 0..physical.count() {
                let to =
                    layout.offset_by_digits(index / physical.cols, index % physical.cols, physical) * size;
                twice[to..][..size].copy_from_slice(&once[index * size..][..size]);
            }
        }
    }
    Some(run(contract, case, &mutant, input, case.routing))
}

/// The weight elements stay as the checkpoint has them.
fn identity_payload(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    let payload = contract.weight.payload.is()?;
    if payload.digits == ROW_MAJOR.digits {
        return None;
    }
    let row_major: &'static Payload =
        Box::leak(Box::new(Payload { digits: ROW_MAJOR.digits, word: None, ..*payload }));
    let mut producer = contract.clone();
    producer.weight.payload = Known::Is(row_major);
    Some(run(contract, case, &prepared(&producer, case), input, case.routing))
}

/// The kernel multiplies by 1 what it should multiply by the weights' second-level scale.
fn no_second_level(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    contract.weight.format.global?;
    let mut mutant = prepared(contract, case);
    let one = ok(Multiplier::new(1.0));
    mutant.gate_up.globals.fill(one);
    mutant.down.globals.fill(one);
    Some(run(contract, case, &mutant, input, case.routing))
}

/// Biases are in the order of their rows, where the kernel has an order of their own.
fn biases_as_rows(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    let bias = contract.weight.bias.filter(|bias| bias.order != BiasOrder::AsRows)?;
    case.weights.biases.as_ref()?;
    let mut producer = contract.clone();
    producer.weight.bias = Some(Bias { order: BiasOrder::AsRows, ..bias });
    Some(run(contract, case, &prepared(&producer, case), input, case.routing))
}

/// Gate is taken for up.
fn swapped_halves(contract: &Contract, case: &Case<'_>, input: &RawQuantized) -> Option<Outcome> {
    let kind = case.config.activation.kind();
    let order = contract.weight.gate_up_order(kind)?;
    let first = match order.first? {
        Half::Gate => Half::Up,
        Half::Up => Half::Gate,
    };
    let swapped: &'static Order = Box::leak(Box::new(Order { first: Some(first), ..*order }));
    let mut producer = contract.clone();
    producer.weight.gate_up = Box::leak(Box::new([(kind, swapped)]));
    Some(run(contract, case, &prepared(&producer, case), input, case.routing))
}

/// The fused weight is ordered first and padded at its end, instead of each half alone: row `p` of the
/// kernel holds what the order without padding has there. Made from weights that hold, for every row
/// that the kernel reads, what it would find.
fn end_padding(contract: &Contract, fixture: &Fixture, input: &RawQuantized) -> Option<Outcome> {
    let case = fixture.case();
    let order = contract.weight.gate_up_order(case.config.activation.kind())?;
    order.first?;
    let rows = case.weights.intermediate;
    let padded = rows.next_multiple_of(contract.weight.pad?.gated);
    if padded == rows || !rows.is_multiple_of(order.multiple) {
        return None;
    }
    let found = |half: Half, row: usize| {
        let position = order.position(order.half_index(half), row, padded);
        (position < 2 * rows).then(|| order.source(position, rows))
    };
    let moved = found(Half::Gate, rows - 1) != Some((order.half_index(Half::Gate), rows - 1))
        || found(Half::Up, rows - 1) != Some((order.half_index(Half::Up), rows - 1));
    if !moved {
        return None;
    }
    let gathered = gather_rows(&fixture.source, padded, |half, row| {
        found(half, row).map(|(index, row)| {
            (if index == order.half_index(Half::Gate) { Half::Gate } else { Half::Up }, row)
        })
    });
    let weights = taken_weights(contract, case.config.activation, &gathered);
    let mutant = ok(prepare(contract, case.config.activation.kind(), &weights));
    Some(run(contract, &case, &mutant, input, case.routing))
}

/// `weights` with `rows` rows a half, row `row` of `half` being what `source` says, or zero.
fn gather_rows(
    weights: &Canonical,
    rows: usize,
    source: impl Fn(Half, usize) -> Option<(Half, usize)>,
) -> Canonical {
    let stack_of = |half: Half| match (half, &weights.gate) {
        (Half::Gate, Some(gate)) => gate,
        (Half::Gate, None) | (Half::Up, _) => &weights.up,
    };
    let gather = |half: Half| {
        let old = stack_of(half);
        let payload_row = old.payload.len() / (weights.experts * old.rows);
        let scale_row = old.scales.len() / (weights.experts * old.rows);
        let mut new =
            Stack { globals: old.globals.clone(), ..Stack::new(rows, old.cols, Vec::new(), Vec::new()) };
        for expert in 0..weights.experts {
            for row in 0..rows {
                match source(half, row) {
                    Some((half, row)) => {
                        let (from, index) = (stack_of(half), expert * old.rows + row);
                        new.payload.extend(&from.payload[index * payload_row..][..payload_row]);
                        new.scales.extend(&from.scales[index * scale_row..][..scale_row]);
                    }
                    None => {
                        new.payload.extend(std::iter::repeat_n(0, payload_row));
                        new.scales.extend(std::iter::repeat_n(0, scale_row));
                    }
                }
            }
        }
        new
    };
    let widen = |bytes: &[u8], experts_rows: usize, grow: usize| -> Vec<u8> {
        let row = bytes.len() / experts_rows;
        bytes.chunks(row).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0, grow))).collect()
    };
    let (old, added) = (&weights.down, rows - weights.intermediate);
    let down = Stack {
        rows: old.rows,
        cols: rows,
        payload: widen(&old.payload, weights.experts * old.rows, added / 2),
        scales: widen(&old.scales, weights.experts * old.rows, added / 32),
        ..old.clone()
    };
    let biases = weights.biases.as_ref().map(|biases| {
        let of = |half: Half| match half {
            Half::Gate => &biases.gate,
            Half::Up => &biases.up,
        };
        let gather = |half: Half| {
            let places = (0..weights.experts).flat_map(|expert| (0..rows).map(move |row| (expert, row)));
            let value = |(expert, row): (usize, usize)| {
                source(half, row).map_or(0.0, |(half, row)| of(half)[expert * weights.intermediate + row])
            };
            places.map(value).collect()
        };
        Biases { gate: gather(Half::Gate), up: gather(Half::Up), down: biases.down.clone() }
    });
    Canonical {
        intermediate: rows,
        gate: weights.gate.as_ref().map(|_| gather(Half::Gate)),
        up: gather(Half::Up),
        down,
        biases,
        ..weights.clone()
    }
}
