//! Typed buffers of quantised numbers.

use std::marker::PhantomData;

use crate::format::{Format, FormatSpec};
use crate::layout::{Extent, Indivisible, Layout, ScaleLayout};
use crate::scale::Divisor;

/// Quantised rows without their types: what engines work on. `rows` × `cols` elements in format
/// `format`, scales in `layout`.
#[derive(Debug, Clone)]
pub struct RawQuantized {
    /// Elements and scales.
    pub format: &'static FormatSpec,
    /// Where the scales are; [`UNSCALED`](crate::layout::UNSCALED) for formats without.
    pub layout: &'static Layout,
    /// Rows (tokens).
    pub rows: usize,
    /// Elements of a row, zeros up to the `multiple` of its backend included.
    pub cols: usize,
    /// The elements, row-major, each row packed.
    pub payload: Vec<u8>,
    /// The scales, in `layout`, padding included.
    pub scales: Vec<u8>,
    /// The zero points, one byte a block, linear; empty for formats without.
    pub zero_points: Vec<u8>,
    /// The second-level scale, for formats that have one.
    pub global: Option<Divisor>,
}

/// A buffer that does not have the size that its format and layout ask for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongSize {
    /// The payload.
    #[error("{rows}x{cols} elements in `{format}` take {expected} payload bytes, not {got}")]
    Payload {
        /// The format.
        format: &'static str,
        /// Rows.
        rows: usize,
        /// Elements of a row.
        cols: usize,
        /// Bytes it takes.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// The scales.
    #[error(
        "the scales of {rows}x{cols} elements in `{format}` take {expected} bytes in layout \
         `{layout}`, not {got}; a buffer in another layout has to be converted with `relayout`"
    )]
    Scales {
        /// The format.
        format: &'static str,
        /// The layout.
        layout: &'static str,
        /// Rows.
        rows: usize,
        /// Elements of a row.
        cols: usize,
        /// Bytes it takes.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// The layout refuses the size.
    #[error(transparent)]
    Indivisible(#[from] Indivisible),
    /// The layout does not hold scales of the format's type.
    #[error("layout `{layout}` does not hold the {scale:?} scales of `{format}`")]
    ScaleType {
        /// The layout.
        layout: &'static str,
        /// The format.
        format: &'static str,
        /// The type of its scales.
        scale: crate::format::ScaleType,
    },
    /// A second-level scale that the format lacks, or the other way round.
    #[error("whether there is a second-level scale does not agree with `{format}`")]
    Levels {
        /// The format.
        format: &'static str,
    },
    /// Tokens with zero points.
    #[error("`{format}` has zero points, which no backend reads of tokens")]
    ZeroPoints {
        /// The format.
        format: &'static str,
    },
    /// The zero points.
    #[error("{rows}x{cols} elements in `{format}` have {expected} zero points, one byte each, not {got}")]
    ZeroPointBytes {
        /// The format.
        format: &'static str,
        /// Rows.
        rows: usize,
        /// Elements of a row.
        cols: usize,
        /// Zero points it has.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// Nothing to gather.
    #[error("no rank has a tensor in `{format}`")]
    NoRanks {
        /// The format.
        format: &'static str,
    },
    /// Ranks whose tensors have scales of their own, where the gathered tensor has one.
    #[error("the ranks' tensors in `{format}` have different scales, and the gathered one has one scale")]
    RankScales {
        /// The format.
        format: &'static str,
    },
    /// A block of the format does not divide a row.
    #[error("`{format}` scales blocks of {block} elements, which do not divide rows of {cols}")]
    Block {
        /// The format.
        format: &'static str,
        /// Elements of a block.
        block: usize,
        /// Elements of a row.
        cols: usize,
    },
}

/// Scales of `rows` × `cols` elements in `format`, as rows and columns of scales.
///
/// # Errors
/// [`WrongSize::Block`] if a block does not divide a row.
pub fn scale_extent(format: &FormatSpec, rows: usize, cols: usize) -> Result<Extent, WrongSize> {
    let extent = Extent { rows, cols };
    let block = format.block_size(extent).cols;
    if !cols.is_multiple_of(block) {
        return Err(WrongSize::Block { format: format.name, block, cols });
    }
    Ok(format.scales(extent))
}

/// Rows quantised to format `F`, scales in layout `L`. Made by quantisers, by [`relayout`] and by
/// [`Quantized::load`], which checks; nothing else makes one, and there is no way to change `L`
/// without moving the bytes.
///
/// [`relayout`]: Quantized::relayout
#[derive(Debug, Clone)]
pub struct Quantized<F: Format, L: ScaleLayout> {
    raw: RawQuantized,
    types: PhantomData<(F, L)>,
}

impl<F: Format, L: ScaleLayout> Quantized<F, L> {
    /// Takes bytes that another program made: `payload` row-major, `scales` in layout `L`.
    ///
    /// # Errors
    /// [`WrongSize`] if either buffer does not have the size that `F` and `L` ask for, or `F` has a
    /// second-level scale or zero points. Most buffers in a wrong layout are caught here; those of
    /// equal size cannot be told apart by looking.
    pub fn load(rows: usize, cols: usize, payload: Vec<u8>, scales: Vec<u8>) -> Result<Self, WrongSize> {
        Self::from_parts(rows, cols, payload, scales, None)
    }

    /// [`load`](Self::load) for a format with a second-level scale.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if `F` has no second-level scale.
    pub fn load_two_level(
        rows: usize,
        cols: usize,
        payload: Vec<u8>,
        scales: Vec<u8>,
        global: Divisor,
    ) -> Result<Self, WrongSize> {
        Self::from_parts(rows, cols, payload, scales, Some(global))
    }

    fn from_parts(
        rows: usize,
        cols: usize,
        payload: Vec<u8>,
        scales: Vec<u8>,
        global: Option<Divisor>,
    ) -> Result<Self, WrongSize> {
        let format = F::SPEC;
        if format.global.is_some() != global.is_some() {
            return Err(WrongSize::Levels { format: format.name });
        }
        if format.block.is_some_and(|block| block.zero_point.is_some()) {
            return Err(WrongSize::ZeroPoints { format: format.name });
        }
        let expected = rows.saturating_mul(format.element.bytes(cols));
        if payload.len() != expected {
            return Err(WrongSize::Payload { format: format.name, rows, cols, expected, got: payload.len() });
        }
        let logical = scale_extent(format, rows, cols)?;
        let size = format.block.map_or(0, |block| block.scale.bytes());
        let expected = L::LAYOUT.physical(logical)?.count().saturating_mul(size);
        if scales.len() != expected {
            return Err(WrongSize::Scales {
                format: format.name,
                layout: L::LAYOUT.name,
                rows,
                cols,
                expected,
                got: scales.len(),
            });
        }
        let (layout, zero_points) = (L::LAYOUT, Vec::new());
        Ok(Self::from_engine(RawQuantized {
            format,
            layout,
            rows,
            cols,
            payload,
            scales,
            zero_points,
            global,
        }))
    }

    /// What an engine has just made in format `F` and layout `L`.
    pub(crate) fn from_engine(raw: RawQuantized) -> Self {
        debug_assert!(*raw.format == *F::SPEC && *raw.layout == *L::LAYOUT);
        Self { raw, types: PhantomData }
    }

    /// Rows (tokens).
    pub fn rows(&self) -> usize {
        self.raw.rows
    }

    /// Elements of a row.
    pub fn cols(&self) -> usize {
        self.raw.cols
    }

    /// The elements, row-major.
    pub fn payload(&self) -> &[u8] {
        &self.raw.payload
    }

    /// The scales, in layout `L`, padding included.
    pub fn scales(&self) -> &[u8] {
        &self.raw.scales
    }

    /// The same without its types.
    pub fn raw(&self) -> &RawQuantized {
        &self.raw
    }

    /// The same rows with their scales in layout `M`; padding is zero.
    ///
    /// # Errors
    /// [`WrongSize`] if `M` does not pad and refuses the size, or does not hold scales of this type.
    pub fn relayout<M: ScaleLayout>(&self) -> Result<Quantized<F, M>, WrongSize> {
        let raw = crate::cpu::relayout::relayout(&self.raw, M::LAYOUT)?;
        Ok(Quantized::from_engine(raw))
    }
}

/// Rows of a 16- or 32-bit type: tokens before they are quantised, and for backends that read them
/// as they are.
pub trait Real: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// The element type.
    const TYPE: crate::format::ElementType;

    /// The value, exactly.
    fn to_f32(self) -> f32;

    /// The nearest value, ties to even.
    fn from_f32(value: f32) -> Self;
}

impl Real for f32 {
    const TYPE: crate::format::ElementType = crate::format::ElementType::F32;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Real for half::bf16 {
    const TYPE: crate::format::ElementType = crate::format::ElementType::Bf16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        // Not half's, which looks for signalling NaNs: the bits are those of the f32.
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Real for half::f16 {
    const TYPE: crate::format::ElementType = crate::format::ElementType::F16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.to_f32()
    }

    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// `rows` × `cols` values, row-major.
#[derive(Debug, Clone, Copy)]
pub struct Tokens<'a, T: Real> {
    values: &'a [T],
    rows: usize,
    cols: usize,
}

impl<'a, T: Real> Tokens<'a, T> {
    /// `values.len()` must be `rows * cols`.
    ///
    /// # Errors
    /// [`WrongSize::Payload`] otherwise.
    pub fn new(values: &'a [T], rows: usize, cols: usize) -> Result<Self, WrongSize> {
        let expected = rows.saturating_mul(cols);
        if values.len() != expected {
            return Err(WrongSize::Payload {
                format: std::any::type_name::<T>(),
                rows,
                cols,
                expected: T::TYPE.bytes(expected),
                got: T::TYPE.bytes(values.len()),
            });
        }
        Ok(Self { values, rows, cols })
    }

    /// Rows (tokens).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row (the hidden size).
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `row`.
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.values[row * self.cols..][..self.cols]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::formats::Mxfp8;
    use crate::generated::layouts::Swizzled128x4;

    #[test]
    fn sizes_beyond_memory_are_refused() {
        let values = [1.0f32; 4];
        assert!(Tokens::new(&values, usize::MAX, 2).is_err());
        assert!(Tokens::new(&values, 2, 2).is_ok());
        let load = |rows, cols| Quantized::<Mxfp8, Swizzled128x4>::load(rows, cols, Vec::new(), Vec::new());
        assert!(load(usize::MAX, 32).is_err());
        assert!(load(usize::MAX, 0).is_err());
        assert!(load(0, 32).is_ok());
    }
}
