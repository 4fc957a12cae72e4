//! What a layer asks of an oracle.

use crate::backend::Activation;
use crate::words::vocabulary;

/// What a layer asks for. [`Request::new`] asks for one rank and nothing unusual; change its fields
/// for the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whose order is followed.
    pub engine: Engine,
    /// The device.
    pub device: Device,
    /// Libraries that are not installed, by their words in the table.
    pub missing_libraries: Vec<String>,
    /// The activation function between the GEMMs.
    pub activation: Activation,
    /// The scheme of the checkpoint, `[scheme.x]`; `None` asks for any that the family has.
    pub scheme: Option<String>,
    /// The hidden size.
    pub hidden: usize,
    /// The intermediate size of one rank.
    pub intermediate: usize,
    /// The experts of the model.
    pub experts: usize,
    /// How the router picks experts.
    pub routing: RoutingMethod,
    /// The type of the router's logits.
    pub router_dtype: TokenType,
    /// The type of the tokens.
    pub token_dtype: TokenType,
    /// How the layer is spread over ranks.
    pub parallel: Parallel,
    /// What else the layer has or the caller allows.
    pub features: Vec<Feature>,
    /// How the checkpoint lays its integer weights out; `None` for other checkpoints.
    pub checkpoint: Option<Checkpoint>,
    /// The elements along K that share a scale of integer weights; 0 is a whole channel.
    pub group: Option<usize>,
    /// The model's type, as its configuration spells it.
    pub model_type: Option<String>,
    /// The backend that the user asks for (vLLM's `--moe-backend`); `None` leaves it to the order.
    pub backend: Option<String>,
    /// Settings of the engine that differ from their defaults or are set to them, `[setting.x]`.
    pub settings: Vec<(String, Switch)>,
    /// The GEMM type that the user prefers; `None` leaves it to the engine.
    pub gemm_type: Option<GemmType>,
}

impl Request {
    /// One rank, every library installed, softmax after top-k, bf16 tokens, vLLM's order, no scheme
    /// asked for.
    pub fn new(device: Device, activation: Activation, hidden: usize) -> Self {
        Self {
            engine: Engine::Vllm,
            device,
            missing_libraries: Vec::new(),
            activation,
            scheme: None,
            hidden,
            intermediate: hidden,
            experts: 128,
            routing: RoutingMethod::Renormalize,
            router_dtype: TokenType::Bf16,
            token_dtype: TokenType::Bf16,
            parallel: Parallel::default(),
            features: Vec::new(),
            checkpoint: None,
            group: None,
            model_type: None,
            backend: None,
            settings: Vec::new(),
            gemm_type: None,
        }
    }

    /// What the request sets `setting` to, if it does.
    pub(super) fn setting(&self, setting: &str) -> Option<Switch> {
        self.settings.iter().find(|(name, _)| name == setting).map(|(_, value)| *value)
    }

    /// How experts are handed tokens: all-to-alls of the low-latency kind fill a buffer an expert.
    pub fn activation_format(&self) -> ActivationFormat {
        match self.parallel.all2all {
            Some(All2all::DeepepLowLatency | All2all::NixlEp) => ActivationFormat::Batched,
            _ => ActivationFormat::Standard,
        }
    }
}

/// How a layer is spread over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parallel {
    /// Data-parallel ranks.
    pub data_parallel: usize,
    /// Expert-parallel ranks; `None` if experts are not spread.
    pub expert_parallel: Option<usize>,
    /// Sequence-parallel ranks.
    pub sequence_parallel: usize,
    /// The all-to-all in use; `None` if tokens stay on their rank.
    pub all2all: Option<All2all>,
}

impl Default for Parallel {
    /// One rank.
    fn default() -> Self {
        Self { data_parallel: 1, expert_parallel: None, sequence_parallel: 1, all2all: None }
    }
}

vocabulary! {
    /// Whose order of rows an oracle follows.
    Engine {
        /// vLLM's.
        Vllm = "vllm",
        /// This crate's own: only rows that it executes, wherever it executes them.
        Native = "native",
    }
}

vocabulary! {
    /// A device, by its architecture.
    Device {
        /// Volta.
        Sm70 = "sm_70",
        /// Turing.
        Sm75 = "sm_75",
        /// A100.
        Sm80 = "sm_80",
        /// A10, RTX 30.
        Sm86 = "sm_86",
        /// L4, L40, RTX 40.
        Sm89 = "sm_89",
        /// H100, H200.
        Sm90 = "sm_90",
        /// B200.
        Sm100 = "sm_100",
        /// B300.
        Sm103 = "sm_103",
        /// Thor.
        Sm110 = "sm_110",
        /// RTX 50, RTX PRO 6000.
        Sm120 = "sm_120",
        /// DGX Spark.
        Sm121 = "sm_121",
        /// Instinct MI200.
        Gfx90a = "gfx90a",
        /// Instinct MI300.
        Gfx942 = "gfx942",
        /// Instinct MI350.
        Gfx950 = "gfx950",
        /// Radeon RX 7000.
        Gfx1100 = "gfx1100",
        /// Radeon RX 9000.
        Gfx1201 = "gfx1201",
        /// Instinct MI450.
        Gfx1250 = "gfx1250",
        /// Intel Xe2.
        Xe2 = "xe2",
        /// x86 without AMX.
        CpuX86 = "cpu_x86",
        /// x86 with AMX.
        CpuX86Amx = "cpu_x86_amx",
        /// x86 with AMX for FP8.
        CpuX86AmxFp8 = "cpu_x86_amx_fp8",
        /// AMD Zen with zentorch.
        CpuX86Zen = "cpu_x86_zen",
        /// Arm.
        CpuArm = "cpu_arm",
        /// Power.
        CpuPower = "cpu_power",
    }
}

vocabulary! {
    /// How the router picks experts. vLLM's `RoutingMethodType`.
    RoutingMethod {
        /// Softmax, then top-k.
        Default = "default",
        /// Top-k, then softmax over the k.
        Renormalize = "renormalize",
        /// Softmax, top-k, then weights scaled to a sum of 1.
        RenormalizeNaive = "renormalize_naive",
        /// Sigmoid with a bias, top-k groups, then top-k.
        DeepseekV3 = "deepseek_v3",
        /// DeepSeek-V4's.
        DeepseekV4 = "deepseek_v4",
        /// Top-1, then sigmoid.
        Llama4 = "llama4",
        /// Top-k of the scores as they are.
        Topk = "topk",
        /// Sigmoid, then top-k.
        Sigmoid = "sigmoid",
        /// The same, then weights scaled to a sum of 1.
        SigmoidRenorm = "sigmoid_renorm",
        /// Sigmoid with a bias for the choice, top-k, then weights scaled to a sum of 1.
        Minimax2 = "minimax2",
        /// The model brings its own function.
        Custom = "custom",
        /// Not said.
        Unspecified = "unspecified",
    }
}

vocabulary! {
    /// An all-to-all implementation. vLLM's `--all2all-backend`.
    All2all {
        /// All-gather and reduce-scatter.
        AllgatherReducescatter = "allgather_reducescatter",
        /// DeepEP, high throughput.
        DeepepHighThroughput = "deepep_high_throughput",
        /// DeepEP, low latency.
        DeepepLowLatency = "deepep_low_latency",
        /// DeepEP v2.
        DeepepV2 = "deepep_v2",
        /// FlashInfer over NVLink, one-sided.
        FlashinferNvlinkOneSided = "flashinfer_nvlink_one_sided",
        /// FlashInfer over NVLink, two-sided.
        FlashinferNvlinkTwoSided = "flashinfer_nvlink_two_sided",
        /// MoonEP.
        Moonep = "moonep",
        /// Mori, high throughput.
        MoriHighThroughput = "mori_high_throughput",
        /// Mori, low latency.
        MoriLowLatency = "mori_low_latency",
        /// NIXL.
        NixlEp = "nixl_ep",
        /// A kernel that moves its tokens itself.
        Passthrough = "passthrough",
    }
}

vocabulary! {
    /// Humming's ways of reading routed tokens.
    GemmType {
        /// By index.
        Indexed = "indexed",
        /// Grouped by expert.
        Grouped = "grouped",
        /// A buffer an expert.
        Batched = "batched",
    }
}

vocabulary! {
    /// How experts are handed tokens. vLLM's `FusedMoEActivationFormat`.
    ActivationFormat {
        /// One row a token.
        Standard = "standard",
        /// A buffer of equal size for each expert.
        Batched = "batched",
    }
}

vocabulary! {
    /// The type of tokens, or of the router's logits.
    TokenType {
        /// bfloat16.
        Bf16 = "bf16",
        /// IEEE half precision.
        F16 = "f16",
        /// IEEE single precision.
        F32 = "f32",
    }
}

vocabulary! {
    /// How a checkpoint lays its integer weights out.
    Checkpoint {
        /// AutoAWQ.
        Awq = "awq",
        /// compressed-tensors.
        CompressedTensors = "compressed_tensors",
        /// AutoGPTQ.
        Gptq = "gptq",
        /// MoeWNA16.
        Moewna16 = "moewna16",
    }
}

vocabulary! {
    /// Something that a layer has, or that its caller allows.
    Feature {
        /// LoRA adapters.
        Lora = "lora",
        /// Biases of experts.
        Bias = "bias",
        /// The loader of the checkpoint may bring biases.
        BiasPossible = "bias_possible",
        /// Zero points beside the scales.
        ZeroPoints = "zero_points",
        /// Columns in another order (GPTQ's `desc_act`).
        ActOrder = "act_order",
        /// Functions of one half: no product of gate and up.
        Plain = "plain",
        /// Experts are moved between ranks to even out their load (EPLB).
        LoadBalancing = "load_balancing",
        /// The same results whatever else is in the batch.
        BatchInvariance = "batch_invariance",
        /// Experts picked by a hash of the token.
        HashRouting = "hash_routing",
        /// The choice of experts is changed after routing.
        DecomposedRouting = "decomposed_routing",
        /// vLLM's CUTLASS kernels for FP8, which only some of its callers allow.
        CutlassAllowed = "cutlass_allowed",
        /// The parameter `alpha` is set.
        Alpha = "alpha",
        /// The parameter `beta` is set.
        Beta = "beta",
        /// The parameter `limit` is set.
        Limit = "limit",
        /// The checkpoint and the caller ask for different token formats.
        InputConflict = "input_conflict",
    }
}

vocabulary! {
    /// A setting's value.
    Switch {
        /// On.
        On = "on",
        /// Off.
        Off = "off",
    }
}
