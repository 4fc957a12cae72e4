//! Element casts and decode tables.

use scalewright::format::{ElementType, ScaleType};
use scalewright::reference;

use crate::data::{Outcome, Relation, Tensors, all_same, same};
use crate::engine;

pub(crate) fn check(tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let output = *relation.outputs().first()?;
    let theirs = &tensors[output];
    if let Some(format) = output.strip_suffix(".f32bits").and_then(|name| name.split('.').next()) {
        return decode_table(format, &theirs.reals());
    }
    let inputs = tensors[&relation.inputs[0]].reals();
    let mut parts = output.rsplit('.');
    match (parts.next()?, parts.next()?) {
        ("torch", "e4m3fn") => Some(codes(ElementType::E4m3, &inputs, &theirs.bytes)),
        ("ml_dtypes" | "torchao", "e2m1fn") => Some(codes(ElementType::E2m1, &inputs, &theirs.bytes)),
        ("vllm_value", "e2m1fn") => Some(values(ElementType::E2m1, &inputs, &theirs.reals())),
        _ => None,
    }
}

fn decode_table(format: &str, theirs: &[f32]) -> Option<Outcome> {
    let code = |code: usize| code as u32;
    let (slow, fast): (Vec<f64>, Vec<f32>) = match format {
        "e4m3fn" => (0..256)
            .map(|index| {
                (
                    reference::decode_element(ElementType::E4m3, code(index)),
                    engine::decode(ElementType::E4m3, index as u8),
                )
            })
            .unzip(),
        "e2m1fn" => (0..16)
            .map(|index| {
                (
                    reference::decode_element(ElementType::E2m1, code(index)),
                    engine::decode(ElementType::E2m1, index as u8),
                )
            })
            .unzip(),
        "e8m0fnu" => (0..=255)
            .map(|byte| (reference::decode_scale(ScaleType::E8m0, &[byte]), engine::decode_e8m0(byte)))
            .unzip(),
        _ => return None,
    };
    // NaN payloads are not significant; all else is, the sign of zero included.
    let is_same =
        |ours: &f32, theirs: &f32| ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan());
    let slow: Vec<f32> = slow.into_iter().map(|value| value as f32).collect();
    Some(all_same("reference", &slow, theirs, is_same).and(all_same("engine", &fast, theirs, is_same)))
}

/// The inputs that `element` has a code for: e2m1 has no NaN, and what sources make of one is noise.
fn representable(element: ElementType, inputs: &[f32]) -> Vec<usize> {
    (0..inputs.len()).filter(|index| element != ElementType::E2m1 || !inputs[*index].is_nan()).collect()
}

fn codes(element: ElementType, inputs: &[f32], theirs: &[u8]) -> Outcome {
    let kept = representable(element, inputs);
    let theirs: Vec<u8> = kept.iter().map(|index| theirs[*index]).collect();
    let slow: Vec<u8> = kept
        .iter()
        .map(|index| reference::encode_element(element, f64::from(inputs[*index])) as u8)
        .collect();
    let fast: Vec<u8> = kept.iter().map(|index| engine::encode(element, inputs[*index])).collect();
    let is_nan = |code: u8| reference::decode_element(element, u32::from(code)).is_nan();
    let is_same = |ours: &u8, theirs: &u8| ours == theirs || (is_nan(*ours) && is_nan(*theirs));
    all_same("reference", &slow, &theirs, is_same).and(all_same("engine", &fast, &theirs, is_same))
}

/// Sources that return the rounded value do not keep the sign of zero.
fn values(element: ElementType, inputs: &[f32], theirs: &[f32]) -> Outcome {
    let kept = representable(element, inputs);
    let theirs: Vec<f64> = kept.iter().map(|index| f64::from(theirs[*index])).collect();
    let value = |code: u32| reference::decode_element(element, code);
    let slow: Vec<f64> = kept
        .iter()
        .map(|index| value(reference::encode_element(element, f64::from(inputs[*index]))))
        .collect();
    let fast: Vec<f64> =
        kept.iter().map(|index| value(u32::from(engine::encode(element, inputs[*index])))).collect();
    same("reference", &slow, &theirs).and(same("engine", &fast, &theirs))
}
