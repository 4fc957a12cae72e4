//! Number formats: what a consumer must know of stored numbers.

use crate::layout::Extent;

/// The type of a stored element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// FP4: 1 sign, 2 exponent, 1 mantissa bit; two to a byte, low nibble first.
    E2m1,
    /// FP6: 2 exponent, 3 mantissa bits; finite, largest 7.5; one to a byte, in its low six bits.
    E2m3,
    /// FP6: 3 exponent, 2 mantissa bits; finite, largest 28; one to a byte, in its low six bits.
    E3m2,
    /// FP8: 4 exponent, 3 mantissa bits; finite, largest 448, NaN is 0x7F or 0xFF.
    E4m3,
    /// FP8: 5 exponent, 2 mantissa bits; largest 57344, with infinities and NaN as IEEE 754 has them.
    E5m2,
    /// Two's complement, -8 to 7; two to a byte, low nibble first.
    Int4,
    /// 0 to 15, for formats with zero points; two to a byte, low nibble first.
    Uint4,
    /// Two's complement, -128 to 127.
    Int8,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl ElementType {
    /// Bits that a stored element takes.
    pub fn bits(self) -> usize {
        match self {
            Self::E2m1 | Self::Int4 | Self::Uint4 => 4,
            Self::E2m3 | Self::E3m2 | Self::E4m3 | Self::E5m2 | Self::Int8 => 8,
            Self::Bf16 | Self::F16 => 16,
            Self::F32 => 32,
        }
    }

    /// Bytes of `count` elements; an odd 4-bit element takes a byte of its own.
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
    /// IEEE half precision.
    F16,
}

impl ScaleType {
    /// Bytes of one scale.
    pub fn bytes(self) -> usize {
        match self {
            Self::E8m0 | Self::E4m3 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// How far a block reaches along one axis of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// This many elements.
    Of(usize),
    /// From end to end.
    Whole,
}

impl Reach {
    /// The elements of one block where the axis has `size` of them; at least 1.
    pub fn size(self, size: usize) -> usize {
        match self {
            Self::Of(span) => span.max(1),
            Self::Whole => size.max(1),
        }
    }

    /// The blocks of an axis of `size` elements, a cut one at its end included; always 1 for
    /// [`Reach::Whole`].
    pub fn count(self, size: usize) -> usize {
        match self {
            Self::Of(span) => size.div_ceil(span.max(1)),
            Self::Whole => 1,
        }
    }
}

/// One scale for each block of elements: a token's 32 neighbours along K (MX formats), a tile of a
/// weight (DeepSeek), a whole row (per token or output channel) or the whole matrix (per tensor).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockScale {
    /// The stored type.
    pub scale: ScaleType,
    /// Rows of a block.
    pub rows: Reach,
    /// Elements of a block along K.
    pub cols: Reach,
    /// The type of the zero points, one a block, if elements are not centred on zero: an element is
    /// worth `(code - zero point) * scale`.
    pub zero_point: Option<ElementType>,
}

impl BlockScale {
    /// The elements of one block of a matrix of `extent` elements.
    pub fn size(self, extent: Extent) -> Extent {
        Extent { rows: self.rows.size(extent.rows), cols: self.cols.size(extent.cols) }
    }

    /// The scales of a matrix of `extent` elements, as rows and columns.
    pub fn scales(self, extent: Extent) -> Extent {
        Extent { rows: self.rows.count(extent.rows), cols: self.cols.count(extent.cols) }
    }
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

impl FormatSpec {
    /// A format whose elements are what they are worth.
    pub const fn unscaled(name: &'static str, element: ElementType) -> Self {
        Self { name, element, block: None, global: None }
    }

    /// A format with one scale for each block of `rows` × `cols` elements and no second level.
    pub const fn blocks(
        name: &'static str,
        element: ElementType,
        scale: ScaleType,
        rows: usize,
        cols: usize,
    ) -> Self {
        let block = BlockScale { scale, rows: Reach::Of(rows), cols: Reach::Of(cols), zero_point: None };
        Self { name, element, block: Some(block), global: None }
    }

    /// The elements of one block of a matrix of `extent` elements; one element where there is no
    /// block scale.
    pub fn block_size(&self, extent: Extent) -> Extent {
        self.block.map_or(Extent { rows: 1, cols: 1 }, |block| block.size(extent))
    }

    /// The scales of a matrix of `extent` elements, a cut block at an end included; none where there
    /// is no block scale.
    pub fn scales(&self, extent: Extent) -> Extent {
        self.block.map_or(Extent { rows: 0, cols: 0 }, |block| block.scales(extent))
    }

    /// Zero points of a matrix of `extent` elements, one a block; 0 for formats without.
    pub fn zero_points(&self, extent: Extent) -> usize {
        let has_zero_points = self.block.is_some_and(|block| block.zero_point.is_some());
        if has_zero_points { self.scales(extent).count() } else { 0 }
    }

    /// Bytes of the elements and of the linear scales of a matrix of `extent` elements, each row
    /// packed.
    pub fn matrix_bytes(&self, extent: Extent) -> (usize, usize) {
        let scale = self.block.map_or(0, |block| block.scale.bytes());
        let payload = extent.rows.saturating_mul(self.element.bytes(extent.cols));
        (payload, self.scales(extent).count().saturating_mul(scale))
    }
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
