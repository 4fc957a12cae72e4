//! A checkpoint's multiplier where the row is given the divisor.

use scalewright::generated::backends::{FlashinferCutlassNvfp4, flashinfer_cutlass_nvfp4::Activation};
use scalewright::scale::Multiplier;

fn configure(input_scale: Multiplier) {
    let _ = FlashinferCutlassNvfp4::config(Activation::GeluTanh, input_scale, input_scale);
}

fn main() {}
