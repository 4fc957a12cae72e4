//! A layout and a backend that stand in no table.

use scalewright::backend::{Backend, Contract};
use scalewright::generated::backends::flashinfer_cutlass_mxfp4_mxfp8::CONTRACT;
use scalewright::generated::formats::Mxfp8;
use scalewright::tensor::Quantized;

#[derive(Debug, Clone, Copy)]
struct Mine;

fn scales_in(_: Quantized<Mxfp8, Mine>) {}

#[derive(Debug, Clone, Copy)]
struct Homemade;

impl Backend for Homemade {
    const CONTRACT: &'static Contract = &CONTRACT;
}

fn main() {}
