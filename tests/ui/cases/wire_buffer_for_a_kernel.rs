//! What has arrived is not yet what the kernel reads, even where the layouts are equal.

use scalewright::generated::backends::FlashinferTrtllmMxfp4Mxfp8;
use scalewright::generated::formats::Mxfp8;
use scalewright::generated::layouts::Linear;
use scalewright::moe::layer::Layer;
use scalewright::moe::routing::Routing;
use scalewright::transport::Dispatched;

fn run(layer: &Layer<FlashinferTrtllmMxfp4Mxfp8>, input: &Dispatched<Mxfp8, Linear>, routing: &Routing) {
    let _ = layer.forward(input, routing);
}

fn main() {}
