//! What the manifest's sources are to us: the format and the recipe that give their bytes.

use safetensors::Dtype;
use scalewright::format::{FormatSpec, Rounding};
use scalewright::recipe::Recipe;
use scalewright::recipe::conventions::{Arithmetic, Conventions};
use scalewright::scale::{Calibrated, Divisor, Multiplier};

use crate::data::{Relation, Tensor, Tensors};
use crate::engine;

/// How a source quantises.
pub(crate) struct Task {
    pub(crate) format: &'static FormatSpec,
    pub(crate) recipe: Recipe,
}

/// The formats that one file of the manifest is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Family {
    Mxfp8,
    Mxfp6,
    Mxfp4,
    Nvfp4,
    Fp8,
    Int8,
}

impl Family {
    /// By the stem of a file's name.
    pub(crate) fn of(file: &str) -> Option<Self> {
        let families = [
            ("mxfp8", Self::Mxfp8),
            ("mxfp6", Self::Mxfp6),
            ("mxfp4", Self::Mxfp4),
            ("nvfp4", Self::Nvfp4),
            ("fp8", Self::Fp8),
            ("int8", Self::Int8),
        ];
        let stem = file.rsplit('/').next()?;
        families.into_iter().find_map(|(name, family)| stem.starts_with(name).then_some(family))
    }
}

/// What `relation` does; `None` if none of our conventions are its source's.
pub(crate) fn task(family: Family, tensors: &Tensors, relation: &Relation) -> Option<Task> {
    let input = &tensors[relation.inputs.first()?.as_str()];
    match family {
        Family::Mxfp8 | Family::Mxfp6 | Family::Mxfp4 => microscaled(family, relation),
        Family::Nvfp4 => two_level(tensors, relation, arithmetic(input)),
        Family::Fp8 => fp8(relation, arithmetic(input)),
        Family::Int8 => int8(relation, arithmetic(input)),
    }
}

/// The type of the input, in which some sources compute.
fn arithmetic(input: &Tensor) -> Arithmetic {
    if input.dtype == Dtype::BF16 { Arithmetic::Bfloat16 } else { Arithmetic::Single }
}

fn microscaled(family: Family, relation: &Relation) -> Option<Task> {
    let format = match (family, relation.params["elem"].as_str()) {
        (Family::Mxfp8, None | Some("e4m3")) => "mxfp8",
        (Family::Mxfp8, Some("e5m2")) => "mxfp8_e5m2",
        (Family::Mxfp6, Some("e2m3")) => "mxfp6_e2m3",
        (Family::Mxfp6, Some("e3m2")) => "mxfp6_e3m2",
        (Family::Mxfp4, None) => "mxfp4",
        _ => return None,
    };
    let is_fp4 = family == Family::Mxfp4;
    let of_element = |fp8, fp4| if is_fp4 { fp4 } else { fp8 };
    let mode = relation.params["mode"].as_str();
    let stem = relation.label().split('_').next()?;
    let (rounding, conventions) = match (stem, relation.label(), mode) {
        ("torchao", _, Some("RCEIL")) => (Rounding::Rceil, Conventions::TORCHAO_RCEIL),
        ("torchao", _, Some("FLOOR")) => (Rounding::Floor, Conventions::TORCHAO),
        ("torchao", _, Some("CEIL")) => (Rounding::Ceil, Conventions::TORCHAO),
        ("torchao", _, Some("EVEN")) => (Rounding::Even, Conventions::TORCHAO),
        ("tk", _, Some("ROUND_UP")) => {
            (Rounding::Rceil, of_element(Conventions::TRITON_KERNELS, Conventions::TRITON_KERNELS_FP4))
        }
        (_, "fi_test_exact", _) => (Rounding::Rceil, Conventions::FLASHINFER),
        (_, "fi_b12x", _) => (Rounding::Rceil, Conventions::TRITON_KERNELS),
        (_, "fi_test_ref", _) => (Rounding::Rceil, Conventions::FLASHINFER_TESTS_FP4),
        (_, "fi_prepare", _) => (Rounding::Rceil, Conventions::FLASHINFER_PREPARE),
        (_, "vllm_torch", _) => (Rounding::Rceil, Conventions::VLLM_TORCH),
        (_, "vllm_triton_interp", _) if is_fp4 => (Rounding::Even, Conventions::VLLM_TRITON),
        (_, "vllm_triton_interp", _) => (Rounding::Rceil, Conventions::VLLM_TRITON),
        (_, "modelopt", _) => (Rounding::Rceil, of_element(Conventions::MODELOPT, Conventions::MODELOPT_FP4)),
        (_, "ct", _) => {
            (Rounding::Even, of_element(Conventions::COMPRESSED_TENSORS, Conventions::COMPRESSED_TENSORS_FP4))
        }
        (_, "quark_even", _) => (Rounding::Even, Conventions::QUARK),
        _ => return None,
    };
    let recipe = Recipe { conventions, ..Recipe::dynamic(Some(rounding)) };
    Some(Task { format: engine::format(format), recipe })
}

/// NVFP4. The second-level scale is a tensor beside the input, one, or follows from a magnitude.
fn two_level(tensors: &Tensors, relation: &Relation, arithmetic: Arithmetic) -> Option<Task> {
    let (source, _) = relation.label().split_once('.')?;
    let conventions = match source {
        "vllm_ref" => Conventions::VLLM_NVFP4,
        "fi_test_ref" => Conventions::FLASHINFER_TESTS_NVFP4,
        "fi_b12x" => Conventions::FLASHINFER_SM120_NVFP4,
        "fi_te_ref" => Conventions::TRANSFORMER_ENGINE_NVFP4,
        "torchao" => Conventions::TORCHAO_NVFP4,
        "ct" => Conventions::compressed_tensors_nvfp4(arithmetic),
        "modelopt" => Conventions::MODELOPT_NVFP4,
        _ => return None,
    };
    let calibrated = Some(Calibrated::Global(global(tensors, relation)?));
    let recipe = Recipe { calibrated, conventions, ..Recipe::default() };
    Some(Task { format: engine::format("nvfp4"), recipe })
}

fn global(tensors: &Tensors, relation: &Relation) -> Option<Divisor> {
    let input = relation.inputs.first()?;
    if relation.source.contains("per_tensor_amax_to_scale") {
        let amax = tensors[input.as_str()].reals().into_iter().fold(0.0, |amax: f32, x| amax.max(x.abs()));
        return Some(Multiplier::new(amax / RANGE).ok()?.to_divisor());
    }
    let divisor = match (relation.params["global_amax"].as_f64(), relation.params["global_scale"].as_str()) {
        (Some(amax), _) => RANGE / amax as f32,
        (None, Some(name)) => {
            let (case, _) = input.split_once('/')?;
            tensors[format!("{case}/{name}.global_encode_scale").as_str()].reals()[0]
        }
        (None, None) => 1.0,
    };
    Divisor::new(divisor).ok()
}

/// The largest e4m3 times the largest e2m1.
const RANGE: f32 = 448.0 * 6.0;

fn fp8(relation: &Relation, arithmetic: Arithmetic) -> Option<Task> {
    let (scope, source) = relation.label().split_once('.')?;
    let smallest = match arithmetic {
        Arithmetic::Single => 1e-10,
        Arithmetic::Bfloat16 => half::bf16::from_f32(1e-10).to_f32(),
    };
    let (source, is_power_of_two) = match (source.strip_suffix("_ue8m0"), source.strip_suffix("_f32")) {
        (Some(source), _) => (source, true),
        (None, Some(source)) => (source, false),
        (None, None) => (source, false),
    };
    let conventions = match source {
        "vllm_input_to_float8" | "fi_to_float8" => Conventions::input_to_float8(arithmetic),
        "fi_dynamic" => Conventions::FP8_DYNAMIC,
        "vllm_scaled_quantize" => Conventions::SCALED_QUANTIZE,
        "ct" => Conventions::compressed_tensors_fp8(arithmetic),
        "fi_cutlass_test" => Conventions::fp8_groups(smallest),
        "fi_deepseek_test" => Conventions::DEEPSEEK,
        "vllm_deepgemm" | "vllm_requant" => Conventions::DEEPGEMM,
        "vllm_triton_interp" | "vllm_triton_colmajor" => Conventions::FP8_GROUPS_TRITON,
        "fi_mono" => Conventions::MONOKERNEL,
        "hf" => Conventions::FINEGRAINED,
        _ => return None,
    };
    let format = match scope {
        "pt" => "fp8_tensor",
        "tok" => "fp8_row",
        "g128" => "fp8_1x128",
        "b128" => "fp8_128x128",
        _ => return None,
    };
    // The sources hold powers of two as f32 or as bytes.
    let has_bytes = relation.slot("b128ue.scale_e8m0").is_some();
    let format = engine::format(&if has_bytes { format!("{format}_ue8m0") } else { format.to_owned() });
    let rounding = is_power_of_two.then_some(Rounding::Rceil);
    Some(Task { format, recipe: Recipe { conventions, ..Recipe::dynamic(rounding) } })
}

fn int8(relation: &Relation, arithmetic: Arithmetic) -> Option<Task> {
    let (format, conventions) = match relation.label() {
        "tok.ct" => ("int8_row", Conventions::compressed_tensors_int8(arithmetic)),
        "pt.ct" => ("int8_tensor", Conventions::compressed_tensors_int8(arithmetic)),
        "tok.vllm" => ("int8_row", Conventions::INT8_TOKENS),
        "g128.vllm_triton" => ("int8_1x128", Conventions::INT8_GROUPS_TRITON),
        "tok.torchao" => ("int8_row", Conventions::torchao_int8(arithmetic)),
        "g128.torchao" => ("int8_1x128", Conventions::torchao_int8(arithmetic)),
        _ => return None,
    };
    Some(Task { format: engine::format(format), recipe: Recipe { conventions, ..Recipe::default() } })
}
