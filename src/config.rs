//! The quant config of a layer: what the caller decides, checked against what the row honours.

use std::marker::PhantomData;

use crate::backend::{Activation, Backend, Contract, Parameter};

/// An activation function with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ActivationFunction {
    /// `silu(gate) * up`.
    Silu,
    /// gpt-oss's clamped SwiGLU; see [`Activation::Swigluoai`].
    Swigluoai {
        /// The factor inside the sigmoid; 1 is neutral.
        alpha: f32,
        /// What is added to the up half; 0 is neutral.
        beta: f32,
        /// The clamp; infinity is neutral.
        limit: f32,
    },
}

impl ActivationFunction {
    /// The function, without its parameters.
    pub fn kind(self) -> Activation {
        match self {
            Self::Silu => Activation::Silu,
            Self::Swigluoai { .. } => Activation::Swigluoai,
        }
    }

    /// The parameters that are not neutral.
    fn asks_for(self) -> Vec<Parameter> {
        match self {
            Self::Silu => Vec::new(),
            Self::Swigluoai { alpha, beta, limit } => [
                (Parameter::Alpha, alpha != 1.0),
                (Parameter::Beta, beta != 0.0),
                (Parameter::Limit, limit != f32::INFINITY),
            ]
            .into_iter()
            .filter_map(|(parameter, asked)| asked.then_some(parameter))
            .collect(),
        }
    }
}

/// A row that does not honour what the caller asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The function.
    #[error("backend `{row}` does not honour the activation function {function}; it honours {honours}")]
    Activation {
        /// The row.
        row: &'static str,
        /// The function asked for.
        function: Activation,
        /// What the row honours.
        honours: String,
    },
    /// A value that makes no sense.
    #[error("{parameter} of {function} has to be {wanted}")]
    Value {
        /// The function.
        function: Activation,
        /// The parameter.
        parameter: Parameter,
        /// What it can be.
        wanted: &'static str,
    },
    /// A parameter of the function.
    #[error("backend `{row}` does not honour `{parameter}` of {function}")]
    Parameter {
        /// The row.
        row: &'static str,
        /// The function asked for.
        function: Activation,
        /// The parameter it would ignore.
        parameter: Parameter,
    },
}

/// Whether `contract` honours `function` with every parameter that is not neutral, and their values make
/// sense.
///
/// # Errors
/// [`Refused`], naming the row and what it would have ignored.
pub fn check(contract: &Contract, function: ActivationFunction) -> Result<(), Refused> {
    let kind = function.kind();
    let Some(honoured) = contract.activations.iter().find(|honoured| honoured.function == kind) else {
        let names: Vec<_> = contract.activations.iter().map(|honoured| honoured.function.name()).collect();
        return Err(Refused::Activation { row: contract.name, function: kind, honours: names.join(", ") });
    };
    if let ActivationFunction::Swigluoai { alpha, beta, limit } = function {
        let sound = [
            (Parameter::Alpha, alpha.is_finite(), "finite"),
            (Parameter::Beta, beta.is_finite(), "finite"),
            (Parameter::Limit, limit > 0.0, "above 0"),
        ];
        if let Some((parameter, _, wanted)) = sound.into_iter().find(|(_, is_sound, _)| !is_sound) {
            return Err(Refused::Value { function: kind, parameter, wanted });
        }
    }
    match function.asks_for().into_iter().find(|parameter| !honoured.parameters.contains(parameter)) {
        None => Ok(()),
        Some(parameter) => Err(Refused::Parameter { row: contract.name, function: kind, parameter }),
    }
}

/// What a layer on backend `B` is configured with. The row's generated `config` makes it, and takes
/// exactly the parameters that the row honours: nothing is swallowed, nothing decides a layout.
#[derive(Debug, Clone, Copy)]
pub struct QuantConfig<B: Backend> {
    activation: ActivationFunction,
    backend: PhantomData<B>,
}

impl<B: Backend> QuantConfig<B> {
    /// Checks `activation` against the row.
    ///
    /// # Errors
    /// [`Refused`] if the row does not honour it.
    pub fn new(activation: ActivationFunction) -> Result<Self, Refused> {
        check(B::CONTRACT, activation)?;
        Ok(Self::from_row(activation))
    }

    /// For the generated constructors, whose types admit what the row honours and nothing else.
    #[doc(hidden)]
    pub fn from_row(activation: ActivationFunction) -> Self {
        Self { activation, backend: PhantomData }
    }

    /// The row: formats, layouts, padding, who quantises.
    pub fn contract(&self) -> &'static Contract {
        B::CONTRACT
    }

    /// The activation function.
    pub fn activation(&self) -> ActivationFunction {
        self.activation
    }
}
