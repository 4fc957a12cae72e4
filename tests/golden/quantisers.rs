//! Block quantisers: scales, elements, swizzled scales, and what they decode to.

use half::bf16;
use scalewright::format::{ElementType, FormatSpec, Rounding};
use scalewright::layout::Extent;
use scalewright::reference;

use crate::data::{File, Outcome, Relation, Tensor, Tensors, all_same, same};
use crate::engine;

/// Checks a relation in all rows of its input but `left_out`.
pub(crate) fn check(
    file: &File,
    tensors: &Tensors,
    relation: &Relation,
    left_out: &[usize],
) -> Option<Outcome> {
    let format = match file.file.as_str() {
        "quant/mxfp8.safetensors" => engine::format("mxfp8"),
        "quant/mxfp4.safetensors" => engine::format("mxfp4"),
        _ => return None,
    };
    let rows = tensors[relation.outputs().first()?].shape[0];
    let input = relation.inputs.first()?;
    let text = relation.relation.as_str();
    let kept = |rows| (0..rows).filter(|row| !left_out.contains(row)).collect::<Vec<_>>();
    if text.starts_with("bf16(q*2^(s-127))") || text.starts_with("dequantise") {
        let [payload, scales] = [0, 1].map(|index| &tensors[stored_name(file, &relation.inputs[index])]);
        let output = &tensors[relation.outputs()[0]];
        return Some(dequantised(format, payload, scales, output, &kept(rows)));
    }
    let input = &tensors[input.as_str()];
    let kept = kept(input.shape[0]);
    if text.starts_with("f32 quantise-dequantise") {
        return Some(round_trip(format, input, &tensors[relation.outputs().first()?], &kept));
    }
    let rounding = rounding(format.element, relation.label())?;
    Some(quantised(format, rounding, tensors, relation, &kept))
}

/// The name under which tensor `case/label.slot` is stored: data that two sources agree on is stored
/// once, under the first one's name.
fn stored_name<'a>(file: &'a File, name: &'a str) -> &'a str {
    let alias = || {
        let (case, rest) = name.split_once('/')?;
        let (label, slot) = rest.rsplit_once('.')?;
        let input = format!("{case}/in");
        let of_label = |relation: &&Relation| relation.label() == label && relation.inputs[0] == input;
        file.relations.iter().filter(of_label).find_map(|relation| relation.slot(slot))
    };
    alias().unwrap_or(name)
}

/// The rule by which a source chooses scales; `None` if its scales or its elements follow a rule
/// that is not ours.
fn rounding(element: ElementType, label: &str) -> Option<Rounding> {
    let is_fp8 = element == ElementType::E4m3;
    match label {
        "torchao_e4m3_RCEIL" | "torchao_RCEIL" | "fi_test_exact" | "fi_test_ref" | "fi_b12x"
        | "vllm_torch" => Some(Rounding::Rceil),
        "tk_e4m3_ROUND_UP" => Some(Rounding::Rceil),
        "modelopt" if is_fp8 => Some(Rounding::Rceil),
        "vllm_triton_interp" => Some(if is_fp8 { Rounding::Rceil } else { Rounding::Even }),
        "torchao_e4m3_FLOOR" | "torchao_FLOOR" => Some(Rounding::Floor),
        "torchao_e4m3_CEIL" | "torchao_CEIL" => Some(Rounding::Ceil),
        "torchao_e4m3_EVEN" | "torchao_EVEN" | "quark_even" => Some(Rounding::Even),
        "ct" if !is_fp8 => Some(Rounding::Even),
        _ => None,
    }
}

/// The bytes of the rows in `kept`.
fn rows_of(bytes: &[u8], rows: usize, kept: &[usize]) -> Vec<u8> {
    let stride = bytes.len() / rows;
    kept.iter().flat_map(|row| bytes[row * stride..][..stride].to_vec()).collect()
}

/// Codes, one a value. NaN payloads are never significant, and the sign of zero is not in sources
/// that take the sign from `torch.sign` and so lose it.
fn codes(element: ElementType, label: &str, payload: &[u8]) -> Vec<u8> {
    let loses_sign = matches!(label, "ct" | "fi_test_ref");
    let code = |code: u8| match (element, code) {
        (ElementType::E4m3, 0x7F | 0xFF) => 0x7F,
        (ElementType::E2m1, 0x8) if loses_sign => 0,
        _ => code,
    };
    match element {
        ElementType::E2m1 => payload.iter().flat_map(|byte| [code(byte & 0xF), code(byte >> 4)]).collect(),
        _ => payload.iter().map(|byte| code(*byte)).collect(),
    }
}

fn quantised(
    format: &'static FormatSpec,
    rounding: Rounding,
    tensors: &Tensors,
    relation: &Relation,
    kept: &[usize],
) -> Outcome {
    let input = &tensors[&relation.inputs[0]];
    let (rows, cols) = (input.shape[0], input.cols());
    let (payload, scales) = reference::quantize_rows(&input.doubles(), cols, format, Some(rounding))
        .map_err(|error| error.to_string())?;
    let linear = engine::quantize(input, format, rounding, engine::layout("linear"));
    if let Some(name) = relation.slot("q_e4m3").or(relation.slot("q")) {
        let pick = |payload: &[u8]| codes(format.element, relation.label(), &rows_of(payload, rows, kept));
        let theirs = pick(&tensors[name].bytes);
        same("reference elements", &pick(&payload), &theirs)?;
        same("engine elements", &pick(&linear.payload), &theirs)?;
    }
    if let Some(name) = relation.slot("scale") {
        let theirs = rows_of(&tensors[name].bytes, rows, kept);
        same("reference scales", &rows_of(&scales, rows, kept), &theirs)?;
        same("engine scales", &rows_of(&linear.scales, rows, kept), &theirs)?;
    }
    for (slot, layout) in [("scale_swz128x4", "swizzled_128x4"), ("scale_swz8x4", "swizzled_8x4")] {
        if let Some(name) = relation.slot(slot) {
            let layout = engine::layout(layout);
            let ours = engine::quantize(input, format, rounding, layout);
            let physical = layout
                .physical(Extent { rows, cols: scales.len() / rows })
                .map_err(|error| error.to_string())?;
            // What is not the scale of a row that is left out, padding included.
            let is_kept = |offset: &usize| {
                let row = (layout.locate)(*offset, physical).0;
                row >= rows || kept.contains(&row)
            };
            let pick = |bytes: &[u8]| -> Vec<u8> {
                (0..bytes.len()).filter(is_kept).map(|offset| bytes[offset]).collect()
            };
            same(layout.name, &pick(&ours.scales), &pick(&tensors[name].bytes))?;
        }
    }
    Ok(())
}

/// Their payload and scales, decoded to bf16.
fn dequantised(
    format: &FormatSpec,
    payload: &Tensor,
    scales: &Tensor,
    output: &Tensor,
    kept: &[usize],
) -> Outcome {
    let (rows, cols) = (output.shape[0], output.cols());
    let values = reference::dequantize(format, rows, cols, &payload.bytes, &scales.bytes)
        .map_err(|error| error.to_string())?;
    let pick = |values: &[bf16]| -> Vec<bf16> {
        kept.iter().flat_map(|row| values[row * cols..][..cols].to_vec()).collect()
    };
    let ours: Vec<bf16> = values.into_iter().map(bf16::from_f64).collect();
    all_same("values", &pick(&ours), &pick(&output.bf16()), |ours, theirs| {
        ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan())
    })
}

/// Their input, after a round trip with RCEIL.
fn round_trip(format: &'static FormatSpec, input: &Tensor, output: &Tensor, kept: &[usize]) -> Outcome {
    let cols = input.cols();
    let rceil = Some(Rounding::Rceil);
    let ours = reference::quantize_dequantize(&input.doubles(), cols, format, rceil)
        .map_err(|error| error.to_string())?;
    let pick = |values: &[f64]| -> Vec<f64> {
        kept.iter().flat_map(|row| values[row * cols..][..cols].to_vec()).collect()
    };
    all_same("values", &pick(&ours), &pick(&output.doubles()), |ours, theirs| {
        ours == theirs || (ours.is_nan() && theirs.is_nan())
    })
}
