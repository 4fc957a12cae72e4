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

/// What a layer on backend `B` can be given as tokens. Nothing else than [`Quantized`] implements it: a
/// wrapper that hands over other bytes would be a way around the types.
// The buffer is `Self`, not a parameter, so that the compiler does not take the one buffer that most
// rows accept for granted, and says what is wrong instead of what it expected.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a kernel reads",
    label = "not a buffer for `{B}`",
    note = "what a transport delivers is on its way still: `prepared::<{B}>()` converts it"
)]
pub trait Operand<B: Backend>: crate::__private::Sealed {
    /// The same without its types.
    fn raw(&self) -> &RawQuantized;
}

#[diagnostic::do_not_recommend]
impl<F: Format, L: ScaleLayout> crate::__private::Sealed for Quantized<F, L> {}

impl<B: Accepts<Self>, F: Format, L: ScaleLayout> Operand<B> for Quantized<F, L> {
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
    pub fn forward<X: Operand<B>>(&self, input: &X, routing: &Routing) -> Result<Vec<bf16>, LayerError> {
        cpu::layer::forward(
            self.config.contract(),
            self.config.layer(),
            self.weights.raw(),
            input.raw(),
            routing,
        )
    }
}
