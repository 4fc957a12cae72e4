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
        After = "after",
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
        Gfx942 = "gfx942",
        Gfx950 = "gfx950",
        Gfx1250 = "gfx1250",
    }
}

words! {
    /// A library that an engine's kernel needs.
    Library, "a library" {
        DeepGemm = "deep_gemm",
        Flashinfer = "flashinfer",
        Humming = "humming",
        TritonKernels = "triton_kernels",
    }
}

words! {
    /// How a router picks experts.
    RoutingMethod, "a routing method" {
        Default = "default",
        Renormalize = "renormalize",
        RenormalizeNaive = "renormalize_naive",
        DeepseekV3 = "deepseek_v3",
        Llama4 = "llama4",
        Topk = "topk",
        Sigmoid = "sigmoid",
        SigmoidRenorm = "sigmoid_renorm",
        Minimax2 = "minimax2",
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
        Mori = "mori",
        NixlEp = "nixl_ep",
    }
}

words! {
    /// How a kernel reads routed tokens.
    GemmType, "a GEMM type" {
        Indexed = "indexed",
        Grouped = "grouped",
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
