use super::super::fixtures::*;
use super::*;
use crate::backend::{Activation, InputLayout, ScaleSource};
use crate::cpu::quantize::{quantize_matrix, quantize_prepared};
use crate::format::Rounding;
use crate::recipe::Recipe;
use crate::scale::Multiplier;
use crate::weights::canonical::{Biases, Canonical, Stack};
use crate::weights::prepared::prepare;

const SILU: LayerConfig = LayerConfig { activation: ActivationFunction::SILU, gemm1: None, gemm2: None };

fn one_by_one(experts: usize, gate: &[f32], up: &[f32], down: &[f32]) -> Canonical {
    let stack = |values| bf16_stack(1, 1, values);
    let (gate, up, down) = (stack(gate), stack(up), stack(down));
    Canonical { format: &BF16, experts, hidden: 1, intermediate: 1, gate: Some(gate), up, down, biases: None }
}

fn tokens(contract: &Contract, values: &[f32], rows: usize) -> RawQuantized {
    let cols = values.len().checked_div(rows).unwrap_or(1);
    let format = contract.gemm1_input.formats[0];
    quantize_prepared(contract, format, None, Tokens::new(values, rows, cols).unwrap()).unwrap()
}

fn floats(values: Vec<bf16>) -> Vec<f32> {
    values.into_iter().map(bf16::to_f32).collect()
}

fn bf16_of(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

#[test]
fn one_number_by_hand_and_with_its_halves_swapped() {
    let canonical = one_by_one(1, &[1.0], &[2.0], &[1.0]);
    let weights = prepare(&plain(), Activation::Silu, &canonical).unwrap();
    let routing = Routing::new(1, 1, 1, vec![0], vec![1.0]).unwrap();
    let run = |contract: &Contract| {
        floats(forward(contract, &SILU, &weights, &tokens(contract, &[1.0], 1), &routing).unwrap())
    };
    assert_eq!(run(&plain()), [bf16_of(1.462117)]);
    // The weights are [up; gate]; whoever reads them as [gate; up] gets another number.
    let mut swapped = plain();
    swapped.weight.gate_up = BY_GATE_UP;
    assert_eq!(run(&swapped), [bf16_of(1.761594)]);
}

#[test]
fn experts_are_weighted_biases_are_added() {
    // Expert e: gate = x + 1, up = (e + 1) x, down = y - e.
    let mut canonical = one_by_one(3, &[1.0; 3], &[1.0, 2.0, 3.0], &[1.0; 3]);
    canonical.biases = Some(Biases { gate: vec![1.0; 3], up: vec![0.0; 3], down: vec![0.0, -1.0, -2.0] });
    let weights = prepare(&plain(), Activation::Silu, &canonical).unwrap();
    // Nobody goes to expert 1.
    let routing = Routing::new(2, 2, 3, vec![2, 0, 0, 2], vec![0.5, 0.25, 1.0, 2.0]).unwrap();
    let input = tokens(&plain(), &[1.0, -2.0], 2);
    let output = floats(forward(&plain(), &SILU, &weights, &input, &routing).unwrap());
    // silu(2) = 1.761594, silu(-1) = -0.268941; both products are rounded to bf16 before GEMM2.
    let first = 0.25 * bf16_of(1.761594) + 0.5 * (bf16_of(3.0 * 1.761594) - 2.0);
    let second = bf16_of(2.0 * 0.268941) + 2.0 * (bf16_of(6.0 * 0.268941) - 2.0);
    assert_eq!(output, [bf16_of(first), bf16_of(second)]);

    // A row that takes no biases would ignore them.
    let mut unbiased = plain();
    unbiased.weight.bias = None;
    assert!(matches!(
        forward(&unbiased, &SILU, &weights, &input, &routing),
        Err(LayerError::Buffer { buffer: "biases", expected: 0, .. })
    ));
}

#[test]
fn no_tokens() {
    let weights = prepare(&plain(), Activation::Silu, &one_by_one(1, &[1.0], &[1.0], &[1.0])).unwrap();
    let routing = Routing::new(0, 8, 1, vec![], vec![]).unwrap();
    let input = tokens(&plain(), &[], 0);
    assert!(forward(&plain(), &SILU, &weights, &input, &routing).unwrap().is_empty());
}

/// Values between -1 and 1 over several binades, so that block scales differ.
fn varied(seed: usize, count: usize) -> Vec<f32> {
    let value = |at: usize| {
        let mixed = (at + seed).wrapping_mul(2654435761) % 65536;
        (mixed as f32 / 32768.0 - 1.0) * 2f32.powi(-((at / 32 % 5) as i32))
    };
    (0..count).map(value).collect()
}

/// 5 experts of hidden 96 and intermediate 32, in mxfp4.
fn quantised_experts() -> Canonical {
    let stack = |seed, rows, cols| {
        let values = varied(seed, 5 * rows * cols);
        let matrix = quantize_matrix(
            Tokens::new(&values, 5 * rows, cols).unwrap(),
            &MXFP4,
            Recipe::dynamic(Some(Rounding::Rceil)),
        );
        Stack { rows, ..matrix.unwrap() }
    };
    let (gate, up, down) = (stack(1, 32, 96), stack(2, 32, 96), stack(3, 96, 32));
    Canonical {
        format: &MXFP4,
        experts: 5,
        hidden: 96,
        intermediate: 32,
        gate: Some(gate),
        up,
        down,
        biases: None,
    }
}

fn seven_tokens() -> (Vec<f32>, Routing) {
    // Expert 4 gets nobody; a token may go to one expert twice.
    let ids = vec![0, 3, 1, 0, 3, 2, 2, 2, 0, 1, 3, 0, 1, 2];
    (varied(4, 7 * 96), Routing::new(7, 2, 5, ids, varied(5, 14)).unwrap())
}

#[test]
fn layout_grouping_and_payload_do_not_change_the_result() {
    let (values, routing) = seven_tokens();
    let groupings = [
        Grouping::Tokens,
        Grouping::Ranges { start_multiple: 128 },
        Grouping::SpreadRanges { start_multiple: 128 },
        Grouping::Slots,
    ];
    let mut results = Vec::new();
    for grouping in groupings {
        for layout in [&LINEAR, &SWIZZLED, &COLUMNS] {
            for payload in [&BY_ROWS, &TILED] {
                let mut contract = mx(layout, grouping);
                contract.weight.payload = Known::Is(payload);
                let weights = prepare(&contract, Activation::Silu, &quantised_experts()).unwrap();
                let input = tokens(&contract, &values, 7);
                results.push(forward(&contract, &SILU, &weights, &input, &routing).unwrap());
            }
        }
    }
    assert!(results[0].iter().any(|value| value.to_f32().abs() > 0.1));
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn a_misread_layout_shows() {
    let (values, routing) = seven_tokens();
    let contract = mx(&SWIZZLED, Grouping::Tokens);
    let weights = prepare(&contract, Activation::Silu, &quantised_experts()).unwrap();
    let right = forward(&contract, &SILU, &weights, &tokens(&contract, &values, 7), &routing).unwrap();

    // 8 rows of 4 scales have 32 bytes either way, so nothing but the numbers can tell.
    let mut misread = contract.clone();
    misread.gemm1_input.layout = Known::Is(InputLayout { prepared: &COLUMNS, kernel: &SWIZZLED });
    let given = routing.ids().iter().flatten().copied();
    let (ids, router) = (given.chain([0, 1]).collect(), [routing.weights(), &[0.0; 2]].concat());
    let routing = Routing::new(8, 2, 5, ids, router).unwrap();
    let values = [values, vec![0.0; 96]].concat();
    let input = tokens(&contract, &values, 8);
    let again = forward(&contract, &SILU, &weights, &input, &routing).unwrap();
    assert_eq!(again[..7 * 96], right);
    // A buffer that says what it is, is refused; one that says what is expected of it is misread.
    let error = forward(&misread, &SILU, &weights, &input, &routing).unwrap_err();
    assert!(matches!(error, LayerError::Layout { expected: "columns", got: "linear", .. }));
    let mislabelled = RawQuantized { layout: &COLUMNS, ..input.clone() };
    assert_ne!(forward(&misread, &SILU, &weights, &mislabelled, &routing).unwrap(), again);

    misread.gemm1_input.layout = Known::Is(InputLayout { prepared: &SWIZZLED, kernel: &SWIZZLED });
    let mislabelled = RawQuantized { layout: &SWIZZLED, ..input };
    let error = forward(&misread, &SILU, &weights, &mislabelled, &routing).unwrap_err();
    assert!(matches!(error, LayerError::Size(WrongSize::Scales { expected: 512, got: 32, .. })));
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let (values, routing) = seven_tokens();
    let contract = mx(&LINEAR, Grouping::Tokens);
    let weights = prepare(&contract, Activation::Silu, &quantised_experts()).unwrap();
    let input = tokens(&contract, &values, 7);
    let error = |contract: &Contract, config, input: &RawQuantized, routing: &Routing| {
        forward(contract, config, &weights, input, routing).unwrap_err()
    };
    let gpt_oss = LayerConfig::dynamic(ActivationFunction::gpt_oss(7.0));
    assert!(matches!(error(&contract, &gpt_oss, &input, &routing), LayerError::Activation { .. }));
    let fewer = Routing::new(7, 1, 4, vec![0; 7], vec![1.0; 7]).unwrap();
    assert!(matches!(error(&contract, &SILU, &input, &fewer), LayerError::Routing { what: "experts", .. }));
    let plain_input = tokens(&plain(), &values, 7);
    assert!(matches!(
        error(&contract, &SILU, &plain_input, &routing),
        LayerError::Format { format: "bf16", .. }
    ));
    let mut unpadded = contract.clone();
    unpadded.gemm1_input.multiple = 1;
    assert!(matches!(
        error(&unpadded, &SILU, &input, &routing),
        LayerError::Hidden { expected: 96, got: 128, .. }
    ));
    let due = Routing::new(7, 1, 5, vec![0; 7], vec![1.0; 7]).unwrap().on_input().unwrap();
    assert!(matches!(error(&contract, &SILU, &input, &due), LayerError::Unweighed(RoutingError::Unweighed)));
    let mut ungrouped = contract.clone();
    ungrouped.gemm1_input.grouping = None;
    assert!(matches!(error(&ungrouped, &SILU, &input, &routing), LayerError::NotExecutable(_)));
}

#[test]
fn experts_that_quantise_are_handed_plain_tokens() {
    let (values, routing) = seven_tokens();
    let contract = mx(&SWIZZLED, Grouping::Tokens);
    let weights = prepare(&contract, Activation::Silu, &quantised_experts()).unwrap();
    // What bf16 holds exactly, so that both ways quantise the same numbers.
    let values: Vec<f32> = values.into_iter().map(bf16_of).collect();
    let handed_quantised = forward(&contract, &SILU, &weights, &tokens(&contract, &values, 7), &routing);
    let mut inside = contract.clone();
    inside.gemm1_input.quantize = Some(QuantizeAt::Expert);
    let plain_tokens = tokens(&plain(), &values, 7);
    let handed_plain = forward(&inside, &SILU, &weights, &plain_tokens, &routing);
    assert_eq!(handed_plain.unwrap(), handed_quantised.unwrap());
    // 70 columns would be padded to as many as the layer's 96.
    let narrow = tokens(&plain(), &values[..7 * 70], 7);
    assert!(matches!(
        forward(&inside, &SILU, &weights, &narrow, &routing),
        Err(LayerError::Hidden { hidden: 96, got: 70, .. })
    ));
}

/// The kernel would multiply by the scale of its configuration.
#[test]
fn tokens_of_another_calibrated_scale_are_refused() {
    let canonical = one_by_one(1, &[1.0], &[1.0], &[1.0]);
    let mut contract = plain();
    contract.gemm1_input.formats = IN_FP8_TENSOR;
    contract.gemm1_input.source = Some(ScaleSource::Static);
    contract.gemm1_input.grouping = Some(Grouping::Tokens);
    let weights = prepare(&contract, Activation::Silu, &canonical).unwrap();
    let routing = Routing::new(1, 1, 1, vec![0], vec![1.0]).unwrap();
    let scale = |value| Some(Calibrated::Static(Multiplier::new(value).unwrap()));
    let tokens = Tokens::new(&[1.0f32], 1, 1).unwrap();
    let input = quantize_prepared(&contract, &FP8_TENSOR, scale(0.5), tokens).unwrap();
    let run = |gemm1| forward(&contract, &LayerConfig { gemm1, ..SILU }, &weights, &input, &routing);
    assert_eq!(floats(run(scale(0.5)).unwrap()), [bf16_of(0.731059)]);
    assert!(matches!(run(scale(0.25)), Err(LayerError::Calibrated { row: "by_hand" })));
}

#[test]
fn weights_in_tiles_and_tokens_by_row() {
    // One expert of hidden 4 and intermediate 2: gate rows (1, 0, 0, 0) and (0, 2, 0, 0), up rows
    // likewise with 4 and 8, down rows all (1, 1).
    let gate = bf16_stack(2, 4, &[1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]);
    let up = bf16_stack(2, 4, &[4.0, 0.0, 0.0, 0.0, 0.0, 8.0, 0.0, 0.0]);
    let down = bf16_stack(4, 2, &[1.0; 8]);
    let canonical = Canonical {
        format: &BF16,
        experts: 1,
        hidden: 4,
        intermediate: 2,
        gate: Some(gate),
        up,
        down,
        biases: None,
    };
    let mut contract = plain();
    contract.weight.format = &FP8_TILES;
    contract.weight.requantize_from = Some(&BF16);
    contract.weight.scale = Some(weight_scale(&LINEAR));
    contract.gemm1_input.formats = IN_FP8;
    contract.gemm1_input.layout = Known::Is(InputLayout { prepared: &LINEAR, kernel: &COLUMNS });
    contract.gemm1_input.grouping = Some(Grouping::Ranges { start_multiple: 128 });
    let weights = prepare(&contract, Activation::Silu, &canonical).unwrap();
    let routing = Routing::new(1, 1, 1, vec![0], vec![1.0]).unwrap();
    let input = tokens(&contract, &[1.0, 1.0, 0.0, 0.0], 1);
    let output = floats(forward(&contract, &SILU, &weights, &input, &routing).unwrap());
    // silu(1) * 4 + silu(2) * 8; the sum of the two rounded to bf16.
    let expected = bf16_of(0.731059 * 4.0) + bf16_of(1.761594 * 8.0);
    assert!(output.iter().all(|value| (value - expected).abs() / expected < 0.01), "{output:?} {expected}");
}
