//! vLLM #42118: scales travel row by row and are swizzled on arrival, but only where the type is called
//! "nvfp4". With experts on several ranks every completion of an MXFP8 backend was empty.

use half::bf16;
use scalewright::backend::Contract;
use scalewright::cpu::quantize::quantize;
use scalewright::cpu::relayout::relayout;
use scalewright::format::FormatSpec;
use scalewright::generated::BackendId;
use scalewright::generated::formats::{MXFP8, NVFP4};
use scalewright::generated::layouts::LINEAR;
use scalewright::recipe::Recipe;
use scalewright::scale::{Calibrated, Divisor};
use scalewright::tensor::{RawQuantized, Tokens};
use scalewright::transport::{Delivery, deliver};

const HIDDEN: usize = 256;
/// Tokens of each rank. Together they fill a tile of the swizzle, so that no size tells.
const RANKS: [usize; 3] = [37, 0, 91];
/// All that vLLM's guard stands in.
const GUARDED: [&str; 3] = ["naive_dp_ep", "flashinfer_one_sided", "flashinfer_two_sided"];

/// Blocks and rows that are powers of two apart: a misplaced scale is a wrong one.
fn values() -> Vec<bf16> {
    let rows: usize = RANKS.iter().sum();
    let value = |index: usize| {
        let (row, block) = (index / HIDDEN, index % HIDDEN / 16);
        let exponent = ((5 * row + 3 * block) % 11) as f32 - 5.0;
        bf16::from_f32((1.0 + (index * 7 % 13) as f32 / 16.0) * exponent.exp2())
    };
    (0..rows * HIDDEN).map(value).collect()
}

fn ranks(values: &[bf16]) -> Vec<Tokens<'_, bf16>> {
    let mut rest = values;
    let rank = |rows: &usize| {
        let (mine, others) = rest.split_at(rows * HIDDEN);
        rest = others;
        Tokens::new(mine, *rows, HIDDEN).unwrap()
    };
    RANKS.iter().map(rank).collect()
}

fn calibrated(format: &FormatSpec) -> Option<Calibrated> {
    format.global.map(|_| Calibrated::Global(Divisor::new(448.0).unwrap()))
}

/// What the kernel is handed where tokens stay on their rank.
fn local(contract: &'static Contract, format: &'static FormatSpec, values: &[bf16]) -> RawQuantized {
    let tokens = Tokens::new(values, values.len() / HIDDEN, HIDDEN).unwrap();
    deliver(contract, format, calibrated(format), "no_dp_ep", &[tokens]).unwrap()
}

/// vLLM's arrival: quantised row by row, sent, and swizzled where the type's name is the one that the
/// guard knows.
fn guarded(contract: &'static Contract, format: &'static FormatSpec, values: &[bf16]) -> RawQuantized {
    let tokens = Tokens::new(values, values.len() / HIDDEN, HIDDEN).unwrap();
    let input = &contract.gemm1_input;
    let recipe = Recipe { rounding: input.rounding, calibrated: calibrated(format), ..Recipe::default() };
    let arrived = quantize(tokens, format, recipe, &LINEAR, input.multiple).unwrap();
    if format.name == "nvfp4" {
        relayout(&arrived, input.layout.is().unwrap().prepared).unwrap()
    } else {
        arrived
    }
}

fn same(one: &RawQuantized, other: &RawQuantized) -> (bool, bool) {
    (one.payload == other.payload, one.scales == other.scales)
}

#[test]
fn what_arrives_is_what_stays() {
    let values = values();
    for (row, format) in
        [(BackendId::FlashinferCutlassMxfp4Mxfp8, &MXFP8), (BackendId::FlashinferCutlassNvfp4, &NVFP4)]
    {
        let contract = row.contract();
        let local = local(contract, format, &values);
        for transport in GUARDED {
            let arrived = deliver(contract, format, calibrated(format), transport, &ranks(&values)).unwrap();
            assert_eq!(same(&arrived, &local), (true, true), "{row} behind {transport}");
        }
    }
}

/// With the type's name in the place of the layout, one of two rows that read the same layout is handed
/// another one. Payload and sizes are right: nothing but numbers tells.
#[test]
fn the_guard_hands_over_scales_in_another_layout() {
    let values = values();
    let mxfp8 = BackendId::FlashinferCutlassMxfp4Mxfp8.contract();
    let (wrong, right) = (guarded(mxfp8, &MXFP8, &values), local(mxfp8, &MXFP8, &values));
    assert_eq!(same(&wrong, &right), (true, false));
    assert_eq!(wrong.scales.len(), right.scales.len());

    let nvfp4 = BackendId::FlashinferCutlassNvfp4.contract();
    assert_eq!(same(&guarded(nvfp4, &NVFP4, &values), &local(nvfp4, &NVFP4, &values)), (true, true));
}

/// The conversion follows from the two layouts, whatever the type is called.
#[test]
fn the_table_converts_where_the_guard_does_not() {
    let routes = BackendId::FlashinferCutlassMxfp4Mxfp8.contract().routes;
    for transport in GUARDED {
        let route = routes.iter().find(|route| route.transport.name == transport).unwrap();
        let Delivery::Convert { wire, prepared } = route.delivery else {
            panic!("{transport} converts nothing")
        };
        assert_eq!((wire.name, prepared.name), ("linear", "swizzled_128x4"));
    }
}
