//! vLLM #42089: scales in rows, handed to a kernel that reads them swizzled.

use scalewright::generated::backends::FlashinferCutlassMxfp4Mxfp8;
use scalewright::generated::formats::Mxfp8;
use scalewright::generated::layouts::Linear;
use scalewright::moe::layer::Layer;
use scalewright::moe::routing::Routing;
use scalewright::tensor::Quantized;

fn run(layer: &Layer<FlashinferCutlassMxfp4Mxfp8>, input: &Quantized<Mxfp8, Linear>, routing: &Routing) {
    let _ = layer.forward(input, routing);
}

fn main() {}
