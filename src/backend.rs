//! Backends: rows of a table as values ([`Contract`]) and as types ([`Backend`]).

use crate::format::{Format, FormatSpec, Rounding};
use crate::layout::{Layout, Order, Payload, ScaleLayout, UNSCALED};
use crate::oracle::{Device, ExpertsClass};
use crate::transport::Route;
use crate::words::vocabulary;

/// Something that either the table says or only the vendor's library knows.
#[derive(Debug, Clone, Copy)]
pub enum Known<T: 'static> {
    /// In closed form.
    Is(T),
    /// Only inside the vendor's library; the text is for people.
    Vendor(&'static str),
}

impl<T: Copy> Known<T> {
    /// The closed form, if there is one.
    pub fn is(self) -> Option<T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Vendor(_) => None,
        }
    }
}

/// What one backend reads: a row of the table, whole.
#[derive(Debug, Clone)]
pub struct Contract {
    /// The row's name.
    pub name: &'static str,
    /// The row in vLLM's words, if it has it.
    pub vllm: Option<VllmNames>,
    /// Whether this crate executes the row.
    pub kernel: Kernel,
    /// Where each fact was seen.
    pub facts: &'static [Fact],
    /// The weights.
    pub weight: WeightContract,
    /// What GEMM1 (gate/up) reads.
    pub gemm1_input: InputContract,
    /// What GEMM2 (down) reads; `None` if the row does not say.
    pub gemm2_input: Option<InputContract>,
    /// The activation functions it honours, each with the parameters that it honours. All else is
    /// refused.
    pub activations: &'static [Honoured],
    /// The schemes of `[scheme.x]` that it serves.
    pub serves: &'static [&'static str],
    /// The devices that it describes; `None` for all that its classes run on.
    pub devices: Option<&'static [Device]>,
    /// The engine's kernel classes, in the order in which it tries them.
    pub experts: &'static [ExpertsClass],
    /// Those of the classes that run this row; empty for all.
    pub classes: &'static [&'static str],
    /// What each transport of the table does for this row.
    pub routes: &'static [Route],
}

/// vLLM's names for a row.
#[derive(Debug, Clone, Copy)]
pub struct VllmNames {
    /// The member of the oracle's enum.
    pub backend: &'static str,
    /// Values of `--moe-backend` that reach it.
    pub flags: &'static [&'static str],
}

/// Where a fact of a row comes from.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// The software and version.
    pub from: &'static str,
    /// File and line, or the like.
    pub at: &'static str,
    /// How it was seen.
    pub how: Evidence,
}

impl Fact {
    /// A fact of `from`, seen at `at`.
    pub const fn new(from: &'static str, at: &'static str, how: Evidence) -> Self {
        Self { from, at, how }
    }
}

/// How a fact was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The code was run.
    Executed,
    /// The code was read.
    Read,
    /// It follows from something else that was seen.
    Inferred,
}

/// Who executes a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// This crate, from the row.
    Generated,
    /// Nobody yet: this crate would, but for what is said here.
    Described(&'static str),
    /// Only the vendor's library; the row is selected and described.
    External,
}

/// What a backend reads of its weights.
#[derive(Debug, Clone)]
pub struct WeightContract {
    /// Elements and scales.
    pub format: &'static FormatSpec,
    /// The checkpoint format that preparation requantises from, if it does.
    pub requantize_from: Option<&'static FormatSpec>,
    /// The order of the stored elements.
    pub payload: Known<&'static Payload>,
    /// Where the block scales are; `None` for formats without.
    pub scale: Option<WeightScale>,
    /// The order of the fused gate/up rows, per activation function; empty if the row does not say.
    pub gate_up: &'static [(Activation, &'static Order)],
    /// The order of the down rows; `None` keeps them as they come.
    pub down: Option<&'static Order>,
    /// What sizes are padded to.
    pub pad: Option<WeightPad>,
    /// Biases, if the backend takes any.
    pub bias: Option<Bias>,
}

impl WeightContract {
    /// Weights without scales, orders of their own, padding or biases.
    pub const fn of(format: &'static FormatSpec, payload: Known<&'static Payload>) -> Self {
        Self {
            format,
            requantize_from: None,
            payload,
            scale: None,
            gate_up: &[],
            down: None,
            pad: None,
            bias: None,
        }
    }

    /// The order of the gate/up rows under `activation`; `None` if the backend refuses it.
    pub fn gate_up_order(&self, activation: Activation) -> Option<&'static Order> {
        self.gate_up.iter().find(|(key, _)| *key == activation).map(|(_, order)| *order)
    }
}

/// Where the block scales of a weight are.
#[derive(Debug, Clone)]
pub struct WeightScale {
    /// The layout.
    pub layout: Known<&'static Layout>,
    /// How the stored scale stands for its value.
    pub encoding: Known<Encoding>,
    /// Scales are repeated over this many rows before the layout; 1 is no repetition.
    pub repeat_rows: usize,
    /// What padding bytes hold.
    pub fill: u8,
    /// The second level, if there is one.
    pub global: Option<GlobalScale>,
}

impl WeightScale {
    /// Scales of one level, not repeated.
    pub const fn of(layout: Known<&'static Layout>, encoding: Known<Encoding>, fill: u8) -> Self {
        Self { layout, encoding, repeat_rows: 1, fill, global: None }
    }

    /// Scales that only the vendor's library knows; `why` is for people.
    pub const fn vendor(why: &'static str, fill: u8) -> Self {
        Self::of(Known::Vendor(why), Known::Vendor(why), fill)
    }
}

/// How a stored scale stands for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// It is the value, in its scale type.
    AsStored,
}

/// The multiples that weight sizes are padded to. Each half is padded alone, before the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightPad {
    /// Of the hidden size.
    pub hidden: usize,
    /// Of the intermediate size of gated weights.
    pub gated: usize,
    /// Of the intermediate size of plain weights.
    pub plain: usize,
    /// What padding bytes of the payload hold.
    pub fill: u8,
}

/// Biases of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bias {
    /// The stored type.
    pub dtype: BiasType,
    /// Their order.
    pub order: BiasOrder,
}

/// The order of biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BiasOrder {
    /// As the rows they belong to.
    AsRows,
    /// Marlin's own permutation.
    Marlin,
}

impl BiasOrder {
    /// Where the bias of stored weight row `row` is stored.
    pub(crate) fn position(self, row: usize) -> usize {
        match self {
            Self::AsRows => row,
            // The digits of `[layout.marlin_channel]`: row/32, row/2%4, row/8%4, row%2
            // (vLLM, `marlin_permute_bias`).
            Self::Marlin => row / 32 * 32 + row / 2 % 4 * 8 + row / 8 % 4 * 2 + row % 2,
        }
    }
}

/// How second-level scales are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalScale {
    /// What the stored value does to a number.
    pub convention: Convention,
    /// What shares one.
    pub scope: GlobalScope,
}

/// What a stored global scale does to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convention {
    /// Dequantising multiplies by it.
    Multiplier,
    /// Dequantising divides by it.
    Divisor,
}

/// What shares one global scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalScope {
    /// An expert.
    PerExpert,
    /// All experts: the largest.
    MaxOverExperts,
}

/// What the epilogue factor of a GEMM is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpilogueFactor {
    /// The global scale of the weight times that of the input.
    WeightTimesInput,
}

/// The stored type of biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BiasType {
    /// bfloat16.
    Bf16,
    /// IEEE single precision.
    F32,
    /// The model's own type.
    Model,
}

impl BiasType {
    /// `value` as it is stored, and read again.
    pub(crate) fn round(self, value: f32) -> f32 {
        match self {
            Self::Bf16 => half::bf16::from_f32(value).to_f32(),
            Self::F32 | Self::Model => value,
        }
    }
}

/// What a GEMM reads of its tokens.
#[derive(Debug, Clone)]
pub struct InputContract {
    /// The formats; with several, the caller's type decides.
    pub formats: &'static [&'static FormatSpec],
    /// How the producer chooses block scales.
    pub rounding: Option<Rounding>,
    /// Who quantises; `None` where there is nothing to quantise or, for GEMM2, no choice.
    pub quantize: Option<QuantizeAt>,
    /// Where the scales are; [`UNSCALED`] for formats without.
    pub layout: Known<InputLayout>,
    /// What the backend is handed, where its scales have another type than those that the kernel
    /// reads: the backend converts them.
    pub prepared_format: Option<&'static FormatSpec>,
    /// How rows are grouped by expert; `None` if the row does not say, and for GEMM2, whose rows are
    /// grouped as GEMM1's.
    pub grouping: Option<Grouping>,
    /// What the hidden size is padded to before it is quantised; 1 is no padding.
    pub multiple: usize,
    /// Where the one scale of a tensor comes from, for formats with such a scale.
    pub source: Option<ScaleSource>,
    /// The second level, if there is one.
    pub global: Option<GlobalScale>,
    /// The epilogue factor, if there is one.
    pub alpha: Option<EpilogueFactor>,
}

impl InputContract {
    /// Tokens without scales, which nobody quantises or pads.
    pub const fn unscaled(formats: &'static [&'static FormatSpec]) -> Self {
        Self {
            formats,
            rounding: None,
            quantize: None,
            layout: Known::Is(InputLayout { prepared: &UNSCALED, kernel: &UNSCALED }),
            prepared_format: None,
            grouping: None,
            multiple: 1,
            source: None,
            global: None,
            alpha: None,
        }
    }

    /// The formats that the backend is handed where prepare quantises.
    pub fn handed(&self) -> &[&'static FormatSpec] {
        self.prepared_format.as_ref().map_or(self.formats, std::slice::from_ref)
    }

    /// How the caller gives a scale that is not chosen from the numbers: by the convention of the
    /// second level, or as a multiplier where it is the static scale of a tensor.
    pub fn calibrated(&self) -> Option<Convention> {
        let fixed = (self.source == Some(ScaleSource::Static)).then_some(Convention::Multiplier);
        self.global.map(|global| global.convention).or(fixed)
    }
}

/// Where the one scale of a tensor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleSource {
    /// The calibration of the model.
    Static,
    /// The numbers themselves.
    Dynamic,
}

/// The two layouts of a GEMM's scales.
#[derive(Debug, Clone, Copy)]
pub struct InputLayout {
    /// What the backend is handed, one row a token.
    pub prepared: &'static Layout,
    /// What its kernel reads, rows grouped by expert.
    pub kernel: &'static Layout,
}

impl InputLayout {
    /// The same layout for both.
    pub const fn same(layout: &'static Layout) -> Self {
        Self { prepared: layout, kernel: layout }
    }
}

/// Who quantises the input of GEMM1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantizeAt {
    /// Prepare, before the backend is called.
    Prepare,
    /// The experts kernel; it is handed tokens without scales.
    Expert,
}

/// How the rows that a kernel reads are grouped by expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Rows are tokens; the kernel gathers.
    Tokens,
    /// One buffer; each expert's rows begin at the next multiple after the previous expert's.
    Ranges {
        /// The multiple.
        start_multiple: usize,
    },
    /// One buffer; expert `e`, whose first routed row is `f` when rows are packed, begins at
    /// `round_up(f + e * (start_multiple - 1), start_multiple)`. Starts depend on `f` alone.
    SpreadRanges {
        /// The multiple.
        start_multiple: usize,
    },
    /// A buffer of equal size for each expert.
    Slots,
}

vocabulary! {
    /// An activation function between the GEMMs.
    Activation {
        /// `silu(gate') * up'` with `gate' = min(gate, limit)` and `up' = clamp(up, ±limit)`.
        Silu = "silu",
        /// `gelu(gate) * up`, by the error function.
        Gelu = "gelu",
        /// `gelu(gate) * up`, by the tanh approximation.
        GeluTanh = "gelu_tanh",
        /// `max(gate, 0)^2 * up`.
        Relu2 = "relu2",
        /// gpt-oss: `gate' * sigmoid(alpha * gate') * (up' + beta)` with `gate' = min(gate, limit)`
        /// and `up' = clamp(up, ±limit)`.
        Swigluoai = "swigluoai",
        /// The same; vLLM's name for it where gate and up rows do not alternate.
        SwigluoaiUninterleave = "swigluoai_uninterleave",
        /// `min(silu(gate), limit) * clamp(up, ±limit)`: clamped after the function.
        Swiglustep = "swiglustep",
        /// `beta * tanh(gate / beta) * sigmoid(gate) * linear_beta * tanh(up / linear_beta)`.
        Situ = "situ",
        /// `silu(x)` of a plain weight.
        SiluNoMul = "silu_no_mul",
        /// `gelu(x)` of a plain weight, by the error function.
        GeluNoMul = "gelu_no_mul",
        /// `gelu(x)` of a plain weight, by the tanh approximation.
        GeluTanhNoMul = "gelu_tanh_no_mul",
        /// `max(x, 0)^2` of a plain weight.
        Relu2NoMul = "relu2_no_mul",
    }
}

impl Activation {
    /// Halves of the weight that GEMM1 multiplies with: 2 for gated functions, 1 for plain ones.
    pub fn halves(self) -> usize {
        match self {
            Self::SiluNoMul | Self::GeluNoMul | Self::GeluTanhNoMul | Self::Relu2NoMul => 1,
            _ => 2,
        }
    }
}

vocabulary! {
    /// A parameter of an activation function.
    Parameter {
        /// The factor inside the sigmoid.
        Alpha = "alpha",
        /// What is added to the up half; of situ, where the gate saturates.
        Beta = "beta",
        /// Where the up half saturates.
        LinearBeta = "linear_beta",
        /// The clamp.
        Limit = "limit",
    }
}

/// An activation function that a backend honours.
#[derive(Debug, Clone, Copy)]
pub struct Honoured {
    /// The function.
    pub function: Activation,
    /// The parameters it takes from the caller.
    pub parameters: &'static [Parameter],
}

/// A row of a table as a type. Only generated code makes these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a backend of any table",
    note = "backends are types made from `[backend.x]` in backends.toml; add a row there"
)]
pub trait Backend: crate::__private::Sealed + Copy + std::fmt::Debug + Send + Sync + 'static {
    /// The row.
    const CONTRACT: &'static Contract;
}

/// `Self` reads tokens in format `F`. Only generated code implements this.
#[diagnostic::on_unimplemented(
    message = "backend `{Self}` does not read tokens in `{F}`",
    note = "the formats of a row stand in `[backend.x.gemm1_input]` of backends.toml"
)]
pub trait Reads<F: Format>: Backend {
    /// The layout of the scales that the backend is handed, one row a token.
    type Prepared: ScaleLayout;
}

/// `Self` can be handed `Input`. Only generated code implements this, once for each format of the
/// row and with the row's own layout, so a buffer in another layout does not compile.
#[diagnostic::on_unimplemented(
    message = "backend `{Self}` cannot read `{Input}`: its contract asks for another format or scale layout",
    label = "not what `{Self}` reads",
    note = "make its input with `quantize_input` and the config of `{Self}`, or convert with `relayout()`",
    note = "the contract stands in `[backend.x.gemm1_input]` of backends.toml; `scalewright show` prints it"
)]
pub trait Accepts<Input>: Backend {}
