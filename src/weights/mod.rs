//! Weights: as a checkpoint holds them, and as a kernel reads them.

pub mod canonical;
pub mod gpt_oss;
pub mod prepared;
pub mod requantize;
pub mod synthetic;
