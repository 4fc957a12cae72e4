//! Quantisers: scales, elements, scales in kernels' layouts, and what they decode to.

use std::sync::LazyLock;

use half::bf16;
use safetensors::Dtype;
use scalewright::element;
use scalewright::format::{ElementType, FormatSpec, ScaleType};
use scalewright::recipe::Recipe;
use scalewright::recipe::conventions::Conventions;
use scalewright::reference;
use scalewright::scale::Divisor;
use scalewright::weights::canonical::{Matrix, Stack};

use crate::compare;
use crate::data::{Except, File, Outcome, Relation, Tensor, Tensors, all_same};
use crate::engine;
use crate::producers::{Family, Task, task};

/// NVFP4 whose two levels of scales were multiplied into one.
static FP4_ONE_LEVEL: LazyLock<FormatSpec> =
    LazyLock::new(|| FormatSpec::blocks("fp4_one_level", ElementType::E2m1, ScaleType::F32, 1, 16));

/// Checks a relation; in all but what `except` says, if it says something.
pub(crate) fn check(
    file: &File,
    tensors: &Tensors,
    relation: &Relation,
    except: Option<Except>,
) -> Option<Outcome> {
    let family = Family::of(&file.file)?;
    let text = relation.relation.as_str();
    if text == "quantise along last dim" {
        return Some(quantised(tensors, relation, &task(family, tensors, relation)?, except));
    }
    let stored = |name: &str| &tensors[stored_name(file, name)];
    let output = &tensors[relation.outputs().first()?];
    match family {
        Family::Mxfp8 | Family::Mxfp4 if text == "f32 quantise-dequantise" => {
            Some(round_trip(&tensors[relation.inputs.first()?.as_str()], output))
        }
        Family::Mxfp8 | Family::Mxfp4 => {
            let format = engine::format(if family == Family::Mxfp8 { "mxfp8" } else { "mxfp4" });
            let [payload, scales] = [0, 1].map(|index| relation.inputs.get(index).map(|name| stored(name)));
            Some(dequantised(format, payload?, scales?, output, except))
        }
        Family::Fp8 if text.starts_with("dequantise") => {
            let payload = relation.inputs.first()?;
            let scales = format!("{}.scale", payload.strip_suffix(".q")?);
            Some(dequantised(engine::format("fp8_128x128"), stored(payload), stored(&scales), output, except))
        }
        Family::Nvfp4 => two_level(file, tensors, relation, output),
        _ => None,
    }
}

/// The name under which tensor `case/label.slot` is stored: data that two sources agree on is stored
/// once, under the first one's name.
fn stored_name<'a>(file: &'a File, name: &'a str) -> &'a str {
    let is_of = |relation: &&Relation| {
        let case = relation.inputs.first().and_then(|input| input.strip_suffix("/in"));
        case.is_some_and(|case| name.starts_with(&format!("{case}/{}.", relation.label())))
    };
    let slot = |relation: &'a Relation| {
        let case = relation.inputs[0].strip_suffix("in")?;
        relation.slot(name.strip_prefix(case)?.strip_prefix(relation.label())?.strip_prefix('.')?)
    };
    file.relations.iter().filter(is_of).find_map(slot).unwrap_or(name)
}

fn quantised(tensors: &Tensors, relation: &Relation, task: &Task, except: Option<Except>) -> Outcome {
    let input = &tensors[relation.inputs[0].as_str()];
    let requantised;
    let input = if relation.source.contains("requant_weight") {
        requantised = quantised_before(input)?;
        &requantised
    } else {
        input
    };
    let ours = engine::quantize_matrix(input, task.format, task.recipe)?;
    let inputs = input.reals();
    let left_out = |index: usize| {
        except == Some(Except::SubnormalInputs) && inputs[index] != 0.0 && !inputs[index].is_normal()
    };
    let Some(block) = task.format.block else { return Err("no source casts".into()) };
    for (slot, name) in relation.slots() {
        let theirs = &tensors[name];
        let what = slot.rsplit('.').next().unwrap_or(slot);
        let layout = match what {
            "scale_swz128x4" => Some("swizzled_128x4"),
            "scale_swz8x4" => Some("swizzled_8x4"),
            "scale_colmajor_storage" => Some("mn_major_f32"),
            _ => None,
        };
        match (what, layout) {
            ("q" | "q_e4m3" | "q_e5m2" | "q_e2m3" | "q_e3m2", _) => {
                compare::elements(task.format, input, &ours, theirs, left_out)?;
            }
            ("scale" | "scale_e8m0", _) => compare::scales("scales", block.scale, &ours.scales, theirs)?,
            (_, Some(layout)) => {
                let raw = engine::quantize(input, task.format, task.recipe, engine::layout(layout))?;
                compare::scales(layout, block.scale, &raw.scales, theirs)?;
            }
            _ => return Err(format!("`{slot}` is no slot that a check knows")),
        }
    }
    if task.recipe.conventions == Conventions::FLASHINFER {
        by_our_conventions(tensors, relation, task)
    } else {
        Ok(())
    }
}

/// FlashInfer's conventions are ours but for NaN: rows without one, by the engine's fast loops and by
/// the reference.
fn by_our_conventions(tensors: &Tensors, relation: &Relation, task: &Task) -> Outcome {
    let input = &tensors[relation.inputs[0].as_str()];
    let (cols, inputs) = (input.cols(), input.reals());
    let has_nan = |row: &[f32]| row.iter().any(|value| value.is_nan());
    let rows: Vec<usize> =
        inputs.chunks(cols).enumerate().filter(|(_, row)| !has_nan(row)).map(|(row, _)| row).collect();
    let kept = Tensor {
        dtype: Dtype::F32,
        shape: vec![rows.len(), cols],
        bytes: rows
            .iter()
            .flat_map(|row| &inputs[row * cols..][..cols])
            .flat_map(|x| x.to_le_bytes())
            .collect(),
    };
    let of_rows = |name: &str| {
        let theirs = &tensors[name];
        let stride = theirs.bytes.len() / theirs.shape[0];
        let bytes = rows.iter().flat_map(|row| &theirs.bytes[row * stride..][..stride]).copied().collect();
        Tensor { dtype: theirs.dtype, shape: vec![rows.len(), theirs.cols()], bytes }
    };
    let recipe = Recipe { conventions: Conventions::OURS, ..task.recipe };
    for stack in [
        engine::quantize_matrix(&kept, task.format, recipe)?,
        engine::reference_matrix(&kept, task.format, recipe)?,
    ] {
        if let Some(name) = relation.slot("q_e4m3") {
            compare::elements(task.format, &kept, &stack, &of_rows(name), |_| false)?;
        }
        if let Some(name) = relation.slot("scale") {
            compare::scales("scales", ScaleType::E8m0, &stack.scales, &of_rows(name))?;
        }
    }
    Ok(())
}

/// What vLLM requantises: the input, once through FP8 blocks with f32 scales.
fn quantised_before(input: &Tensor) -> Result<Tensor, String> {
    let format = engine::format("fp8_128x128");
    let recipe = Recipe { conventions: Conventions::SCALED_QUANTIZE, ..Recipe::default() };
    let stack = engine::quantize_matrix(input, format, recipe)?;
    let values = engine::dequantize_matrix(format, stack.matrix(format, 0))?;
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(Tensor { dtype: Dtype::F32, shape: input.shape.clone(), bytes })
}

/// Their payload and scales, decoded by the engine and by the reference.
fn dequantised(
    format: &'static FormatSpec,
    payload: &Tensor,
    scales: &Tensor,
    output: &Tensor,
    except: Option<Except>,
) -> Outcome {
    let (rows, cols) = (output.shape[0], output.cols());
    let stack = Stack::new(rows, cols, payload.bytes.clone(), scales.bytes.clone());
    let fast = engine::dequantize_matrix(format, stack.matrix(format, 0))?;
    let slow = reference::dequantize(format, stack.matrix(format, 0)).map_err(|error| error.to_string())?;
    let slow: Vec<f32> = slow.into_iter().map(|value| value as f32).collect();
    let is_left_out = |index: usize| {
        except == Some(Except::EdgeScales)
            && format.block.is_some_and(|block| {
                let cols = block.size(stack.extent()).cols;
                matches!(scales.bytes[index / cols], 0 | 0xFF)
            })
    };
    let kept = |values: &[f32]| -> Vec<f32> {
        let values = in_type(output, values);
        values
            .into_iter()
            .enumerate()
            .filter(|(index, _)| !is_left_out(*index))
            .map(|(_, value)| value)
            .collect()
    };
    let theirs = kept(&output.reals());
    compare::reals("engine", &kept(&fast), &theirs)?;
    compare::reals("reference", &kept(&slow), &theirs)
}

/// `values`, rounded to the type of `output`.
fn in_type(output: &Tensor, values: &[f32]) -> Vec<f32> {
    if output.dtype == Dtype::BF16 {
        values.iter().map(|value| bf16::from_f32(*value).to_f32()).collect()
    } else {
        values.to_vec()
    }
}

/// Their input, after a round trip through MXFP8 by FlashInfer's helpers for sm_120.
fn round_trip(input: &Tensor, output: &Tensor) -> Outcome {
    let format = engine::format("mxfp8");
    let rceil = Some(scalewright::format::Rounding::Rceil);
    let recipe = Recipe { conventions: Conventions::TRITON_KERNELS, ..Recipe::dynamic(rceil) };
    let stack = engine::quantize_matrix(input, format, recipe)?;
    let values = engine::dequantize_matrix(format, stack.matrix(format, 0))?;
    compare::reals("values", &in_type(output, &values), &output.reals())
}

/// NVFP4 back to numbers, in one of three orders of operations.
fn two_level(file: &File, tensors: &Tensors, relation: &Relation, output: &Tensor) -> Option<Outcome> {
    let (case, _) = relation.outputs().first()?.split_once('/')?;
    let global = |name: &str| {
        let value = tensors[format!("{case}/{name}.global_encode_scale").as_str()].reals()[0];
        Divisor::new(value).map_err(|error| error.to_string())
    };
    let text = relation.relation.as_str();
    if text.starts_with("quantise-dequantise") {
        let name = relation.inputs.get(1)?.strip_suffix(".global_encode_scale")?.rsplit('/').next()?;
        let input = &tensors[relation.inputs.first()?.as_str()];
        return Some(global(name).and_then(|global| two_level_round_trip(input, output, global)));
    }
    // The payload and scales are those of vLLM's quantiser in the same case, which one relation names.
    let is_sibling = |other: &&Relation| {
        other.relation.starts_with("dequantise vllm_ref") && other.inputs[0].starts_with(&format!("{case}/"))
    };
    let sibling = file.relations.iter().find(is_sibling)?;
    let name = sibling.inputs[0].strip_suffix(".q")?.rsplit('.').next()?;
    let [payload, scales] = [0, 1].map(|index| &tensors[stored_name(file, &sibling.inputs[index])].bytes);
    let stack = Stack::new(output.shape[0], output.cols(), payload.clone(), scales.clone());
    Some(global(name).and_then(|global| {
        let values = if text.starts_with("dequantise, (v*sf)*gs order") {
            let format = engine::format("nvfp4");
            let matrix = Matrix { global: Some(global.to_multiplier()), ..stack.matrix(format, 0) };
            // The manifest does not say whose payload this is, only its values do: signs of zero are the
            // payload's.
            let values = engine::dequantize_matrix(format, matrix)?;
            return all_same("values", &values, &output.reals(), |ours, theirs| {
                ours == theirs || (ours.is_nan() && theirs.is_nan())
            });
        } else if text.starts_with("dequantise vllm_ref") {
            one_level(&stack, |scale| scale * global.to_multiplier().get())?
        } else {
            return Err("an order of operations that no check knows".into());
        };
        compare::reals("values", &in_type(output, &values), &output.reals())
    }))
}

/// vLLM's emulation of NVFP4: quantised, and back with `s / g` for a scale.
fn two_level_round_trip(input: &Tensor, output: &Tensor, global: Divisor) -> Outcome {
    let calibrated = Some(scalewright::scale::Calibrated::Global(global));
    let recipe = Recipe { calibrated, conventions: Conventions::VLLM_NVFP4, ..Recipe::default() };
    let stack = engine::quantize_matrix(input, engine::format("nvfp4"), recipe)?;
    let values = one_level(&stack, |scale| scale / global.get())?;
    compare::reals("values", &in_type(output, &values), &output.reals())
}

/// The values of NVFP4 blocks whose scales `scale` makes of their e4m3 values.
fn one_level(stack: &Stack, scale: impl Fn(f32) -> f32) -> Result<Vec<f32>, String> {
    let scales =
        stack.scales.iter().flat_map(|code| scale(element::e4m3_decode(*code)).to_le_bytes()).collect();
    let one_level = Stack::new(stack.rows, stack.cols, stack.payload.clone(), scales);
    engine::dequantize_matrix(&FP4_ONE_LEVEL, one_level.matrix(&FP4_ONE_LEVEL, 0))
}
