//! The quant config of a layer: what the caller decides, checked against what the row honours.

use std::marker::PhantomData;

use crate::backend::{Activation, Backend, Contract, InputContract, Parameter};
use crate::scale::Calibrated;

/// What the caller decides of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerConfig {
    /// The function between the GEMMs.
    pub activation: ActivationFunction,
    /// The calibrated scale of GEMM1's input, for rows that read one.
    pub gemm1: Option<Calibrated>,
    /// The calibrated scale of GEMM2's input, for rows that read one.
    pub gemm2: Option<Calibrated>,
}

impl LayerConfig {
    /// A layer whose input scales are all chosen from the numbers.
    pub fn dynamic(activation: ActivationFunction) -> Self {
        Self { activation, gemm1: None, gemm2: None }
    }
}

/// An activation function with its parameters; [`Activation`] has the formulas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ActivationFunction {
    /// See [`Activation::Silu`].
    Silu {
        /// The clamp; infinity is neutral.
        limit: f32,
    },
    /// See [`Activation::Gelu`].
    Gelu,
    /// See [`Activation::GeluTanh`].
    GeluTanh,
    /// See [`Activation::Relu2`].
    Relu2,
    /// gpt-oss's clamped SwiGLU; see [`Activation::Swigluoai`].
    Swigluoai {
        /// The factor inside the sigmoid; 1 is neutral.
        alpha: f32,
        /// What is added to the up half; 0 is neutral.
        beta: f32,
        /// The clamp; infinity is neutral.
        limit: f32,
    },
    /// See [`Activation::SwigluoaiUninterleave`].
    SwigluoaiUninterleave {
        /// The factor inside the sigmoid; 1 is neutral.
        alpha: f32,
        /// What is added to the up half; 0 is neutral.
        beta: f32,
        /// The clamp; infinity is neutral.
        limit: f32,
    },
    /// See [`Activation::Swiglustep`].
    Swiglustep {
        /// The clamp; infinity is neutral.
        limit: f32,
    },
    /// See [`Activation::Situ`].
    Situ {
        /// Where the gate saturates; infinity is neutral.
        beta: f32,
        /// Where the up half saturates; infinity is neutral.
        linear_beta: f32,
    },
    /// See [`Activation::SiluNoMul`].
    SiluNoMul,
    /// See [`Activation::GeluNoMul`].
    GeluNoMul,
    /// See [`Activation::GeluTanhNoMul`].
    GeluTanhNoMul,
    /// See [`Activation::Relu2NoMul`].
    Relu2NoMul,
}

impl ActivationFunction {
    /// Silu without a clamp.
    pub const SILU: Self = Self::Silu { limit: f32::INFINITY };

    /// gpt-oss's function with the parameters of its published models but for the clamp, which is 7
    /// there.
    pub fn gpt_oss(limit: f32) -> Self {
        Self::Swigluoai { alpha: 1.702, beta: 1.0, limit }
    }

    /// The function, without its parameters.
    pub fn kind(self) -> Activation {
        match self {
            Self::Silu { .. } => Activation::Silu,
            Self::Gelu => Activation::Gelu,
            Self::GeluTanh => Activation::GeluTanh,
            Self::Relu2 => Activation::Relu2,
            Self::Swigluoai { .. } => Activation::Swigluoai,
            Self::SwigluoaiUninterleave { .. } => Activation::SwigluoaiUninterleave,
            Self::Swiglustep { .. } => Activation::Swiglustep,
            Self::Situ { .. } => Activation::Situ,
            Self::SiluNoMul => Activation::SiluNoMul,
            Self::GeluNoMul => Activation::GeluNoMul,
            Self::GeluTanhNoMul => Activation::GeluTanhNoMul,
            Self::Relu2NoMul => Activation::Relu2NoMul,
        }
    }

    /// Each parameter with its value and the value that is neutral.
    fn parameters(self) -> Vec<(Parameter, f32, f32)> {
        let clamp = |limit| (Parameter::Limit, limit, f32::INFINITY);
        match self {
            Self::Silu { limit } | Self::Swiglustep { limit } => vec![clamp(limit)],
            Self::Swigluoai { alpha, beta, limit } | Self::SwigluoaiUninterleave { alpha, beta, limit } => {
                vec![(Parameter::Alpha, alpha, 1.0), (Parameter::Beta, beta, 0.0), clamp(limit)]
            }
            Self::Situ { beta, linear_beta } => vec![
                (Parameter::Beta, beta, f32::INFINITY),
                (Parameter::LinearBeta, linear_beta, f32::INFINITY),
            ],
            _ => Vec::new(),
        }
    }

    /// The first parameter whose value makes no sense, and what it can be.
    fn nonsense(self) -> Option<(Parameter, &'static str)> {
        let is_saturation = matches!(self, Self::Situ { .. });
        self.parameters().into_iter().find_map(|(parameter, value, _)| {
            let positive = parameter == Parameter::Limit || is_saturation;
            let (is_sound, wanted) =
                if positive { (value > 0.0, "above 0") } else { (value.is_finite(), "finite") };
            (!is_sound).then_some((parameter, wanted))
        })
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
    /// A calibrated scale that is not given.
    #[error("backend `{row}` reads a calibrated scale for its `{gemm}`, and there is none")]
    NoScale {
        /// The row.
        row: &'static str,
        /// `gemm1_input` or `gemm2_input`.
        gemm: &'static str,
    },
    /// A calibrated scale that the row would ignore, or one of another level than it reads.
    #[error("backend `{row}` reads no such calibrated scale for its `{gemm}`")]
    Scale {
        /// The row.
        row: &'static str,
        /// `gemm1_input` or `gemm2_input`.
        gemm: &'static str,
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

/// Whether `contract` honours what `layer` asks for, and reads the calibrated scales that it has.
///
/// # Errors
/// [`Refused`], naming the row and what it would have ignored or what it lacks.
pub fn check(contract: &Contract, layer: &LayerConfig) -> Result<(), Refused> {
    honours(contract, layer.activation)?;
    let gemms = [
        ("gemm1_input", Some(&contract.gemm1_input), layer.gemm1),
        ("gemm2_input", contract.gemm2_input.as_ref(), layer.gemm2),
    ];
    for (gemm, input, given) in gemms {
        let row = contract.name;
        let is_global = input.is_some_and(|input| input.global.is_some());
        match (input.and_then(InputContract::calibrated), given) {
            (None, None) => {}
            (Some(_), Some(Calibrated::Global(_))) if is_global => {}
            (Some(_), Some(Calibrated::Static(_))) if !is_global => {}
            (Some(_), None) => return Err(Refused::NoScale { row, gemm }),
            (_, Some(_)) => return Err(Refused::Scale { row, gemm }),
        }
    }
    Ok(())
}

/// Whether `contract` honours `function` with every parameter that is not neutral, and their values make
/// sense.
///
/// # Errors
/// [`Refused`], naming the row and what it would have ignored.
pub fn honours(contract: &Contract, function: ActivationFunction) -> Result<(), Refused> {
    let kind = function.kind();
    let Some(honoured) = contract.activations.iter().find(|honoured| honoured.function == kind) else {
        let names: Vec<_> = contract.activations.iter().map(|honoured| honoured.function.name()).collect();
        return Err(Refused::Activation { row: contract.name, function: kind, honours: names.join(", ") });
    };
    if let Some((parameter, wanted)) = function.nonsense() {
        return Err(Refused::Value { function: kind, parameter, wanted });
    }
    let asked = function.parameters().into_iter().filter(|(_, value, neutral)| value != neutral);
    let refused = asked.map(|(parameter, ..)| parameter).find(|asked| !honoured.parameters.contains(asked));
    match refused {
        None => Ok(()),
        Some(parameter) => Err(Refused::Parameter { row: contract.name, function: kind, parameter }),
    }
}

/// What a layer on backend `B` is configured with. The row's generated `config` makes it, and takes
/// exactly the parameters that the row honours: nothing is swallowed, nothing decides a layout.
#[derive(Debug, Clone, Copy)]
pub struct QuantConfig<B: Backend> {
    layer: LayerConfig,
    backend: PhantomData<B>,
}

impl<B: Backend> QuantConfig<B> {
    /// Checks `layer` against the row.
    ///
    /// # Errors
    /// [`Refused`] if the row does not honour it.
    pub fn new(layer: LayerConfig) -> Result<Self, Refused> {
        check(B::CONTRACT, &layer)?;
        Ok(Self::from_row(layer))
    }

    /// For the generated constructors, whose types admit what the row honours and nothing else.
    #[doc(hidden)]
    pub fn from_row(layer: LayerConfig) -> Self {
        Self { layer, backend: PhantomData }
    }

    /// The row: formats, layouts, padding, who quantises.
    pub fn contract(&self) -> &'static Contract {
        B::CONTRACT
    }

    /// What the caller decided.
    pub fn layer(&self) -> &LayerConfig {
        &self.layer
    }

    /// The activation function.
    pub fn activation(&self) -> ActivationFunction {
        self.layer.activation
    }
}
