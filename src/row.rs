//! What generated rows are made of: the names they use, and what is the same text in each of them.

pub use crate::backend::{
    Accepts, Activation as Function, Backend, Bias, BiasOrder, BiasType, Contract, Convention, Encoding,
    EpilogueFactor, Evidence, Fact, GlobalScale, GlobalScope, Grouping, Honoured, InputContract, InputLayout,
    Kernel, Known, Parameter, QuantizeAt, Reads, ScaleSource, VllmNames, WeightContract, WeightPad,
    WeightScale,
};
pub use crate::config::{ActivationFunction, LayerConfig, QuantConfig};
pub use crate::format::Rounding;
pub use crate::layout::Unscaled;
pub use crate::oracle::*;
pub use crate::scale::{Calibrated, Divisor, Multiplier};
pub use crate::tensor::Quantized;

/// A row's marker type is a backend, which reads each format with its scales in the layout beside it.
#[doc(hidden)]
#[macro_export]
macro_rules! __row {
    ($row:ident $(, reads($format:path, $layout:path))*) => {
        #[diagnostic::do_not_recommend]
        impl $crate::__private::Sealed for $row {}

        impl $crate::backend::Backend for $row {
            const CONTRACT: &'static $crate::backend::Contract = &CONTRACT;
        }

        $(
            impl $crate::backend::Reads<$format> for $row {
                type Prepared = $layout;
            }

            impl $crate::backend::Accepts<$crate::tensor::Quantized<$format, $layout>> for $row {}
        )*
    };
}

/// The activation functions that a row honours, with the parameters that it honours; in brackets the
/// neutral values of those that it does not.
#[doc(hidden)]
#[macro_export]
macro_rules! __honours {
    ($($function:ident $(($($taken:ident),+))? $([$($fixed:ident = $neutral:expr),+])?),*) => {
        /// The activation functions that the row honours, with the parameters that it honours.
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[allow(missing_docs, reason = "the words of the table, which `backend::Activation` explains")]
        pub enum Activation {
            $($function $({ $($taken: f32),+ })?,)*
        }

        impl From<Activation> for $crate::config::ActivationFunction {
            fn from(activation: Activation) -> Self {
                match activation {
                    $(Activation::$function $({ $($taken),+ })? => {
                        Self::$function { $($($taken,)+)? $($($fixed: $neutral),+)? }
                    })*
                }
            }
        }

        const HONOURS: &[$crate::backend::Honoured] = &[$($crate::backend::Honoured {
            function: $crate::backend::Activation::$function,
            parameters: &[$($($crate::__parameter!($taken)),+)?],
        }),*];
    };
}

/// A parameter by its word in the table.
#[doc(hidden)]
#[macro_export]
macro_rules! __parameter {
    (alpha) => {
        $crate::backend::Parameter::Alpha
    };
    (beta) => {
        $crate::backend::Parameter::Beta
    };
    (linear_beta) => {
        $crate::backend::Parameter::LinearBeta
    };
    (limit) => {
        $crate::backend::Parameter::Limit
    };
}

/// A list of activation functions.
#[doc(hidden)]
#[macro_export]
macro_rules! __functions {
    ($($function:ident),*) => { &[$($crate::backend::Activation::$function),*] };
}

/// The order of the fused gate/up rows under each activation function.
#[doc(hidden)]
#[macro_export]
macro_rules! __gate_up {
    ($($order:path[$($function:ident),*]),*) => {
        const GATE_UP: &[($crate::backend::Activation, &$crate::layout::Order)] =
            &[$($(($crate::backend::Activation::$function, &$order)),*),*];
    };
}

pub use {__functions as functions, __gate_up as gate_up, __honours as honours, __row as row};
