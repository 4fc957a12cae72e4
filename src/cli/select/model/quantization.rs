//! `quantization_config`: which family and scheme the weights of a checkpoint are.

use std::num::NonZeroUsize;

use scalewright::oracle::{Checkpoint, Feature};
use serde_json::{Value, json};

use super::fields::Fields;

const FLAG: &str = "--oracle and --scheme";

/// What a checkpoint's quantisation is in the words of a request.
#[derive(Default)]
pub(super) struct Quantization {
    pub(super) oracle: Option<String>,
    pub(super) scheme: Option<String>,
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) group: Option<usize>,
    pub(super) features: Vec<Feature>,
}

impl Quantization {
    fn new(oracle: &str, scheme: &str) -> Self {
        Self { oracle: Some(oracle.to_owned()), scheme: Some(scheme.to_owned()), ..Self::default() }
    }
}

/// What the configuration `fields` says; one that says nothing is of unquantised weights.
pub(super) fn read(fields: &Fields) -> Result<Quantization, String> {
    let Some(config) = fields.part("quantization_config", FLAG)? else {
        return Ok(Quantization::new("unquantized", "bf16"));
    };
    match config.word("quant_method", FLAG)? {
        "mxfp4" => Ok(Quantization::new("mxfp4", "mxfp4")),
        "mxfp8" => Ok(Quantization::new("mxfp8", "mxfp8")),
        "fp8" => fp8(&config),
        "modelopt" | "modelopt_fp4" => modelopt(&config),
        "compressed-tensors" => compressed_tensors(&config),
        "awq" => awq(&config),
        "gptq" => gptq(&config),
        other => Err(config.not_understood("quant_method", other, FLAG)),
    }
}

fn fp8(config: &Fields) -> Result<Quantization, String> {
    let scheme = match config.get("weight_block_size") {
        Some(size) if *size == json!([128, 128]) => "fp8_block128",
        Some(size) if *size == json!([64, 64]) => "fp8_block64",
        Some(other) => {
            return Err(config.not_understood("weight_block_size", other, FLAG));
        }
        None => match config.word("activation_scheme", FLAG)? {
            "static" => "fp8_tensor",
            "dynamic" => "fp8_tensor_dynamic",
            other => {
                return Err(config.not_understood("activation_scheme", other, FLAG));
            }
        },
    };
    Ok(Quantization::new("fp8", scheme))
}

fn modelopt(config: &Fields) -> Result<Quantization, String> {
    let (oracle, scheme) = match config.word("quant_algo", FLAG)? {
        "NVFP4" => ("nvfp4", "nvfp4"),
        "FP8" => ("fp8", "fp8_tensor"),
        "FP8_PER_CHANNEL_PER_TOKEN" => ("fp8", "fp8_channel"),
        "MXFP8" => ("mxfp8", "mxfp8"),
        other => return Err(config.not_understood("quant_algo", other, FLAG)),
    };
    Ok(Quantization::new(oracle, scheme))
}

/// vLLM hands AutoAWQ's weights over as symmetric ones, zero points or not.
fn awq(config: &Fields) -> Result<Quantization, String> {
    let mut quantization = integers(config, &[(4, "int4_g128")], Checkpoint::Awq)?;
    if config.is_set("zero_point", FLAG)? {
        quantization.features.push(Feature::ZeroPoints);
    }
    Ok(quantization)
}

fn gptq(config: &Fields) -> Result<Quantization, String> {
    let mut quantization = integers(config, &[(4, "int4_g128"), (8, "int8_g128")], Checkpoint::Gptq)?;
    if config.is_set("desc_act", FLAG)? {
        quantization.features.push(Feature::ActOrder);
    }
    if !config.is_set("sym", FLAG)? {
        quantization.features.push(Feature::ZeroPoints);
    }
    Ok(quantization)
}

/// Integer weights of AutoAWQ and AutoGPTQ, whose loaders may bring biases.
fn integers(config: &Fields, schemes: &[(usize, &str)], from: Checkpoint) -> Result<Quantization, String> {
    let bits = config.size("bits", FLAG)?.get();
    let scheme = schemes.iter().find(|(known, _)| *known == bits);
    let (_, scheme) = scheme.ok_or_else(|| config.not_understood("bits", bits, FLAG))?;
    let mut quantization = Quantization::new("int_wna16", scheme);
    quantization.checkpoint = Some(from);
    quantization.group = Some(group(config)?);
    quantization.features.push(Feature::BiasPossible);
    Ok(quantization)
}

/// Weights or tokens of a compressed-tensors scheme, as `float8 group 128`.
fn describe(part: &Fields) -> Result<String, String> {
    let mut words = format!(
        "{}{} {}",
        part.word("type", FLAG)?,
        part.size("num_bits", FLAG)?,
        part.word("strategy", FLAG)?
    );
    if let Some(size) = part.get("block_structure").or(group_size(part)) {
        words.push_str(&format!(" {size}"));
    }
    Ok(words)
}

/// Elements along K that share a scale; 0 is a whole channel.
fn group(part: &Fields) -> Result<usize, String> {
    group_size(part).map_or(Ok(0), |_| part.size("group_size", FLAG).map(NonZeroUsize::get))
}

/// The size of groups; a whole channel is written as -1, or not at all.
fn group_size(part: &Fields) -> Option<&Value> {
    part.get("group_size").filter(|size| **size != -1)
}

/// The one group of a compressed-tensors checkpoint: of several, nothing says which the experts have.
fn only_group(config: &Fields) -> Result<Fields, String> {
    let groups = config.part("config_groups", FLAG)?.ok_or_else(|| config.missing("config_groups", FLAG))?;
    let names: Vec<_> = groups.names().collect();
    let [name] = names[..] else {
        return Err(config.not_understood("config_groups", format!("{} groups", names.len()), FLAG));
    };
    groups.part(name, FLAG)?.ok_or_else(|| groups.missing(name, FLAG))
}

fn compressed_tensors(config: &Fields) -> Result<Quantization, String> {
    let group = only_group(config)?;
    let weights = group.part("weights", FLAG)?.ok_or_else(|| group.missing("weights", FLAG))?;
    let input = group.part("input_activations", FLAG)?;
    let is_dynamic = input.as_ref().is_some_and(|input| input.get("dynamic") == Some(&json!(true)));
    let kind = describe(&weights)?;
    let tokens = input.as_ref().map_or_else(|| Ok("none".to_owned()), describe)?;
    let (oracle, scheme) = match (kind.as_str(), tokens.as_str()) {
        ("float4 tensor_group 16", "none") => ("nvfp4", "nvfp4_a16"),
        ("float4 tensor_group 16", "float4 tensor_group 16") => ("nvfp4", "nvfp4"),
        ("float4 group 32", "none") => ("mxfp4", "mxfp4"),
        ("float4 group 32", "float4 group 32") => ("mxfp4", "mxfp4_mxfp4"),
        ("float4 group 32", "float8 group 32") => ("mxfp4", "mxfp4_mxfp8"),
        ("float8 group 32", "float8 group 32") => ("mxfp8", "mxfp8"),
        ("float8 tensor", "float8 tensor") if is_dynamic => ("fp8", "fp8_tensor_dynamic"),
        ("float8 tensor", "float8 tensor") => ("fp8", "fp8_tensor"),
        ("float8 tensor", "float8 token") => ("fp8", "fp8_tensor_token"),
        ("float8 channel", "float8 token") => ("fp8", "fp8_channel"),
        ("float8 block [128,128]", "float8 group 128") => ("fp8", "fp8_block128"),
        ("int8 channel", "int8 token") => ("int8", "int8_channel"),
        ("int4 group 128" | "int4 channel", "float8 token") => ("w4a8", "int4_fp8"),
        ("int4 group 128" | "int4 channel", "int8 token") => ("w4a8_int8", "int4_int8"),
        ("int4 group 32", "none") => ("int_wna16", "int4_g32"),
        ("int4 group 128" | "int4 channel", "none") => ("int_wna16", "int4_g128"),
        ("int8 group 128" | "int8 channel", "none") => ("int_wna16", "int8_g128"),
        _ => {
            let both = format!("{kind} with tokens {tokens}");
            return Err(config.not_understood("config_groups", both, FLAG));
        }
    };
    let mut quantization = Quantization::new(oracle, scheme);
    match oracle {
        "int_wna16" => of_packed(&mut quantization, &weights)?,
        "fp8" => quantization.features.push(Feature::CutlassAllowed),
        _ => {}
    }
    Ok(quantization)
}

/// What only packed integers have: groups, zero points and an order of columns.
fn of_packed(quantization: &mut Quantization, weights: &Fields) -> Result<(), String> {
    quantization.checkpoint = Some(Checkpoint::CompressedTensors);
    quantization.group = Some(group(weights)?);
    if !weights.is_set("symmetric", FLAG)? {
        quantization.scheme = quantization.scheme.take().map(|scheme| scheme.replace("int4", "uint4"));
        quantization.features.push(Feature::ZeroPoints);
    }
    if weights.get("actorder").is_some_and(|order| *order == "group" || *order == "dynamic") {
        quantization.features.push(Feature::ActOrder);
    }
    Ok(())
}
