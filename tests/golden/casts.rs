//! Element casts and decode tables.

use scalewright::element;
use scalewright::format::{ElementType, ScaleType};
use scalewright::recipe::conventions::Elements;
use scalewright::reference;

use crate::compare;
use crate::data::{Outcome, Relation, Tensors, all_same, same};

pub(crate) fn check(tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let output = *relation.outputs().first()?;
    let theirs = &tensors[output];
    if let Some(format) = output.strip_suffix(".f32bits").and_then(|name| name.split('.').next()) {
        return decode_table(format, &theirs.reals());
    }
    let inputs = tensors[&relation.inputs[0]].reals();
    if relation.relation.contains("e8m0fnu") {
        let is_torch = relation.source.starts_with("torch:");
        return is_torch.then(|| {
            let ours: Vec<u8> = inputs.iter().map(|x| element::e8m0_encode(*x)).collect();
            same("codes", &ours, &theirs.bytes)
        });
    }
    // What saturates and keeps signs is also the reference's.
    let library = relation.source.split(':').next()?;
    let (element, style) = match (library, element_of(&relation.relation)?) {
        ("torch" | "ml_dtypes", ElementType::E5m2) => (ElementType::E5m2, Elements::OVERFLOWING),
        ("ml_dtypes", element) => (element, Elements::OVERFLOWING),
        ("torch" | "torchao", element) => (element, Elements::OURS),
        ("vllm" | "compressed-tensors" | "flashinfer-git", element) => (element, Elements::SIGNED_APART),
        ("flashinfer-python", element) if !relation.source.contains(":trace/") => {
            (element, Elements::UNSIGNED_ZERO)
        }
        _ => return None,
    };
    Some(if relation.relation.contains("value after rounding") {
        values(element, style, &inputs, &theirs.reals())
    } else if relation.relation.starts_with("packed") {
        codes(element, style, &inputs, &compare::codes(element, &theirs.bytes))
    } else {
        codes(element, style, &inputs, &theirs.bytes)
    })
}

/// The type that a relation's text names.
fn element_of(text: &str) -> Option<ElementType> {
    let names = [
        ("e4m3", ElementType::E4m3),
        ("e5m2", ElementType::E5m2),
        ("e2m1", ElementType::E2m1),
        ("e3m2", ElementType::E3m2),
        ("e2m3", ElementType::E2m3),
    ];
    names.into_iter().find_map(|(name, element)| text.contains(name).then_some(element))
}

fn decode_table(format: &str, theirs: &[f32]) -> Option<Outcome> {
    let codes = 0..theirs.len() as u32;
    let (slow, fast): (Vec<f32>, Vec<f32>) = if format == "e8m0fnu" {
        codes
            .map(|code| {
                let byte = code as u8;
                (reference::decode_scale(ScaleType::E8m0, &[byte]) as f32, element::e8m0_decode(byte))
            })
            .unzip()
    } else {
        let of = element_of(format)?;
        let fast = |code| element::decode(of, code as u8).unwrap();
        codes.map(|code| (reference::decode_element(of, code) as f32, fast(code))).unzip()
    };
    Some(compare::reals("reference", &slow, theirs).and(compare::reals("engine", &fast, theirs)))
}

/// The inputs that `element` has a code for: types without NaN get noise from one.
fn representable(element: ElementType, inputs: &[f32]) -> Vec<usize> {
    let has_nan = matches!(element, ElementType::E4m3 | ElementType::E5m2);
    (0..inputs.len()).filter(|index| has_nan || !inputs[*index].is_nan()).collect()
}

fn codes(element: ElementType, style: Elements, inputs: &[f32], theirs: &[u8]) -> Outcome {
    let kept = representable(element, inputs);
    let theirs: Vec<u8> = kept.iter().map(|index| theirs[*index]).collect();
    let is_nan = |code: u8| element::decode(element, code).unwrap().is_nan();
    let is_same = |ours: &u8, theirs: &u8| ours == theirs || (is_nan(*ours) && is_nan(*theirs));
    let of =
        |encode: &dyn Fn(f32) -> u8| kept.iter().map(|index| encode(inputs[*index])).collect::<Vec<u8>>();
    all_same("engine", &of(&|x| element::encode(element, x, style).unwrap()), &theirs, is_same)?;
    if style != Elements::OURS {
        return Ok(());
    }
    all_same("engine's loops", &of(&|x| fast(element, x)), &theirs, is_same)?;
    all_same("reference", &of(&|x| reference::encode_element(element, x.into()) as u8), &theirs, is_same)
}

/// The cast that the engine's loops use.
fn fast(element: ElementType, x: f32) -> u8 {
    match element {
        ElementType::E2m1 => element::e2m1_encode(x),
        ElementType::E2m3 => element::e2m3_encode(x),
        ElementType::E3m2 => element::e3m2_encode(x),
        ElementType::E4m3 => element::e4m3_encode(x),
        ElementType::E5m2 => element::e5m2_encode(x),
        other => panic!("{other:?} is no narrow float"),
    }
}

/// Sources that return the rounded value, not its code.
fn values(element: ElementType, style: Elements, inputs: &[f32], theirs: &[f32]) -> Outcome {
    let kept = representable(element, inputs);
    let theirs: Vec<f32> = kept.iter().map(|index| theirs[*index]).collect();
    let value = |index: &usize| {
        let code = element::encode(element, inputs[*index], style).unwrap();
        element::decode(element, code).unwrap()
    };
    compare::reals("values", &kept.iter().map(value).collect::<Vec<f32>>(), &theirs)
}
