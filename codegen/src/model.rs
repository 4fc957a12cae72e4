//! A checked table: valid by construction, without places, ready to be emitted.

pub mod digits;
pub mod names;
pub mod select;
pub mod transport;
pub mod words;

use std::sync::Arc;

use digits::{Axis, Number};
use words::{
    Activation, Alpha, BiasOrder, BiasType, Convention, Device, ElementType, Encoding, Evidence, GlobalScope,
    Half, Parameter, PayloadWord, QuantizeAt, Rounding, ScaleSource, ScaleType,
};

/// A checked table. Entries are sorted by name.
#[derive(Debug)]
pub struct Table {
    /// `[layout.x]`
    pub layouts: Vec<Arc<Layout>>,
    /// `[payload.x]`
    pub payloads: Vec<Arc<Payload>>,
    /// `[order.x]`
    pub orders: Vec<Arc<Order>>,
    /// `[devices]`: groups by name.
    pub devices: Vec<(String, Vec<Device>)>,
    /// `[format.x]`
    pub formats: Vec<Arc<Format>>,
    /// `[backend.x]`
    pub backends: Vec<Arc<Backend>>,
    /// `[transport.x]`
    pub transports: Vec<transport::Transport>,
    /// `[scheme.x]`
    pub schemes: Vec<select::Scheme>,
    /// `[setting.x]`
    pub settings: Vec<select::Setting>,
    /// `[[experts.x]]`
    pub experts: Vec<Arc<select::ExpertsList>>,
    /// `[oracle.x]`
    pub oracles: Vec<select::Oracle>,
    /// `[[dropped]]`
    pub dropped: Vec<select::Dropped>,
}

/// How a layout meets a size that its tiles do not divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fit {
    /// Rounds up.
    Pad(Multiples),
    /// Refuses.
    Divide(Multiples),
}

impl Fit {
    /// The multiples, whatever is done with them.
    pub fn multiples(self) -> Multiples {
        match self {
            Self::Pad(multiples) | Self::Divide(multiples) => multiples,
        }
    }
}

/// Multiples of rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Multiples {
    /// Of rows.
    pub row: usize,
    /// Of columns.
    pub col: usize,
}

/// Where a scale is stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its name.
    pub name: String,
    /// The digits, over row and col.
    pub number: Number,
    /// Padding or refusal.
    pub fit: Fit,
    /// Scale types it may hold.
    pub scales: Vec<ScaleType>,
    /// Other people's names for it.
    pub aliases: Vec<String>,
}

impl Layout {
    /// Whether the scales of a row lie together and rows follow each other unpadded, so that rows of
    /// several ranks can be put one after the other.
    pub fn is_per_token(&self) -> bool {
        let outermost = self.number.digits().first();
        let whole_row = outermost.is_some_and(|digit| digit.axis == Axis::Row && digit.divisor == 1);
        whole_row && self.fit.multiples().row == 1
    }
}

/// Where an element of a weight is stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its name.
    pub name: String,
    /// The digits, over row and col.
    pub number: Number,
    /// Padding or refusal.
    pub fit: Fit,
    /// What happens to the stored words after that.
    pub word: Option<PayloadWord>,
}

/// The sequence of weight rows.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    /// Its name.
    pub name: String,
    /// The digits, over row and, for gated weights, half.
    pub number: Number,
    /// Which half is half 0; `None` for plain weights.
    pub first: Option<Half>,
    /// What has to divide the rows of one half.
    pub multiple: usize,
}

/// Elements and scales.
#[derive(Debug, PartialEq, Eq)]
pub struct Format {
    /// Its name.
    pub name: String,
    /// The stored element.
    pub element: ElementType,
    /// The block scale.
    pub block: Option<BlockScale>,
    /// The type of the second-level scale.
    pub global: Option<ScaleType>,
}

/// One scale for each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockScale {
    /// Its type.
    pub scale: ScaleType,
    /// Rows of a block.
    pub rows: Reach,
    /// Elements of a block along K.
    pub cols: Reach,
    /// The type of the zero points.
    pub zero_point: Option<ElementType>,
}

/// How far a block reaches along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This many elements.
    Of(usize),
    /// From end to end.
    Whole,
}

impl Reach {
    /// The elements, where their number does not hang on the matrix.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Self::Of(elements) => Some(elements),
            Self::Whole => None,
        }
    }
}

/// Something that the table says or that only the vendor's library knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known<T> {
    /// In closed form.
    Is(T),
    /// Prose.
    Vendor(String),
}

impl<T> Known<T> {
    /// The closed form.
    pub fn is(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Vendor(_) => None,
        }
    }
}

/// One contract.
#[derive(Debug)]
pub struct Backend {
    /// The row's name.
    pub name: String,
    /// vLLM's names.
    pub vllm: Option<Vllm>,
    /// Where facts were seen.
    pub facts: Vec<Fact>,
    /// Who executes it.
    pub kernel: Kernel,
    /// The weights.
    pub weight: Weight,
    /// What GEMM1 reads.
    pub gemm1: Input,
    /// What GEMM2 reads.
    pub gemm2: Option<Input>,
    /// What it honours.
    pub honours: Vec<(Activation, Vec<Parameter>)>,
    /// The schemes that it serves.
    pub serves: Vec<String>,
    /// The devices that it describes; `None` for all that its classes run on.
    pub devices: Option<Vec<Device>>,
    /// The engine's classes.
    pub experts: Arc<select::ExpertsList>,
    /// Those of the classes that run it; empty for all.
    pub classes: Vec<String>,
}

/// vLLM's names for a row.
#[derive(Debug)]
pub struct Vllm {
    /// The enum member.
    pub backend: String,
    /// Values of the flag.
    pub flags: Vec<String>,
}

/// Where a fact comes from.
#[derive(Debug)]
pub struct Fact {
    /// Software and version.
    pub from: String,
    /// Place.
    pub at: String,
    /// How it was seen.
    pub how: Evidence,
}

/// Who executes a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernel {
    /// This crate.
    Generated,
    /// Nobody yet: this crate would, but for what is said here.
    Described(String),
    /// The vendor's library.
    External,
}

/// The weights of a row.
#[derive(Debug)]
pub struct Weight {
    /// Elements and scales.
    pub format: Arc<Format>,
    /// What preparation requantises from.
    pub requantize_from: Option<Arc<Format>>,
    /// The order of elements.
    pub payload: Known<Arc<Payload>>,
    /// Where the block scales are.
    pub scale: Option<WeightScale>,
    /// The order of the fused rows, per activation.
    pub gate_up: Vec<(Activation, Arc<Order>)>,
    /// The order of the down rows.
    pub down: Option<Arc<Order>>,
    /// Padding of sizes.
    pub pad: Option<WeightPad>,
    /// Biases.
    pub bias: Option<Bias>,
}

/// Where weight scales are.
#[derive(Debug)]
pub struct WeightScale {
    /// The layout.
    pub layout: Known<Arc<Layout>>,
    /// How a stored scale stands for its value.
    pub encoding: Known<Encoding>,
    /// Rows that each row of scales is repeated over.
    pub repeat_rows: usize,
    /// What padding holds.
    pub fill: u8,
    /// The second level.
    pub global: Option<GlobalScale>,
}

/// How second-level scales are stored.
#[derive(Debug, Clone, Copy)]
pub struct GlobalScale {
    /// Multiplier or divisor.
    pub convention: Convention,
    /// What shares one.
    pub scope: GlobalScope,
}

/// Padding of weight sizes.
#[derive(Debug, Clone, Copy)]
pub struct WeightPad {
    /// Of the hidden size.
    pub hidden: usize,
    /// Of the intermediate size, gated.
    pub gated: usize,
    /// Of the intermediate size, plain.
    pub plain: usize,
    /// What padding holds.
    pub fill: u8,
}

/// Biases of a row.
#[derive(Debug, Clone, Copy)]
pub struct Bias {
    /// The stored type.
    pub dtype: BiasType,
    /// A permutation of their own; `None`: as their rows.
    pub order: Option<BiasOrder>,
}

/// What a GEMM reads of its tokens.
#[derive(Debug)]
pub struct Input {
    /// The formats.
    pub formats: Vec<Arc<Format>>,
    /// How block scales are chosen.
    pub rounding: Option<Rounding>,
    /// Who quantises.
    pub quantize: Option<QuantizeAt>,
    /// Where the scales are.
    pub layout: Known<Scales>,
    /// What the backend is handed, where its scales have another type than the kernel's.
    pub prepared_format: Option<Arc<Format>>,
    /// Rows by expert.
    pub grouping: Option<Grouping>,
    /// What the hidden size is padded to.
    pub multiple: usize,
    /// Where the one scale of a tensor comes from, for formats with such a scale.
    pub source: Option<ScaleSource>,
    /// The second level.
    pub global: Option<GlobalScale>,
    /// The epilogue factor.
    pub alpha: Option<Alpha>,
}

impl Input {
    /// The formats that the backend is handed.
    pub fn handed(&self) -> &[Arc<Format>] {
        self.prepared_format.as_ref().map_or(&self.formats, std::slice::from_ref)
    }

    /// The convention of a scale that the caller has to give: that of the second level, or
    /// multiplier for the static scale of a tensor; `None` if all scales are chosen from the numbers.
    pub fn calibrated(&self) -> Option<Convention> {
        let fixed = (self.source == Some(ScaleSource::Static)).then_some(Convention::Multiplier);
        self.global.map(|global| global.convention).or(fixed)
    }
}

/// Where the scales of a GEMM's input are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scales {
    /// There are none.
    Unscaled,
    /// In these layouts.
    At {
        /// What the backend is handed.
        prepared: Arc<Layout>,
        /// What its kernel reads.
        kernel: Arc<Layout>,
    },
}

/// How rows are grouped by expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Rows are tokens.
    Tokens,
    /// A buffer an expert.
    Slots,
    /// One buffer, each expert after the one before it.
    Ranges(usize),
    /// One buffer, starts that do not depend on padding.
    SpreadRanges(usize),
}
