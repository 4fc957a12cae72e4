//! Weights shuffled for one kernel, handed to a row whose kernel reads another order.

use scalewright::config::QuantConfig;
use scalewright::generated::backends::{FlashinferCutlassMxfp4Mxfp8, FlashinferTrtllmMxfp4Mxfp8};
use scalewright::moe::layer::Layer;
use scalewright::weights::prepared::Prepared;

fn run(config: QuantConfig<FlashinferCutlassMxfp4Mxfp8>, weights: &Prepared<FlashinferTrtllmMxfp4Mxfp8>) {
    // Cloned and cut, they are still what they were.
    let part = weights.clone().experts(2..4).unwrap();
    let _ = Layer::new(config, part);
}

fn main() {}
