use super::*;
use crate::backend::{BiasOrder, Kernel, Known, WeightContract, WeightPad};
use crate::cpu::fixtures::*;
use crate::weights::canonical::{Biases, Stack};

const SILU: Activation = Activation::Silu;

/// Two experts of hidden 2 and intermediate 3; the values say expert, half (1 gate, 2 up, 3 down),
/// row and column.
fn tagged() -> Canonical {
    let matrix = |half: usize, rows: usize, cols: usize| {
        let tag = |at: usize| {
            let (expert, row, col) = (at / (rows * cols), at / cols % rows, at % cols);
            (64 * expert + 16 * half + 4 * row + col) as f32
        };
        let values: Vec<f32> = (0..2 * rows * cols).map(tag).collect();
        bf16_stack(rows, cols, &values)
    };
    let (gate, up, down) = (Some(matrix(1, 3, 2)), matrix(2, 3, 2), matrix(3, 2, 3));
    Canonical { format: &BF16, experts: 2, hidden: 2, intermediate: 3, gate, up, down, biases: None }
}

fn padded(contract: Contract) -> Contract {
    let pad = Some(WeightPad { hidden: 2, gated: 4, plain: 4, fill: 0 });
    Contract { weight: WeightContract { pad, ..contract.weight }, ..contract }
}

fn values(matrix: &PreparedMatrix) -> Vec<f32> {
    matrix.payload.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect()
}

#[test]
fn each_half_is_padded_alone_before_the_order() {
    let prepared = prepare(&padded(plain()), SILU, &tagged()).unwrap();
    assert_eq!(prepared.physical, Physical { hidden: 2, intermediate: 4 });
    let gate_up = values(&prepared.gate_up);
    // Up first, its padding row, gate, its padding row; then the second expert.
    assert_eq!(gate_up[..8], [32.0, 33.0, 36.0, 37.0, 40.0, 41.0, 0.0, 0.0]);
    assert_eq!(gate_up[8..16], [16.0, 17.0, 20.0, 21.0, 24.0, 25.0, 0.0, 0.0]);
    assert_eq!(gate_up[16..18], [96.0, 97.0]);
    let down = values(&prepared.down);
    assert_eq!(down[..8], [48.0, 49.0, 50.0, 0.0, 52.0, 53.0, 54.0, 0.0]);
}

#[test]
fn orders_move_rows_and_biases_alike() {
    let mut contract = padded(plain());
    contract.weight.gate_up = BY_PAIRS;
    let mut canonical = tagged();
    let bias = |first: f32, count: usize| (0..count).map(|at| first + at as f32).collect();
    canonical.biases = Some(Biases { gate: bias(10.0, 6), up: bias(20.0, 6), down: bias(30.0, 4) });
    let prepared = prepare(&contract, SILU, &canonical).unwrap();
    let firsts: Vec<f32> = values(&prepared.gate_up).into_iter().step_by(2).collect();
    assert_eq!(firsts[..8], [16.0, 32.0, 20.0, 36.0, 24.0, 40.0, 0.0, 0.0]);
    let bias = prepared.gate_up.bias.unwrap();
    assert_eq!(bias[..8], [10.0, 20.0, 11.0, 21.0, 12.0, 22.0, 0.0, 0.0]);
    assert_eq!(bias[8..10], [13.0, 23.0]);
    assert_eq!(prepared.down.bias.unwrap(), [30.0, 31.0, 32.0, 33.0]);

    contract.weight.bias = None;
    assert_eq!(
        prepare(&contract, SILU, &canonical).unwrap_err(),
        PrepareError::BiasRefused { row: "by_hand" }
    );
}

#[test]
fn payload_digits_move_elements() {
    let mut contract = padded(plain());
    contract.weight.payload = Known::Is(&TILED);
    let gate_up = values(&prepare(&contract, SILU, &tagged()).unwrap().gate_up);
    assert_eq!(gate_up[..8], [32.0, 36.0, 33.0, 37.0, 40.0, 0.0, 41.0, 0.0]);
}

/// One block of 32 a row, its scale byte the row's number and `first`.
fn fp4_stack(first: u8, rows: usize) -> Stack {
    let scales = (0..2 * rows).map(|row| first + row as u8).collect();
    Stack::new(rows, 32, vec![0x22; 2 * rows * 16], scales)
}

#[test]
fn scales_follow_their_rows_into_the_layout() {
    let contract = mx(&SWIZZLED, crate::backend::Grouping::Tokens);
    let (gate, up, down) = (Some(fp4_stack(1, 32)), fp4_stack(101, 32), fp4_stack(1, 32));
    let canonical =
        Canonical { format: &MXFP4, experts: 2, hidden: 32, intermediate: 32, gate, up, down, biases: None };
    let prepared = prepare(&contract, SILU, &canonical).unwrap();
    // Halves are padded to 64 rows and the hidden size to 64 elements, so an expert has 128 x 32
    // bytes of elements and a box of 128 x 4 scales.
    let scales = &prepared.gate_up.scales;
    assert_eq!((prepared.gate_up.payload.len(), scales.len()), (2 * 4096, 2 * 512));
    // Up row 1 is stored row 1, gate row 0 stored row 64: bytes 16 and 8. Stored row 32 is padding.
    assert_eq!((scales[16], scales[8], scales[4]), (102, 1, 0));
    assert_eq!((scales[512 + 16], scales[512 + 8]), (134, 33));
    assert_eq!(prepared.gate_up.payload[4096..][..17], [[0x22; 16].as_slice(), &[0]].concat());
}

#[test]
fn an_order_that_tears_a_scale_block_is_refused() {
    let mut contract = plain();
    contract.weight.format = &FP8_TILES;
    contract.weight.requantize_from = Some(&BF16);
    contract.weight.scale = Some(weight_scale(&LINEAR));
    // Halves of three rows in blocks of two: the second half begins inside a block.
    let torn = |contract: &Contract| prepare(contract, SILU, &tagged()).unwrap_err();
    assert!(matches!(torn(&contract), PrepareError::TornBlock { order: "up_gate", position: 3, .. }));
    let mut contract = padded(contract);
    contract.weight.gate_up = BY_PAIRS;
    assert!(matches!(
        torn(&contract),
        PrepareError::TornBlock { order: "gate_up_interleaved", position: 1, .. }
    ));
    // Scales repeated for every row can follow any order.
    contract.weight.scale.as_mut().unwrap().repeat_rows = 2;
    let repeated = prepare(&contract, SILU, &tagged()).unwrap();
    assert_eq!(repeated.gate_up.scales.len(), 2 * 8 * 4);
    contract.weight.gate_up = BY_UP_GATE;
    contract.weight.scale.as_mut().unwrap().repeat_rows = 1;
    let prepared = prepare(&contract, SILU, &tagged()).unwrap();
    assert_eq!(prepared.requantized_from, Some(&BF16));
    assert_eq!(prepared.gate_up.scales.len(), 2 * 4 * 4);
    // The first tile of up holds 32 to 37.
    assert_eq!(prepared.gate_up.scales[..4], (37.0f32 / 448.0).to_le_bytes());
}

/// Weights of another format are not requantised behind the caller's back.
#[test]
fn only_the_formats_of_the_row_are_taken() {
    let mut contract = padded(plain());
    contract.weight.format = &FP8_TILES;
    contract.weight.scale = Some(weight_scale(&LINEAR));
    contract.weight.gate_up = BY_UP_GATE;
    let error = prepare(&contract, SILU, &tagged()).unwrap_err();
    assert!(matches!(error, PrepareError::Format { reads: "fp8_2x4", format: "bf16", .. }));
    let requantized = crate::weights::requantize::requantize(&tagged(), &FP8_TILES).unwrap();
    let prepared = prepare(&contract, SILU, &requantized).unwrap();
    assert_eq!(prepared.requantized_from, None);
    contract.weight.requantize_from = Some(&BF16);
    let by_itself = prepare(&contract, SILU, &tagged()).unwrap();
    assert_eq!(by_itself.gate_up.payload, prepared.gate_up.payload);
    assert_eq!(by_itself.requantized_from, Some(&BF16));
}

/// A kernel that reads gate and up as one matrix has one scale for both: the larger one.
#[test]
fn halves_share_the_scale_of_a_matrix() {
    let scaled = |code: u8, rows: usize, cols: usize, scale: f32| {
        Stack::new(rows, cols, vec![code; rows * cols], scale.to_le_bytes().to_vec())
    };
    let mut contract = plain();
    contract.weight.format = &FP8_TENSOR;
    contract.weight.scale = Some(weight_scale(&LINEAR));
    let canonical = Canonical {
        format: &FP8_TENSOR,
        experts: 1,
        hidden: 2,
        intermediate: 2,
        // 1.0 times 2 and 4.0 times 8.
        gate: Some(scaled(0x38, 2, 2, 2.0)),
        up: scaled(0x48, 2, 2, 8.0),
        down: scaled(0x38, 2, 2, 1.0),
        biases: None,
    };
    let prepared = prepare(&contract, SILU, &canonical).unwrap();
    assert_eq!(prepared.gate_up.scales, 8.0f32.to_le_bytes());
    // Up keeps its codes, gate is 0.25 under the larger scale.
    assert_eq!(prepared.gate_up.payload, [[0x48; 4], [0x28; 4]].concat());
    let mut broken = canonical.clone();
    broken.up.scales = 0.0f32.to_le_bytes().to_vec();
    let error = prepare(&contract, SILU, &broken).unwrap_err();
    assert!(matches!(error, PrepareError::Scale { expert: 0, .. }), "{error}");
}

/// Second-level scales of gate and up cannot differ, because the kernel applies one to both.
#[test]
fn second_level_scales_of_halves_are_equal() {
    let one = |global: f32| Stack {
        globals: vec![Multiplier::new(global).unwrap()],
        ..Stack::new(16, 16, vec![0x22; 16 * 8], vec![0x38; 16])
    };
    let mut contract = plain();
    contract.weight.format = &NVFP4;
    contract.weight.scale = Some(weight_scale(&LINEAR));
    let canonical = |gate: f32, up: f32| Canonical {
        format: &NVFP4,
        experts: 1,
        hidden: 16,
        intermediate: 16,
        gate: Some(one(gate)),
        up: one(up),
        down: one(3.0),
        biases: None,
    };
    let prepared = prepare(&contract, SILU, &canonical(0.5, 0.5)).unwrap();
    assert_eq!(prepared.gate_up.globals, [Multiplier::new(0.5).unwrap()]);
    assert_eq!(prepared.down.globals, [Multiplier::new(3.0).unwrap()]);
    let error = prepare(&contract, SILU, &canonical(0.5, 0.25)).unwrap_err();
    assert_eq!(error, PrepareError::GlobalsDiffer { experts: vec![0] });
    let mut missing = canonical(0.5, 0.5);
    missing.down.globals.clear();
    let error = prepare(&contract, SILU, &missing).unwrap_err();
    assert!(matches!(error, PrepareError::Buffer { projection: "down", error: WrongSize::Levels { .. } }));
}

#[test]
fn plain_weights_have_one_half() {
    let mut contract = padded(plain());
    contract.weight.gate_up = BY_ROW;
    let canonical = Canonical { gate: None, ..tagged() };
    let prepared = prepare(&contract, Activation::Relu2NoMul, &canonical).unwrap();
    assert_eq!(values(&prepared.gate_up)[..8], [32.0, 33.0, 36.0, 37.0, 40.0, 41.0, 0.0, 0.0]);
    let error = prepare(&contract, Activation::Relu2NoMul, &tagged()).unwrap_err();
    assert_eq!(error, PrepareError::Gated { activation: Activation::Relu2NoMul, halves: 2 });
}

/// Stored biases are in Marlin's order, which is not that of their rows: `marlin_permute_bias` puts
/// source 2 (c / 8) + 8 ((c % 8) / 2) + c % 2 at place c of each 32.
#[test]
fn marlin_permutes_biases() {
    let source = |c: usize| 2 * (c / 8) + 8 * (c % 8 / 2) + c % 2;
    for c in 0..64 {
        let row = c / 32 * 32 + source(c % 32);
        assert_eq!(BiasOrder::Marlin.position(row), c, "row {row}");
    }
}

#[test]
fn what_is_not_executed_is_refused_by_name() {
    let error = |contract: Contract| prepare(&contract, SILU, &tagged()).unwrap_err().to_string();
    assert!(error(Contract { kernel: Kernel::External, ..plain() }).contains("`by_hand` is external"));
    let open = Contract { kernel: Kernel::Described("it leaves open its grouping"), ..plain() };
    assert!(error(open).contains("leaves open its grouping"));
    let mut vendor = plain();
    vendor.weight.payload = Known::Vendor("repacked inside");
    assert!(error(vendor).contains("weight.payload (repacked inside)"));
    let mut unordered = plain();
    unordered.weight.gate_up = &[];
    assert!(error(unordered).contains("no order of gate/up rows for silu"));
}

#[test]
fn wrong_sizes_are_refused() {
    let mut canonical = tagged();
    canonical.up.payload.pop();
    let error = prepare(&plain(), SILU, &canonical).unwrap_err();
    assert!(matches!(error, PrepareError::Buffer { projection: "up", .. }));
    let mut canonical = tagged();
    canonical.hidden = 3;
    let error = prepare(&plain(), SILU, &canonical).unwrap_err();
    assert!(matches!(error, PrepareError::Shape { projection: "gate", expected_cols: 3, .. }));
    let none = bf16_stack(0, 2, &[]);
    let (gate, up, down) = (Some(none.clone()), none, bf16_stack(2, 0, &[]));
    let canonical = Canonical { intermediate: 0, gate, up, down, ..tagged() };
    assert_eq!(
        prepare(&plain(), SILU, &canonical).unwrap_err(),
        PrepareError::Empty { what: "intermediate" }
    );
}

#[test]
fn what_nobody_reads_is_refused() {
    let mut canonical = tagged();
    canonical.up.zero_points = vec![1; 7];
    let error = prepare(&plain(), SILU, &canonical).unwrap_err();
    let expected = WrongSize::ZeroPointBytes { format: "bf16", rows: 3, cols: 2, expected: 0, got: 7 };
    assert_eq!(error, PrepareError::Buffer { projection: "up", error: expected });

    let mut canonical = tagged();
    canonical.down.globals = vec![Multiplier::new(3.0).unwrap(); 2];
    let error = prepare(&plain(), SILU, &canonical).unwrap_err();
    let expected = WrongSize::Levels { format: "bf16" };
    assert_eq!(error, PrepareError::Buffer { projection: "down", error: expected });

    let biases = Some(Biases { gate: vec![1.0; 6], up: vec![0.0; 6], down: vec![0.0; 4] });
    let canonical = Canonical { gate: None, biases, ..tagged() };
    let mut contract = plain();
    contract.weight.gate_up = BY_ROW;
    let error = prepare(&contract, Activation::Relu2NoMul, &canonical).unwrap_err();
    assert_eq!(error, PrepareError::Biases { projection: "gate", expected: 0, got: 6 });
}
