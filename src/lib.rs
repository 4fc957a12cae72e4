//! Quantised mixture-of-experts backends as a checked table.
//!
//! A backend is a contract: element type, scale type, block size, where each scale byte lives, which
//! half of the fused weight comes first, what padding holds, who quantises and when. Each contract is
//! a row of `backends.toml`; everything in [`generated`] follows from the table, and this crate's
//! engine, quantisers and oracle do what a row says.
//!
//! ```
//! use scalewright::cpu::quantize::quantize_input;
//! use scalewright::generated::backends::FlashinferCutlassMxfp4Mxfp8 as Cutlass;
//! use scalewright::generated::formats::Mxfp8;
//! use scalewright::tensor::{Quantized, Tokens};
//!
//! let tokens = vec![1.0f32; 5 * 256];
//! let tokens = Tokens::new(&tokens, 5, 256)?;
//! // The scales are where this row's kernel reads them: no flag says so, the row does.
//! let input: Quantized<Mxfp8, _> = quantize_input::<Cutlass, Mxfp8, _>(tokens)?;
//! assert_eq!(input.scales().len(), 1024); // 5 x 8 scales, padded to 128 x 8
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What of it is a type and what a value: markers ([`layout::ScaleLayout`], [`format::Format`],
//! [`backend::Backend`]) check at the boundary and at once become values ([`backend::Contract`]); no
//! loop is generic over a row. `oracle` means backend selection, as in vLLM; the slow, obvious
//! implementation that results are judged by is [`mod@reference`].

// Generated code names everything as `::scalewright::…`, so that the same tokens compile here and in
// the crate of another table.
extern crate self as scalewright;

pub mod backend;
pub mod config;
pub mod conformance;
pub mod cpu;
pub mod digits;
pub mod element;
pub mod format;
pub mod layout;
pub mod moe;
pub mod oracle;
pub mod reference;
pub mod tensor;
pub mod transport;
pub mod weights;
mod words;

#[rustfmt::skip]
#[path = "../generated/mod.rs"]
pub mod generated;

#[cfg(feature = "macros")]
pub use scalewright_macros::{backend_test, backends};
pub use words::UnknownWord;

/// The README's example runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[doc(hidden)]
pub mod __private {
    /// Only generated code implements this.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not made from a table",
        note = "backends, formats and layouts are types made from backends.toml; add what is missing there"
    )]
    pub trait Sealed {}
}
