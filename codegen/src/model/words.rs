//! The closed vocabularies of the table.

/// A closed vocabulary.
pub trait Word: Copy + Eq + 'static {
    /// What a member is, with its article: "an element type".
    const WHAT: &'static str;
    /// Every member.
    const ALL: &'static [Self];

    /// The word in the table.
    fn name(self) -> &'static str;

    /// The name of the Rust variant.
    fn variant(self) -> &'static str;
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the word says it")]
        pub enum $name { $($variant,)* }

        impl Word for $name {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            fn variant(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
        }
    };
}

words! {
    /// The type of a stored element.
    ElementType, "an element type" {
        E2m1 = "e2m1",
        E2m3 = "e2m3",
        E3m2 = "e3m2",
        E4m3 = "e4m3",
        E5m2 = "e5m2",
        Int4 = "int4",
        Uint4 = "uint4",
        Int8 = "int8",
        Bf16 = "bf16",
        F16 = "f16",
        F32 = "f32",
    }
}

words! {
    /// The type of a stored scale.
    ScaleType, "a scale type" {
        E8m0 = "e8m0",
        E4m3 = "e4m3",
        F32 = "f32",
        Bf16 = "bf16",
        F16 = "f16",
    }
}

words! {
    /// Where the one scale of a tensor comes from.
    ScaleSource, "a source of scales" {
        Static = "static",
        Dynamic = "dynamic",
    }
}

words! {
    /// How a block scale is chosen.
    Rounding, "a rounding rule" {
        Rceil = "rceil",
        Floor = "floor",
        Even = "even",
        Ceil = "ceil",
    }
}

words! {
    /// What happens to the stored words of a payload after its digits.
    PayloadWord, "a step over the words of a payload" {
        Fp4HopperTwiddle = "fp4_hopper_twiddle",
    }
}

words! {
    /// Who executes a row.
    KernelKind, "a kind of kernel" {
        Generated = "generated",
        External = "external",
    }
}

words! {
    /// Who quantises.
    QuantizeAt, "who quantises" {
        Prepare = "prepare",
        Expert = "expert",
    }
}

words! {
    /// When a transport's payload is quantised.
    QuantizeWhen, "a time to quantise" {
        Before = "before",
        Dispatch = "dispatch",
        After = "after",
        Never = "never",
    }
}

words! {
    /// How far a transport carries tokens.
    Scope, "a scope of a transport" {
        Local = "local",
    }
}

words! {
    /// How a stored weight scale stands for its value.
    Encoding, "a scale encoding" {
        AsStored = "as_stored",
    }
}

words! {
    /// What a stored global scale does to a number.
    Convention, "a convention of global scales" {
        Multiplier = "multiplier",
        Divisor = "divisor",
    }
}

words! {
    /// What shares one global scale.
    GlobalScope, "a scope of global scales" {
        PerExpert = "per_expert",
        MaxOverExperts = "max_over_experts",
    }
}

words! {
    /// What the epilogue factor of a GEMM is made of.
    Alpha, "an epilogue factor" {
        WeightTimesInput = "weight_times_input",
    }
}

words! {
    /// The stored type of biases.
    BiasType, "a bias type" {
        Bf16 = "bf16",
        F32 = "f32",
        Model = "model",
    }
}

words! {
    /// A permutation of biases that is not the one of their rows.
    BiasOrder, "a bias order" {
        Marlin = "marlin",
    }
}

words! {
    /// How a fact was seen.
    Evidence, "a way of seeing a fact" {
        Executed = "executed",
        Read = "read",
        Inferred = "inferred",
    }
}

words! {
    /// An activation function.
    Activation, "an activation function" {
        Silu = "silu",
        Gelu = "gelu",
        GeluTanh = "gelu_tanh",
        Relu2 = "relu2",
        Swigluoai = "swigluoai",
        SwigluoaiUninterleave = "swigluoai_uninterleave",
        Swiglustep = "swiglustep",
        Situ = "situ",
        SiluNoMul = "silu_no_mul",
        GeluNoMul = "gelu_no_mul",
        GeluTanhNoMul = "gelu_tanh_no_mul",
        Relu2NoMul = "relu2_no_mul",
    }
}

words! {
    /// A parameter of an activation function.
    Parameter, "a parameter of an activation function" {
        Alpha = "alpha",
        Beta = "beta",
        LinearBeta = "linear_beta",
        Limit = "limit",
    }
}

impl Activation {
    /// The parameters that the function has.
    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            Self::Silu | Self::Swiglustep => &[Parameter::Limit],
            Self::Swigluoai | Self::SwigluoaiUninterleave => {
                &[Parameter::Alpha, Parameter::Beta, Parameter::Limit]
            }
            Self::Situ => &[Parameter::Beta, Parameter::LinearBeta],
            Self::Gelu
            | Self::GeluTanh
            | Self::Relu2
            | Self::SiluNoMul
            | Self::GeluNoMul
            | Self::GeluTanhNoMul
            | Self::Relu2NoMul => &[],
        }
    }

    /// Halves of the weight that GEMM1 multiplies with: 2 for gated functions, 1 for plain ones.
    pub fn halves(self) -> usize {
        match self {
            Self::SiluNoMul | Self::GeluNoMul | Self::GeluTanhNoMul | Self::Relu2NoMul => 1,
            _ => 2,
        }
    }
}

words! {
    /// The half of a gated weight.
    Half, "a half" {
        Gate = "gate",
        Up = "up",
    }
}

words! {
    /// A device, by its architecture.
    Device, "a device" {
        Sm70 = "sm_70",
        Sm75 = "sm_75",
        Sm80 = "sm_80",
        Sm86 = "sm_86",
        Sm89 = "sm_89",
        Sm90 = "sm_90",
        Sm100 = "sm_100",
        Sm103 = "sm_103",
        Sm110 = "sm_110",
        Sm120 = "sm_120",
        Sm121 = "sm_121",
        Gfx90a = "gfx90a",
        Gfx942 = "gfx942",
        Gfx950 = "gfx950",
        Gfx1100 = "gfx1100",
        Gfx1201 = "gfx1201",
        Gfx1250 = "gfx1250",
        Xe2 = "xe2",
        CpuX86 = "cpu_x86",
        CpuX86Amx = "cpu_x86_amx",
        CpuX86AmxFp8 = "cpu_x86_amx_fp8",
        CpuX86Zen = "cpu_x86_zen",
        CpuArm = "cpu_arm",
        CpuPower = "cpu_power",
    }
}

words! {
    /// A library that an engine's kernel needs.
    Library, "a library" {
        Aiter = "aiter",
        B12x = "b12x",
        DeepGemm = "deep_gemm",
        Flashinfer = "flashinfer",
        Hpc = "hpc",
        Humming = "humming",
        Quark = "quark",
        TritonKernels = "triton_kernels",
        VllmArm = "vllm_arm",
        VllmRocm = "vllm_rocm",
    }
}

words! {
    /// How a router picks experts.
    RoutingMethod, "a routing method" {
        Default = "default",
        Renormalize = "renormalize",
        RenormalizeNaive = "renormalize_naive",
        DeepseekV3 = "deepseek_v3",
        DeepseekV4 = "deepseek_v4",
        Llama4 = "llama4",
        Topk = "topk",
        Sigmoid = "sigmoid",
        SigmoidRenorm = "sigmoid_renorm",
        Minimax2 = "minimax2",
        Custom = "custom",
        Unspecified = "unspecified",
    }
}

words! {
    /// An all-to-all implementation.
    All2all, "an all-to-all" {
        AllgatherReducescatter = "allgather_reducescatter",
        DeepepHighThroughput = "deepep_high_throughput",
        DeepepLowLatency = "deepep_low_latency",
        DeepepV2 = "deepep_v2",
        FlashinferNvlinkOneSided = "flashinfer_nvlink_one_sided",
        FlashinferNvlinkTwoSided = "flashinfer_nvlink_two_sided",
        Moonep = "moonep",
        MoriHighThroughput = "mori_high_throughput",
        MoriLowLatency = "mori_low_latency",
        NixlEp = "nixl_ep",
        Passthrough = "passthrough",
    }
}

words! {
    /// How a kernel reads routed tokens.
    GemmType, "a GEMM type" {
        Indexed = "indexed",
        Grouped = "grouped",
        Batched = "batched",
    }
}

words! {
    /// Whose order an oracle follows.
    Engine, "an engine" {
        Vllm = "vllm",
        Native = "native",
    }
}

words! {
    /// An end of an order.
    End, "an end of an order" {
        First = "first",
        Last = "last",
    }
}

words! {
    /// A grouping that needs no number.
    GroupingWord, "a grouping" {
        Tokens = "tokens",
        Slots = "slots",
    }
}

words! {
    /// How experts are handed tokens.
    ActivationFormat, "a format of handed tokens" {
        Standard = "standard",
        Batched = "batched",
    }
}

words! {
    /// The type of tokens or router logits.
    TokenType, "a type of tokens" {
        Bf16 = "bf16",
        F16 = "f16",
        F32 = "f32",
    }
}

words! {
    /// How a checkpoint lays integer weights out.
    Checkpoint, "a layout of checkpoints" {
        Awq = "awq",
        CompressedTensors = "compressed_tensors",
        Gptq = "gptq",
        Moewna16 = "moewna16",
    }
}

words! {
    /// Something that a layer has or its caller allows.
    Feature, "a feature" {
        Lora = "lora",
        Bias = "bias",
        BiasPossible = "bias_possible",
        ZeroPoints = "zero_points",
        ActOrder = "act_order",
        Plain = "plain",
        LoadBalancing = "load_balancing",
        BatchInvariance = "batch_invariance",
        HashRouting = "hash_routing",
        DecomposedRouting = "decomposed_routing",
        CutlassAllowed = "cutlass_allowed",
        Alpha = "alpha",
        Beta = "beta",
        Limit = "limit",
        InputConflict = "input_conflict",
    }
}

words! {
    /// The value of a setting.
    Switch, "a value of a setting" {
        On = "on",
        Off = "off",
    }
}

words! {
    /// Why something is refused.
    Stated, "a reason" {
        ActivationMx = "activation_mx",
        ActivationW4a8 = "activation_w4a8",
        ActivationOverrideConflict = "activation_override_conflict",
        ArmOnly = "arm_only",
        AssertMoriNeedsAiter = "assert_mori_needs_aiter",
        Bias = "bias",
        ClampNotApplied = "clamp_not_applied",
        ConfigNoMulPlatform = "config_no_mul_platform",
        CpuOnly = "cpu_only",
        CutlassNotAllowed = "cutlass_not_allowed",
        InDtype = "in_dtype",
        IntermediateAlign = "intermediate_align",
        Lora = "lora",
        MoeEpA16Nvfp4 = "moe_ep_a16_nvfp4",
        NeedsQuark = "needs_quark",
        PreAwqLayout = "pre_awq_layout",
        PreBias = "pre_bias",
        PreCtOnly = "pre_ct_only",
        PreGptqActorder = "pre_gptq_actorder",
        PreMarlinShapeOrGroup = "pre_marlin_shape_or_group",
        PreMoewna16Layout = "pre_moewna16_layout",
        PreOther = "pre_other",
        PreZpOrBias = "pre_zp_or_bias",
        RoutingMethod = "routing_method",
        SwigluParams = "swiglu_params",
        TooManyExpertsTriton = "too_many_experts_triton",
        TooManyExpertsTrtllm = "too_many_experts_trtllm",
    }
}

words! {
    /// Whether a class routes itself.
    ClassKind, "a kind of class" {
        Monolithic = "monolithic",
        Modular = "modular",
    }
}

words! {
    /// Whether something has to be or must not be.
    Need, "a need" {
        Required = "required",
        Refused = "refused",
    }
}

words! {
    /// What the scheme of a request does to an order.
    InputRule, "what a token format that is asked for does" {
        Required = "required",
        Preferred = "preferred",
        Ignored = "ignored",
    }
}

words! {
    /// Who chooses the backend.
    Choice, "who chooses" {
        Automatic = "automatic",
        Named = "named",
    }
}

words! {
    /// When a class refuses.
    CheckAt, "a place among the checks" {
        First = "first",
        Last = "last",
    }
}

words! {
    /// What a refused device says.
    DeviceReason, "what a refused device says" {
        AiterOff = "aiter_off",
    }
}
