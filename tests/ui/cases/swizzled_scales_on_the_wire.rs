//! Rows of several ranks cannot be put one after the other in a swizzled layout.

use scalewright::generated::formats::Mxfp8;
use scalewright::generated::layouts::Swizzled128x4;
use scalewright::tensor::Quantized;
use scalewright::transport::all_gather;

fn gather(ranks: &[Quantized<Mxfp8, Swizzled128x4>]) {
    let _ = all_gather(ranks);
}

fn main() {}
