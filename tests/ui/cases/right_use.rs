//! The same calls with what the contract asks for: this compiles.

use scalewright::generated::backends::{FlashinferCutlassMxfp4Mxfp8, FlashinferTrtllmMxfp4Mxfp8};
use scalewright::generated::formats::Mxfp8;
use scalewright::generated::layouts::{Linear, Swizzled128x4};
use scalewright::moe::layer::{Layer, LayerError};
use scalewright::moe::routing::Routing;
use scalewright::tensor::{Quantized, WrongSize};
use scalewright::transport::all_gather;

/// The CUTLASS row behind a transport: linear on the wire, converted once, swizzled for the kernel.
pub(crate) fn cutlass(
    layer: &Layer<FlashinferCutlassMxfp4Mxfp8>,
    ranks: &[Quantized<Mxfp8, Linear>],
    routing: &Routing,
) -> Result<Result<usize, LayerError>, WrongSize> {
    let input: Quantized<Mxfp8, Swizzled128x4> =
        all_gather(ranks)?.prepared::<FlashinferCutlassMxfp4Mxfp8>()?;
    Ok(layer.forward(&input, routing).map(|output| output.len()))
}

/// The TRTLLM row, on the rank that has the tokens.
pub(crate) fn trtllm(
    layer: &Layer<FlashinferTrtllmMxfp4Mxfp8>,
    input: &Quantized<Mxfp8, Linear>,
    routing: &Routing,
) -> Result<usize, LayerError> {
    Ok(layer.forward(input, routing)?.len())
}
