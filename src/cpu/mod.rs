//! The CPU engine. Functions take contracts, formats and layouts as values; no loop is generic over
//! a row of the table.

mod buffer;
pub mod dequantize;
#[cfg(test)]
pub(crate) mod fixtures;
mod gemm;
pub mod layer;
mod permute;
pub mod quantize;
pub mod relayout;
pub mod repack;
pub(crate) mod scales;
