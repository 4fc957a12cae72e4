//! The typed layer: what it is given has the types of its backend, or does not compile.

use half::bf16;

use crate::backend::{Accepts, Backend};
use crate::config::QuantConfig;
use crate::cpu;
use crate::format::Format;
use crate::layout::ScaleLayout;
use crate::tensor::{Quantized, RawQuantized};
use crate::weights::prepared::Prepared;

use super::routing::Routing;

pub use crate::cpu::layer::LayerError;

/// What a layer can be given as tokens.
pub trait Operand {
    /// The same without its types.
    fn raw(&self) -> &RawQuantized;
}

impl<F: Format, L: ScaleLayout> Operand for Quantized<F, L> {
    fn raw(&self) -> &RawQuantized {
        Quantized::raw(self)
    }
}

/// One MoE layer on backend `B`.
#[derive(Debug, Clone)]
pub struct Layer<B: Backend> {
    config: QuantConfig<B>,
    weights: Prepared<B>,
}

impl<B: Backend> Layer<B> {
    /// A layer with the row's weights and configuration.
    ///
    /// # Errors
    /// [`LayerError::Activation`] if `weights` were prepared for another activation function.
    pub fn new(config: QuantConfig<B>, weights: Prepared<B>) -> Result<Self, LayerError> {
        let (prepared, runs) = (weights.raw().activation, config.activation().kind());
        if prepared != runs {
            return Err(LayerError::Activation { prepared, runs });
        }
        Ok(Self { config, weights })
    }

    /// Runs the layer on the CPU: `tokens` × hidden, row-major.
    ///
    /// # Errors
    /// [`LayerError`] if sizes do not agree or this crate does not execute the row.
    pub fn forward<X>(&self, input: &X, routing: &Routing) -> Result<Vec<bf16>, LayerError>
    where
        B: Accepts<X>,
        X: Operand,
    {
        cpu::layer::forward(
            self.config.contract(),
            self.config.activation(),
            self.weights.raw(),
            input.raw(),
            routing,
        )
    }
}
