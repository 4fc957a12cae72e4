//! Public layout bugs as tests, by their number in the catalogue they were collected in. Expected
//! numbers were computed apart from this crate, from the closed forms.

use half::bf16;
use scalewright::config::{ActivationFunction, LayerConfig};
use scalewright::cpu::layer::forward;
use scalewright::cpu::quantize::{quantize_input, quantize_prepared};
use scalewright::format::{ElementType, FormatSpec};
use scalewright::generated::BackendId;
use scalewright::generated::backends::{
    FlashinferCutlassMxfp4Mxfp8 as Cutlass, FlashinferTrtllmMxfp4Mxfp8 as Trtllm,
    flashinfer_cutlass_mxfp4_mxfp8, flashinfer_trtllm_mxfp4_mxfp8,
};
use scalewright::generated::formats::{BF16, Mxfp8};
use scalewright::generated::layouts::{
    LAYOUTS, Linear, ORDER_GATE_UP_8, ORDER_GATE_UP_16, ORDER_GATE_UP_INTERLEAVED, ORDER_UP_GATE,
    PAYLOAD_BLOCK_MAJOR_K128, PAYLOAD_MARLIN_4BIT, PAYLOAD_MARLIN_8BIT, SWIZZLED_8X4, SWIZZLED_128X4,
    Swizzled128x4,
};
use scalewright::layout::{Extent, Half, Layout, Order, ScaleLayout};
use scalewright::moe::activation::activate;
use scalewright::moe::routing::Routing;
use scalewright::tensor::{Quantized, Tokens};
use scalewright::weights::canonical::{Canonical, Stack};
use scalewright::weights::prepared::prepare;

/// Tokens whose scale bytes are `1 + 8 * token + block`, as e8m0 chosen by rceil.
fn t01_tokens() -> Vec<bf16> {
    let value = |token: usize, col: usize| {
        let byte = (1 + 8 * token + col / 32) as i32;
        // The largest e4m3 times the scale; signs and smaller values beside it do not change the scale.
        let largest = 448.0 * f32::powi(2.0, byte - 127);
        if col.is_multiple_of(32) { largest } else { -largest / 4.0 }
    };
    (0..5 * 256).map(|index| bf16::from_f32(value(index / 256, index % 256))).collect()
}

#[test]
fn t01_one_branch_of_two_siblings() {
    let values = t01_tokens();
    let tokens = Tokens::new(&values, 5, 256).unwrap();

    let config = Cutlass::config(flashinfer_cutlass_mxfp4_mxfp8::Activation::Silu);
    let cutlass: Quantized<Mxfp8, Swizzled128x4> = quantize_input(&config, tokens).unwrap();
    let scales = cutlass.scales();
    assert_eq!(scales.len(), 1024);
    // (1, 0) at 16, (0, 4) at 512, (4, 7) at 579.
    assert_eq!((scales[16], scales[512], scales[579]), (9, 5, 40));
    assert_eq!(scales.iter().filter(|byte| **byte != 0).count(), 40);

    let config = Trtllm::config(flashinfer_trtllm_mxfp4_mxfp8::Activation::Silu);
    let trtllm: Quantized<Mxfp8, Linear> = quantize_input(&config, tokens).unwrap();
    assert_eq!(trtllm.scales(), (1..=40).collect::<Vec<u8>>());
    assert_eq!(trtllm.payload(), cutlass.payload());

    // That the linear buffer does not compile for the CUTLASS row is in `tests/ui`; here it is refused
    // when it comes from outside.
    let outside =
        Quantized::<Mxfp8, Swizzled128x4>::load(5, 256, trtllm.payload().to_vec(), trtllm.scales().to_vec());
    assert!(outside.unwrap_err().to_string().contains("take 1024 bytes in layout `swizzled_128x4`, not 40"));
}

#[test]
fn t03_a_tactic_dependent_layout() {
    // 128 x 8 scales; 40 rows of them live, the others padding.
    let logical = Extent { rows: 128, cols: 8 };
    let (large, small) = (&SWIZZLED_128X4, &SWIZZLED_8X4);
    assert_eq!(large.physical(logical).unwrap().count(), 1024);
    assert_eq!(small.physical(logical).unwrap().count(), 1024);

    let places = || (0..128).flat_map(|row| (0..8).map(move |col| (row, col)));
    let offset = |layout: &Layout, (row, col)| (layout.offset)(row, col, logical);
    assert_eq!(places().filter(|place| offset(large, *place) == offset(small, *place)).count(), 16);

    // Scales written in one, read in the other: pad bytes in 208 of the 320 live cells.
    let mut stored = vec![0x7F; 1024];
    for (index, place) in places().take(40 * 8).enumerate() {
        stored[offset(small, place)] = (index % 100) as u8;
    }
    let misread = places().take(40 * 8).filter(|place| stored[offset(large, *place)] == 0x7F).count();
    assert_eq!(misread, 208);
}

#[test]
fn t05_the_stride_of_one_expert() {
    // NVFP4 w2 of 32 experts, 2880 x 2880: 180 columns of scales.
    let physical = SWIZZLED_128X4.physical(Extent { rows: 2880, cols: 180 }).unwrap();
    assert_eq!(physical, Extent { rows: 2944, cols: 180 });
    let stride = physical.count();
    assert_eq!(stride, 529_920);
    // By logical rows, expert 1 would begin early and expert 31 be off by all that was skipped.
    let wrong = 2880 * 180;
    assert_eq!((wrong, 31 * (stride - wrong)), (518_400, 357_120));
}

#[test]
fn t05_experts_are_padded_one_by_one() {
    // The same with weights that the CUTLASS row prepares: 2 experts, down 160 x 96, so 3 columns.
    let contract = BackendId::FlashinferCutlassMxfp4Mxfp8.contract();
    let stack = |rows: usize, cols: usize, first: usize| {
        let scales = (0..2 * rows * cols / 32).map(|index| (first + index % 120) as u8).collect();
        Stack::new(rows, cols, vec![0x22; 2 * rows * cols / 2], scales)
    };
    let weights = Canonical {
        format: contract.weight.format,
        experts: 2,
        hidden: 160,
        intermediate: 96,
        gate: Some(stack(96, 160, 1)),
        up: stack(96, 160, 1),
        down: stack(160, 96, 1),
        biases: None,
    };
    let prepared = prepare(contract, scalewright::backend::Activation::Silu, &weights).unwrap();
    // 160 rows are padded to 256, 96 columns to 128: 4 columns of scales.
    let stride = 256 * 4;
    assert_eq!(prepared.down.scales.len(), 2 * stride);
    for (expert, row, col) in [(0, 0, 0), (0, 159, 2), (1, 0, 0), (1, 33, 1), (1, 159, 2)] {
        let offset = row / 128 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col;
        let loaded = weights.down.scales[(expert * 160 + row) * 3 + col];
        assert_eq!(prepared.down.scales[expert * stride + offset], loaded, "expert {expert}, ({row}, {col})");
    }
    // Padding is the row's fill: 0.
    assert_eq!(prepared.down.scales[stride + 3], 0);
}

#[test]
fn t10_the_granularity_of_interleaving() {
    let place = |order: &Order, half, row| order.position(order.half_index(half), row, 32);
    let (by_16, by_8, by_1) = (&ORDER_GATE_UP_16, &ORDER_GATE_UP_8, &ORDER_GATE_UP_INTERLEAVED);
    assert_eq!([by_16, by_8, by_1].map(|order| place(order, Half::Gate, 9)), [9, 17, 18]);
    assert_eq!([by_16, by_8, by_1].map(|order| place(order, Half::Up, 0)), [16, 8, 1]);
    // Half of the rows agree between 16 and 8, so all of them are looked at.
    let agree = (0..64).filter(|position| by_16.source(*position, 32) == by_8.source(*position, 32)).count();
    assert_eq!(agree, 32);
    for order in [by_16, by_8, by_1] {
        for half in 0..2 {
            for row in 0..32 {
                assert_eq!(order.source(order.position(half, row, 32), 32), (half, row));
            }
        }
    }
}

/// Weights of one element each, unquantised: nothing but the order of halves is at stake.
#[test]
fn t09_swapped_halves() {
    assert!((activate(ActivationFunction::SILU, 1.0, 2.0) - 1.462_117).abs() < 1e-6);
    assert!((activate(ActivationFunction::SILU, 2.0, 1.0) - 1.761_594).abs() < 1e-6);

    let one = |value: f32| Stack::new(1, 1, bf16::from_f32(value).to_le_bytes().to_vec(), Vec::new());
    let format: &'static FormatSpec = &BF16;
    assert_eq!(format.element, ElementType::Bf16);
    let weights = Canonical {
        format,
        experts: 1,
        hidden: 1,
        intermediate: 1,
        gate: Some(one(1.0)),
        up: one(2.0),
        down: one(1.0),
        biases: None,
    };
    // The CUTLASS row's order, which is [up; gate], on 16-bit numbers.
    let mut contract = BackendId::FlashinferCutlassMxfp4Mxfp8.contract().clone();
    assert_eq!(contract.weight.gate_up[0].1.name, ORDER_UP_GATE.name);
    let unscaled = scalewright::backend::InputLayout {
        prepared: &scalewright::layout::UNSCALED,
        kernel: &scalewright::layout::UNSCALED,
    };
    contract.weight.format = format;
    contract.weight.scale = None;
    static FORMATS: &[&FormatSpec] = &[&BF16];
    contract.gemm1_input.formats = FORMATS;
    contract.gemm1_input.rounding = None;
    contract.gemm1_input.quantize = None;
    contract.gemm1_input.layout = scalewright::backend::Known::Is(unscaled);
    contract.gemm2_input = Some(contract.gemm1_input.clone());

    let prepared = prepare(&contract, scalewright::backend::Activation::Silu, &weights).unwrap();
    let x = [bf16::ONE];
    let input = quantize_prepared(&contract, format, None, Tokens::new(&x, 1, 1).unwrap()).unwrap();
    let routing = Routing::new(1, 1, 1, vec![0], vec![1.0]).unwrap();
    let config = LayerConfig::dynamic(ActivationFunction::SILU);
    let output = forward(&contract, &config, &prepared, &input, &routing).unwrap();
    // bf16 of 1.462117, and not of 1.761594.
    assert_eq!(output, [bf16::from_f32(1.462_117)]);
}

/// The closed form of each layout, written out, on a size that none of its tiles divides evenly where
/// it pads. Shapes beyond the tiles show the outermost digits.
#[test]
fn layouts_equal_their_closed_forms() {
    type Closed = fn(usize, usize, Extent) -> usize;
    let closed: [(&str, Closed); 19] = [
        ("linear", |m, k, p| m * p.cols + k),
        ("swizzled_128x4", |m, k, p| {
            (m / 128) * (p.cols / 4) * 512 + (k / 4) * 512 + (m % 32) * 16 + ((m % 128) / 32) * 4 + k % 4
        }),
        ("swizzled_8x4", |m, k, p| (m / 8) * (p.cols / 4) * 32 + (k / 4) * 32 + (m % 8) * 4 + k % 4),
        ("swizzled_8x16", |m, k, p| (m / 8) * (p.cols / 16) * 128 + (k / 16) * 128 + (m % 8) * 16 + k % 16),
        ("mn_major_f32", |m, k, p| k * p.rows + m),
        ("mn_major_unpadded_f32", |m, k, p| k * p.rows + m),
        ("packed_ue8m0", |m, k, p| 4 * ((k / 4) * p.rows + m) + k % 4),
        ("packed_ue8m0_rows", |m, k, p| m * p.cols + k),
        ("humming_umma", |m, k, p| {
            (k / 4) * (p.rows * 4) + (m / 128) * 512 + (m % 32) * 16 + ((m % 128) / 32) * 4 + k % 4
        }),
        ("humming_mxmma4", |m, k, p| 4 * ((k / 4) * p.rows + m) + k % 4),
        // dst c of 64 is source (c % 8) * 8 + c / 8, so source n is at (n % 8) * 8 + n / 8.
        ("marlin_grouped", |m, k, p| k * p.rows + (m / 64) * 64 + (m % 8) * 8 + (m % 64) / 8),
        // The grouped order, then 0 2 1 3 within each four.
        ("marlin_mxfp4_a16", |m, k, p| {
            let grouped = (m % 8) * 8 + (m % 64) / 8;
            k * p.rows + (m / 64) * 64 + grouped / 4 * 4 + [0, 2, 1, 3][grouped % 4]
        }),
        // dst c of 32 is source 2 (c / 8) + 8 ((c % 8) / 2) + c % 2.
        ("marlin_channel", |m, k, p| {
            let c = (0..32).find(|c| 2 * (c / 8) + 8 * ((c % 8) / 2) + c % 2 == m % 32).unwrap();
            k * p.rows + (m / 32) * 32 + c
        }),
        ("triton_hopper_8warps", |m, k, p| hopper(m, k, p, 8)),
        ("triton_hopper_4warps", |m, k, p| hopper(m, k, p, 4)),
        ("triton_blackwell", |m, k, p| {
            (m / 128) * (p.cols / 4) * 512 + (k / 4) * 512 + (m % 32) * 16 + ((m % 128) / 32) * 4 + k % 4
        }),
        ("triton_cdna4", |m, k, p| {
            (m / 32) * p.cols * 32
                + (k / 8) * 256
                + (k % 4) * 64
                + (m % 16) * 4
                + (k % 8) / 4 * 2
                + (m % 32) / 16
        }),
        ("flashinfer_sm90_fold_block32", |m, k, p| {
            ((m / 64 * (p.cols / 4) + k / 4) * 16 + m % 16) * 16 + (m % 64) / 16 * 4 + k % 4
        }),
        ("flashinfer_sm90_fold_block128", |m, k, p| ((m / 64 * p.cols + k) * 8 + m % 8) * 8 + (m % 64) / 8),
    ];
    for (name, closed) in closed {
        let layout = LAYOUTS.iter().find(|layout| layout.name == name).unwrap();
        let logical = Extent { rows: 300, cols: 90 };
        let physical = layout.physical(logical).unwrap_or(Extent { rows: 320, cols: 96 });
        let physical = layout.physical(physical).unwrap();
        for row in 0..physical.rows {
            for col in 0..physical.cols {
                let offset = closed(row, col, physical);
                assert_eq!((layout.offset)(row, col, physical), offset, "{name} ({row}, {col})");
                assert_eq!(layout.offset_by_digits(row, col, physical), offset, "{name} ({row}, {col})");
                assert_eq!((layout.locate)(offset, physical), (row, col), "{name} {offset}");
            }
        }
    }
}

/// Rows of 32 · warps to a tile, a tile's columns two by two; rows of a tile: warp, then 8 lanes and
/// the two halves on either side of the column.
fn hopper(m: usize, k: usize, physical: Extent, warps: usize) -> usize {
    let tile = 32 * warps;
    let warp = m / 16 % warps;
    let offset = (m / tile) * warps + warp;
    let offset = offset * (physical.cols / 2) + k / 2;
    let offset = offset * 2 + m / (16 * warps) % 2;
    let offset = offset * 8 + m % 8;
    (offset * 2 + k % 2) * 2 + m / 8 % 2
}

#[test]
fn the_known_offsets_of_a_small_matrix() {
    // R = 130, C = 5: a box of 256 x 8.
    let physical = SWIZZLED_128X4.physical(Extent { rows: 130, cols: 5 }).unwrap();
    assert_eq!(physical.count(), 2048);
    for (row, col, offset) in
        [(0, 4, 512), (32, 0, 4), (96, 2, 14), (127, 3, 511), (128, 0, 1024), (129, 4, 1552)]
    {
        assert_eq!(Swizzled128x4::offset(row, col, physical), offset);
    }
    // R = 13, C = 7: a box of 16 x 8.
    let physical = SWIZZLED_8X4.physical(Extent { rows: 13, cols: 7 }).unwrap();
    for (row, col, offset) in [(0, 4, 32), (1, 0, 4), (7, 3, 31), (8, 0, 64), (12, 6, 114)] {
        assert_eq!((SWIZZLED_8X4.offset)(row, col, physical), offset);
    }
    // The first stored columns of Marlin's MXFP4 scales.
    let marlin = LAYOUTS.iter().find(|layout| layout.name == "marlin_mxfp4_a16").unwrap();
    let first: Vec<usize> =
        (0..16).map(|offset| (marlin.locate)(offset, Extent { rows: 64, cols: 1 }).0).collect();
    assert_eq!(first, [0, 16, 8, 24, 32, 48, 40, 56, 1, 17, 9, 25, 33, 49, 41, 57]);
}

#[test]
fn payloads_equal_their_closed_forms() {
    let inverse = |order: &[usize], index: usize| order.iter().position(|entry| *entry == index).unwrap();
    let extent = Extent { rows: 128, cols: 256 };
    for n in 0..extent.rows {
        for k in 0..extent.cols {
            let tile = k / 16 * (extent.rows / 64) * 1024;
            let lane = n % 8 * 4 + k % 8 / 2;
            let index = k / 8 % 2 * 2 + k % 2 + 4 * (n / 8 % 2);
            let at = |position| tile + n / 64 * 1024 + lane * 32 + n / 16 % 4 * 8 + position;
            let four_bits = at(inverse(&[0, 2, 4, 6, 1, 3, 5, 7], index));
            let eight_bits = at(index / 4 * 4 + inverse(&[0, 2, 1, 3], index % 4));
            assert_eq!(PAYLOAD_MARLIN_4BIT.offset(n, k, extent), four_bits, "({n}, {k})");
            assert_eq!(PAYLOAD_MARLIN_8BIT.offset(n, k, extent), eight_bits, "({n}, {k})");
            let blocks = k / 128 * extent.rows * 128 + n * 128 + k % 128;
            assert_eq!(PAYLOAD_BLOCK_MAJOR_K128.offset(n, k, extent), blocks, "({n}, {k})");
        }
    }
}
