//! Why something was not chosen.

use std::fmt;

use super::request::{Device, RoutingMethod};
use crate::backend::Activation;
use crate::words::vocabulary;

/// Why a class, or a row that has none, was not chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The class does not run on the device.
    Device(Device),
    /// The class runs on its devices with AITER only, and here there is none.
    AiterOff(Device),
    /// A library that it needs is missing.
    Library(&'static str),
    /// A setting of the engine is in the way.
    Setting(&'static str),
    /// The class has no functions of one half.
    NoActAndMul(Activation),
    /// The row, or the class, does not honour the activation function.
    Activation(Activation),
    /// No row of the backend serves the scheme here.
    QuantScheme,
    /// The class does not work behind the all-to-all or with that many ranks.
    ParallelConfig,
    /// The class does not pick experts by a hash.
    HashRouting,
    /// The class routes itself, and the choice of experts is changed after routing.
    DecomposedRequired,
    /// The class does not implement the routing method.
    RoutingMethod(RoutingMethod),
    /// The class does not take router logits of this type.
    RouterLogitsDtype,
    /// The class takes no such hidden size.
    HiddenDim {
        /// What must divide it.
        multiple: usize,
    },
    /// The class is handed tokens in the other format.
    ActivationFormat,
    /// The class does not give the same results whatever else is in the batch.
    BatchInvariance,
    /// The class has no LoRA.
    Lora,
    /// The engine prefers the other GEMM type for this configuration.
    HummingGemmType,
    /// What the table says in so many words.
    Stated(Stated),
}

impl Reason {
    /// The reason's name in vLLM's vocabulary.
    pub fn code(self) -> &'static str {
        match self {
            Self::Device(_) | Self::Library(_) | Self::Setting(_) => "device",
            Self::AiterOff(_) => "device+aiter_off",
            Self::NoActAndMul(_) => "no_act_and_mul",
            Self::Activation(_) => "activation",
            Self::QuantScheme => "quant_scheme",
            Self::ParallelConfig => "parallel_config",
            Self::HashRouting => "hash_routing",
            Self::DecomposedRequired => "decomposed_required",
            Self::RoutingMethod(_) => "routing_method",
            Self::RouterLogitsDtype => "router_logits_dtype",
            Self::HiddenDim { .. } => "hidden_dim",
            Self::ActivationFormat => "activation_format",
            Self::BatchInvariance => "batch_invariance",
            Self::Lora => "lora",
            Self::HummingGemmType => "humming_gemm_type",
            Self::Stated(stated) => stated.name(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => write!(f, "does not run on {device}"),
            Self::AiterOff(device) => write!(f, "does not run on {device}, or AITER is off or missing"),
            Self::Library(library) => write!(f, "needs the library `{library}`"),
            Self::Setting(setting) => write!(f, "is switched off by the setting `{setting}`"),
            Self::NoActAndMul(function) => write!(f, "has no functions of one half, as {function} is"),
            Self::Activation(function) => write!(f, "does not honour the activation function {function}"),
            Self::QuantScheme => f.write_str("does not serve the scheme here"),
            Self::ParallelConfig => f.write_str("does not work with this all-to-all and number of ranks"),
            Self::HashRouting => f.write_str("does not pick experts by a hash"),
            Self::DecomposedRequired => f.write_str("routes itself, and routes are changed after routing"),
            Self::RoutingMethod(method) => write!(f, "does not implement {method} routing"),
            Self::RouterLogitsDtype => f.write_str("takes no router logits of this type"),
            Self::HiddenDim { multiple } => write!(f, "takes hidden sizes that are multiples of {multiple}"),
            Self::ActivationFormat => f.write_str("is handed tokens in the other format"),
            Self::BatchInvariance => f.write_str("is not batch invariant"),
            Self::Lora => f.write_str("has no LoRA"),
            Self::HummingGemmType => f.write_str("is not the GEMM type preferred for this configuration"),
            Self::Stated(stated) => f.write_str(stated.sentence()),
        }
    }
}

vocabulary! {
    /// A reason that stands in the table; the names are vLLM's.
    Stated {
        /// The mode of this kernel has not this function.
        ActivationMx = "activation_mx",
        /// The kernel has not this function with quantised tokens.
        ActivationW4a8 = "activation_w4a8",
        /// The checkpoint asks for one token format, the caller for another.
        ActivationOverrideConflict = "activation_override_conflict",
        /// Only Arm.
        ArmOnly = "arm_only",
        /// Mori without AITER.
        AssertMoriNeedsAiter = "assert_mori_needs_aiter",
        /// Biases of experts.
        Bias = "bias",
        /// The clamp would not be applied.
        ClampNotApplied = "clamp_not_applied",
        /// Functions of one half on this platform.
        ConfigNoMulPlatform = "config_no_mul_platform",
        /// Only CPUs.
        CpuOnly = "cpu_only",
        /// The caller does not allow it.
        CutlassNotAllowed = "cutlass_not_allowed",
        /// The type of the tokens.
        InDtype = "in_dtype",
        /// The intermediate size of a rank.
        IntermediateAlign = "intermediate_align",
        /// LoRA.
        Lora = "lora",
        /// Tokens in 16 bits with NVFP4 weights.
        MoeEpA16Nvfp4 = "moe_ep_a16_nvfp4",
        /// amd-quark is missing.
        NeedsQuark = "needs_quark",
        /// AutoAWQ's layout.
        PreAwqLayout = "pre_awq_layout",
        /// Biases that the loader may bring.
        PreBias = "pre_bias",
        /// Another checkpoint than compressed-tensors.
        PreCtOnly = "pre_ct_only",
        /// GPTQ's column order.
        PreGptqActorder = "pre_gptq_actorder",
        /// Marlin's shapes and groups.
        PreMarlinShapeOrGroup = "pre_marlin_shape_or_group",
        /// MoeWNA16's layout.
        PreMoewna16Layout = "pre_moewna16_layout",
        /// Column order, zero points, groups or a setting.
        PreOther = "pre_other",
        /// Zero points or biases.
        PreZpOrBias = "pre_zp_or_bias",
        /// The routing method, with this scheme.
        RoutingMethod = "routing_method",
        /// Parameters of the function.
        SwigluParams = "swiglu_params",
        /// More experts than Triton's sort takes.
        TooManyExpertsTriton = "too_many_experts_triton",
        /// More experts than TensorRT-LLM's routing takes.
        TooManyExpertsTrtllm = "too_many_experts_trtllm",
    }
}

impl Stated {
    /// What it says of what was refused.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::ActivationMx => "does not have the activation function in this mode",
            Self::ActivationW4a8 => "does not have the activation function with quantised tokens",
            Self::ActivationOverrideConflict => {
                "the checkpoint and the caller ask for different token formats"
            }
            Self::ArmOnly => "runs on Arm only",
            Self::AssertMoriNeedsAiter => "mori needs AITER's fused MoE",
            Self::Bias => "takes no biases of experts",
            Self::ClampNotApplied => "would not apply the clamp",
            Self::ConfigNoMulPlatform => "this platform has no functions of one half",
            Self::CpuOnly => "the family runs on CPUs only",
            Self::CutlassNotAllowed => "the caller does not allow vLLM's CUTLASS kernels for FP8",
            Self::InDtype => "takes no tokens of this type",
            Self::IntermediateAlign => "takes no intermediate size that is not a multiple of 32",
            Self::Lora => "has no LoRA",
            Self::MoeEpA16Nvfp4 => "does not read 16-bit tokens with NVFP4 weights",
            Self::NeedsQuark => "needs the library `quark`",
            Self::PreAwqLayout => "does not read AutoAWQ's layout",
            Self::PreBias => "takes no biases, and the checkpoint may have some",
            Self::PreCtOnly => "reads compressed-tensors checkpoints only",
            Self::PreGptqActorder => "does not read GPTQ's column order",
            Self::PreMarlinShapeOrGroup => "does not take these sizes and groups",
            Self::PreMoewna16Layout => "does not read MoeWNA16's layout",
            Self::PreOther => "does not read what the checkpoint has",
            Self::PreZpOrBias => "takes neither zero points nor biases",
            Self::RoutingMethod => "does not implement the routing method with this scheme",
            Self::SwigluParams => "does not honour the parameters of the function with this scheme",
            Self::TooManyExpertsTriton => "takes fewer than 993 experts",
            Self::TooManyExpertsTrtllm => "takes at most 2048 experts",
        }
    }
}
