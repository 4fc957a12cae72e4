//! The suites that every executed row has to pass, whatever its table. Generated code calls them, one
//! test a suite and row.
//!
//! They panic when a row fails, as tests do, with the row and what differs.

#![allow(clippy::print_stdout, reason = "a test prints the row that it is about")]

mod fixtures;
mod measure;
mod misread;
mod mutants;

pub use measure::{Adapted, Case, Failure, Measure, TOLERANCE, adapt, calibrate, measure};
pub use misread::Misread;
pub use mutants::mutants;

use std::collections::HashSet;

use crate::backend::{Contract, Known};
use crate::cpu::quantize::quantize_prepared;
use crate::layout::{Extent, Layout, UNSCALED};
use crate::recipe::Recipe;
use crate::reference;
use crate::tensor::{Tokens, scale_extent};
use crate::transport::{DeliverError, Delivery, Route, deliver, describe};

use fixtures::{Fixture, distinct_tokens};
use measure::calibrated_on;

/// Every layout of the row is a bijection on its physical box, and the emitted map is the digits'.
/// The quantiser puts every scale where the digits say, and zero everywhere else.
///
/// # Panics
/// If it is not so.
pub fn layouts(contract: &'static Contract) {
    let input = contract.gemm1_input.layout.is();
    let gemm2 = contract.gemm2_input.as_ref().and_then(|input| input.layout.is());
    let weight = contract.weight.scale.as_ref().and_then(|scale| scale.layout.is());
    let of_inputs = input.into_iter().chain(gemm2).flat_map(|layout| [layout.prepared, layout.kernel]);
    for layout in of_inputs.chain(weight).filter(|layout| **layout != UNSCALED) {
        println!("{}: {}", contract.name, layout.name);
        for logical in fixtures::SCALE_SHAPES {
            is_a_bijection(layout, logical);
        }
    }
    for (rows, cols) in fixtures::TOKEN_SHAPES {
        scales_are_in_place(contract, rows, cols);
    }
}

/// The tests of a row: each suite of this module on its contract.
#[macro_export]
macro_rules! conformance_tests {
    ($contract:expr) => {
        $crate::conformance_tests!($contract, layouts transports layer mutants);
    };
    ($contract:expr, $($suite:ident)*) => {
        $(#[test]
        fn $suite() {
            $crate::conformance::$suite(&$contract);
        })*
    };
}

fn is_a_bijection(layout: &Layout, logical: Extent) {
    // A layout that refuses the size says so; it is asked for the next size that it takes.
    let physical = layout.physical(logical).or_else(|_| {
        let (crate::layout::Fit::Pad(multiple) | crate::layout::Fit::Divide(multiple)) = layout.fit;
        layout.physical(Extent {
            rows: logical.rows.next_multiple_of(multiple.rows),
            cols: logical.cols.next_multiple_of(multiple.cols),
        })
    });
    let physical = physical.unwrap_or_else(|error| panic!("{error}"));
    let mut seen = HashSet::new();
    for row in 0..physical.rows {
        for col in 0..physical.cols {
            let offset = (layout.offset)(row, col, physical);
            let place = format!("({row}, {col}) of {} in {physical:?}", layout.name);
            assert_eq!(offset, layout.offset_by_digits(row, col, physical), "{place}");
            assert_eq!((layout.locate)(offset, physical), (row, col), "{place}");
            assert_eq!(layout.locate_by_digits(offset, physical), (row, col), "{place}");
            assert!(offset < physical.count() && seen.insert(offset), "{place} is stored at {offset} twice");
        }
    }
}

fn scales_are_in_place(contract: &'static Contract, rows: usize, cols: usize) {
    let (format, input) = (fixtures::handed(contract), &contract.gemm1_input);
    let (Known::Is(layout), Some(block)) = (input.layout, format.block) else { return };
    let (rows, cols) = fixtures::taken(contract, rows, cols);
    let values = distinct_tokens(rows, cols, format);
    let calibrated = ok(calibrated_on(input, &values));
    let raw = ok(quantize_prepared(contract, format, calibrated, ok(Tokens::new(&values, rows, cols))));
    let logical = ok(scale_extent(format, raw.rows, raw.cols));
    let physical = ok(layout.prepared.physical(logical));
    let size = block.scale.bytes();

    let recipe = Recipe { rounding: input.rounding, calibrated, ..Recipe::default() };
    let padding = || std::iter::repeat_n(0.0, raw.cols - cols);
    let padded = values.chunks(cols).flat_map(|row| row.iter().map(|value| value.to_f64()).chain(padding()));
    let scales = ok(reference::quantize_rows(&padded.collect::<Vec<_>>(), raw.cols, format, recipe)).scales;
    let mut expected = vec![0; physical.count() * size];
    for (index, scale) in scales.chunks(size).enumerate() {
        let (row, col) = (index / logical.cols, index % logical.cols);
        let offset = layout.prepared.offset_by_digits(row, col, physical);
        expected[offset * size..][..size].copy_from_slice(scale);
    }
    assert!(
        raw.scales == expected,
        "{}: scales of {rows}x{cols} tokens are not where the row says",
        contract.name
    );
}

fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Behind every transport that serves the row, the backend is handed the bytes that it is handed
/// without one.
///
/// # Panics
/// If it is not so.
pub fn transports(contract: &'static Contract) {
    for (route, (name, words)) in contract.routes.iter().zip(describe(contract)) {
        println!("{} behind {name}: {words}", contract.name);
        transport(contract, route);
    }
}

fn transport(contract: &'static Contract, route: &Route) {
    let (row, name) = (contract.name, route.transport.name);
    let format = fixtures::handed(contract);
    let first = 3;
    let Some(least) = route.hidden_from(288) else { panic!("{name} carries no hidden size to {row}") };
    let (rows, cols) = fixtures::taken(contract, first + 2, least);
    let values = distinct_tokens(rows, cols, format);
    // Where the experts quantise, what travels has no scale to give.
    let calibrated = match format.block {
        Some(_) => ok(calibrated_on(&contract.gemm1_input, &values)),
        None => None,
    };
    let tokens = |values| ok(Tokens::new(values, values.len() / cols, cols));
    let (one, two) = values.split_at(first * cols);
    let (all, parts) = ([tokens(&values)], [tokens(one), tokens(two)]);
    let ranks: &[_] = if matches!(route.delivery, Delivery::Local) { &all } else { &parts };
    match (route.delivery, deliver(contract, format, calibrated, name, ranks)) {
        (Delivery::Refused(_), Err(DeliverError::Refused { .. })) => {}
        (Delivery::Refused(_), Ok(_)) => panic!("{row} is served by {name}"),
        (_, Ok(arrived)) => {
            let together = ok(quantize_prepared(contract, format, calibrated, tokens(&values)));
            let same = arrived.payload == together.payload && arrived.scales == together.scales;
            assert!(same, "{row} is handed other bytes behind {name}");
        }
        (_, Err(error)) => panic!("{row} behind {name}: {error}"),
    }
}

/// A layer on the row agrees with the reference on the same quantised operands, and disagrees when
/// the scales of its tokens are read in another layout.
///
/// # Panics
/// If it is not so.
pub fn layer(contract: &'static Contract) {
    for fixture in Fixture::all(contract) {
        let measure = ok(measure(contract, &fixture.case()));
        let (error, misread) = (measure.error_quantised, measure.misread);
        println!("{} {}: {error:e}, misread {misread:?}", contract.name, fixture.name);
        assert!(error <= TOLERANCE, "{} is off by {error} on {}", contract.name, fixture.name);
        // Of one token few scales are elsewhere in another layout.
        if let (Misread::OffBy(wrong), false) = (misread, fixture.is_one_token()) {
            let least = 10.0 * error.max(TOLERANCE);
            assert!(wrong >= least, "{}: a misread layout is off by {wrong} only", contract.name);
        }
    }
}
