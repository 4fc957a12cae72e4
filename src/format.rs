//! Number formats: what a consumer must know of stored numbers.

/// The type of a stored element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// FP4: 1 sign, 2 exponent, 1 mantissa bit; two to a byte, low nibble first.
    E2m1,
    /// FP8: 4 exponent, 3 mantissa bits; finite, largest 448, NaN is 0x7F or 0xFF.
    E4m3,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl ElementType {
    /// Bits of one element.
    pub fn bits(self) -> usize {
        match self {
            Self::E2m1 => 4,
            Self::E4m3 => 8,
            Self::Bf16 | Self::F16 => 16,
            Self::F32 => 32,
        }
    }

    /// Bytes of `count` elements; an odd FP4 element takes a byte of its own.
    pub fn bytes(self, count: usize) -> usize {
        count.saturating_mul(self.bits()).div_ceil(8)
    }
}

/// The type of a stored scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaleType {
    /// A power of two, `2^(byte - 127)`; 0xFF is NaN. There is no zero.
    E8m0,
    /// FP8 e4m3 (NVFP4's block scales).
    E4m3,
    /// IEEE single precision.
    F32,
    /// bfloat16.
    Bf16,
}

impl ScaleType {
    /// Bytes of one scale.
    pub fn bytes(self) -> usize {
        match self {
            Self::E8m0 | Self::E4m3 => 1,
            Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

/// One scale for each block of `rows` × `cols` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockScale {
    /// The stored type.
    pub scale: ScaleType,
    /// Rows of a block.
    pub rows: usize,
    /// Elements of a block along K.
    pub cols: usize,
}

/// A format as a value: element type and scale scheme. How a scale was *chosen* is the producer's
/// business and stands in no format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatSpec {
    /// The name in the table.
    pub name: &'static str,
    /// The stored element.
    pub element: ElementType,
    /// The block scale, if there is one.
    pub block: Option<BlockScale>,
    /// The type of the second-level (global) scale, if there is one.
    pub global: Option<ScaleType>,
}

/// A [`FormatSpec`] as a type. Only generated code makes these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a format of any table",
    note = "formats are types made from `[format.x]` in backends.toml; add one there"
)]
pub trait Format: crate::__private::Sealed + Copy + std::fmt::Debug + Send + Sync + 'static {
    /// The format as a value.
    const SPEC: &'static FormatSpec;
}

/// How a block scale is chosen from the block's largest magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// The smallest power of two with `amax / 2^e <= max(element)`, by the bits of
    /// `amax * fl(1 / max(element))`. FlashInfer's rule.
    Rceil,
    /// `floor(log2(amax)) - emax(element)`. The OCP rule; saturates.
    Floor,
    /// `amax` rounded to the element's mantissa first, then [`Floor`](Self::Floor). vLLM's MXFP4
    /// activations.
    Even,
    /// `ceil(log2(amax)) - emax(element)`.
    Ceil,
}
