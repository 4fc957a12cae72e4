//! Quantised mixture-of-experts backends as a checked table.
//!
//! A backend is a contract: element type, scale type, block size, where each scale byte lives, which
//! half of the fused weight comes first, what padding holds, who quantises and when. Each contract is
//! a row of `backends.toml`; everything in [`generated`] follows from the table, and this crate's
//! engine, quantisers and oracle do what a row says.
//!
//! The whole way of a layer, on the CPU:
//!
//! ```
//! use scalewright::cpu::quantize::quantize_input;
//! use scalewright::generated::backends::FlashinferCutlassMxfp4Mxfp8 as Cutlass;
//! use scalewright::generated::backends::flashinfer_cutlass_mxfp4_mxfp8::Activation;
//! use scalewright::generated::formats::{MXFP4, Mxfp8};
//! use scalewright::moe::{layer::Layer, routing::Routing};
//! use scalewright::tensor::{Quantized, Tokens};
//! use scalewright::weights::{prepared::Prepared, synthetic};
//!
//! // Weights as loaded; `weights::gpt_oss` reads a checkpoint.
//! let shape = synthetic::Shape { experts: 4, hidden: 256, intermediate: 96, top_k: 1 };
//! let canonical = synthetic::weights(shape, 1, &MXFP4)?;
//!
//! // What the caller decides, and no more; then the weights as this row's kernel reads them.
//! let config = Cutlass::config(Activation::Swigluoai { alpha: 1.702, beta: 1.0, limit: 7.0 });
//! let layer = Layer::new(config, Prepared::new(&config, &canonical)?)?;
//!
//! // The scales are where this row reads them: no flag says so, the row does.
//! let tokens = vec![1.0f32; 5 * 256];
//! let input: Quantized<Mxfp8, _> = quantize_input(&config, Tokens::new(&tokens, 5, 256)?)?;
//! assert_eq!(input.scales().len(), 1024); // 5 x 8 scales, padded to 128 x 8
//!
//! let routing = Routing::new(5, 1, 4, vec![0, 1, 2, 3, 0], vec![1.0; 5])?;
//! assert_eq!(layer.forward(&input, &routing)?.len(), 5 * 256);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An engine that knows its row at run time only takes the same way with values: the contract of a
//! [`generated::BackendId`] or of an [`oracle::Selection`], then [`weights::prepared::prepare`],
//! [`cpu::quantize::quantize_prepared`] and [`cpu::layer::forward`], which check what the types would.
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
pub mod recipe;
pub mod reference;
#[doc(hidden)]
pub mod row;
pub mod scale;
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
