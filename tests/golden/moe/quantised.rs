//! FlashInfer's layers on quantised operands: each dequantised, multiplied in f32, and the activated
//! values rounded to bf16 and quantised again.

use half::bf16;
use scalewright::config::ActivationFunction;
use scalewright::format::{ElementType, FormatSpec, Rounding};
use scalewright::moe::routing::{Method, route};
use scalewright::recipe::Recipe;
use scalewright::reference;
use scalewright::scale::{Calibrated, Divisor, Multiplier};
use scalewright::weights::canonical::{Biases, Canonical, Stack};

use super::{Tolerance, halves, largest, rounded_to_bf16, rows, size, text};
use crate::data::{File, Outcome, Relation, Tensor, Tensors, close};
use crate::engine;
use crate::routing::{Choice, permutation, same_choice};

pub(super) fn check(file: &File, tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let mode = relation.outputs().first()?.split('.').next()?.to_owned();
    let format = match mode.as_str() {
        "fp4_mxfp4_mxfp8" => "mxfp4",
        "fp8_block_scale_mxfp8" => "mxfp8",
        "fp4_nvfp4_nvfp4" => "nvfp4",
        "fp8_per_tensor" => "fp8_tensor",
        "bf16" => "bf16",
        _ => return None,
    };
    let function = function(file)?;
    let layer = Layer { file, tensors, mode, format: engine::format(format), function };
    Some(layer.check())
}

/// Their activation; relu2 is of a plain layer.
fn function(file: &File) -> Option<ActivationFunction> {
    let parameter = |name: &str| file.params[name].as_f64().map(|value| value as f32);
    Some(match (file.params["activation"].as_str()?, parameter("swiglu_alpha")) {
        ("swiglu", None) => ActivationFunction::SILU,
        ("swiglu", Some(alpha)) => {
            let (beta, limit) = (parameter("swiglu_beta")?, parameter("swiglu_limit")?);
            ActivationFunction::SwigluoaiUninterleave { alpha, beta, limit }
        }
        ("geglu", _) => ActivationFunction::Gelu,
        ("relu2", _) => ActivationFunction::Relu2NoMul,
        _ => return None,
    })
}

struct Layer<'a> {
    file: &'a File,
    tensors: &'a Tensors,
    mode: String,
    /// Of the weights.
    format: &'static FormatSpec,
    function: ActivationFunction,
}

impl Layer<'_> {
    fn tensor(&self, name: &str) -> &Tensor {
        &self.tensors[format!("{}.{name}", self.mode).as_str()]
    }

    fn check(&self) -> Outcome {
        let stored = self.routing()?;
        let weights = self.weights()?;
        let middle =
            reference::activated(&weights, self.function, stored.chosen(), &self.input()?).map_err(text)?;
        self.activations(&middle)?;
        let requantised = self.requantised(&rounded_to_bf16(&middle))?;
        let output = reference::combined(&weights, stored.chosen(), &requantised).map_err(text)?;
        nearly("reference", &output, &self.tensor("out").doubles())?;

        let routing = stored.routing(weights.experts)?;
        rows(&weights, self.function, &self.tensors["x_bf16"].bf16(), &routing)?;
        Ok(())
    }

    /// Their experts and weights, which are ours, and their permutation.
    fn routing(&self) -> Result<Choice, String> {
        let route_of = |name: &str| &self.tensors[format!("route.{name}").as_str()];
        let stored = Choice::stored(route_of("topKIndices"), route_of("topKLogits").reals());
        let logits = &self.tensors["router_logits"];
        let (tokens, experts) = (logits.shape[0], logits.cols());
        let own = route(&logits.reals(), tokens, experts, &Method::renormalize(stored.top_k));
        same_choice(logits, &Choice::of(&own.map_err(text)?), &stored, 1e-6)?;
        permutation(&stored.routing(experts)?, size(self.file, "padding"), route_of)?;
        Ok(stored)
    }

    /// The quantised tokens' values; the scale that they store quantises.
    fn input(&self) -> Result<Vec<f64>, String> {
        if self.format.name == "bf16" {
            return Ok(self.tensors["x_bf16"].doubles());
        }
        // MXFP4 weights meet MXFP8 tokens; the others' tokens are in the format of the weights.
        let format = if self.format.name == "mxfp4" { engine::format("mxfp8") } else { self.format };
        let rows = size(self.file, "tokens");
        let stack = self.stack(format, "x", rows, size(self.file, "hidden"))?;
        reference::dequantize(format, stack.matrix(format, 0)).map_err(text)
    }

    /// w1 is up and then gate, or up alone.
    fn weights(&self) -> Result<Canonical, String> {
        let [experts, hidden, intermediate] =
            ["experts", "hidden", "intermediate"].map(|name| size(self.file, name));
        let is_gated = self.function.kind().halves() == 2;
        let w1_rows = if is_gated { 2 * intermediate } else { intermediate };
        let w1 = self.stack(self.format, "w1", w1_rows, hidden)?;
        let (gate, up) = if is_gated {
            let [up, gate] = halves(self.format, experts, &w1);
            (Some(gate), up)
        } else {
            (None, w1)
        };
        let down = self.stack(self.format, "w2", hidden, intermediate)?;
        let biases = self.tensors.get("gemm1_bias").map(|bias| {
            let (gate, up) = bias_halves(&bias.reals(), intermediate);
            Biases { gate, up, down: self.tensors["gemm2_bias"].reals() }
        });
        Ok(Canonical { format: self.format, experts, hidden, intermediate, gate, up, down, biases })
    }

    /// Matrices of `rows` × `cols` each. Second-level scales and those of whole tensors are stored as
    /// what quantising multiplies by.
    fn stack(&self, format: &FormatSpec, name: &str, rows: usize, cols: usize) -> Result<Stack, String> {
        if format.name == "bf16" {
            return Ok(Stack::new(rows, cols, self.tensor(name).bytes.clone(), Vec::new()));
        }
        let payload = self.tensor(&format!("{name}_q")).bytes.clone();
        let multipliers = || -> Result<Vec<Multiplier>, String> {
            let stored = self.tensor(&format!("{name}_global_encode_scale")).reals();
            stored.into_iter().map(|scale| Ok(Divisor::new(scale).map_err(text)?.to_multiplier())).collect()
        };
        if format.name == "fp8_tensor" {
            let scales = multipliers()?.iter().flat_map(|scale| scale.get().to_le_bytes()).collect();
            return Ok(Stack::new(rows, cols, payload, scales));
        }
        let scales = self.tensor(&format!("{name}_scale")).bytes.clone();
        let globals = if format.global.is_some() { multipliers()? } else { Vec::new() };
        Ok(Stack { globals, ..Stack::new(rows, cols, payload, scales) })
    }

    /// Before they are rounded, against the rows of their permuted buffer.
    fn activations(&self, middle: &[f64]) -> Outcome {
        let width = size(self.file, "intermediate");
        let permuted = self.tensor("activation_permuted_f32").doubles();
        let places = self.tensors["route.expandedTokenIdxToPermutedIdx"].words();
        let theirs: Vec<f64> =
            places.iter().flat_map(|place| &permuted[*place as usize * width..][..width]).copied().collect();
        // 1e-5, and what sums in f32 that cancel lose.
        Tolerance { relative: 1e-5, of_largest: 1e-5 }.judge("activations", middle, &theirs)
    }

    /// What GEMM2 reads of the activated values, which are in bf16.
    fn requantised(&self, middle: &[f64]) -> Result<Vec<f64>, String> {
        let width = size(self.file, "intermediate");
        let through = |format, recipe| {
            reference::quantize_dequantize(middle, width, engine::format(format), recipe).map_err(text)
        };
        match self.mode.as_str() {
            "bf16" => Ok(middle.to_vec()),
            "fp4_nvfp4_nvfp4" => {
                let factor = self.intermediate_factor(middle, 448.0 * 6.0)?;
                let global = Divisor::new(factor).map_err(text)?;
                let calibrated = Some(Calibrated::Global(global));
                through("nvfp4", Recipe { calibrated, ..Recipe::default() })
            }
            "fp8_per_tensor" => {
                let factor = f64::from(self.intermediate_factor(middle, 448.0)?);
                // A bf16 tensor times a scalar stays in bf16, so it is rounded twice.
                let rounded_twice = |value: &f64| {
                    let scaled = bf16::from_f64(value * factor).to_f64();
                    let code = reference::encode_element(ElementType::E4m3, scaled);
                    reference::decode_element(ElementType::E4m3, code) / factor
                };
                Ok(middle.iter().map(rounded_twice).collect())
            }
            _ => through("mxfp8", Recipe::dynamic(Some(Rounding::Rceil))),
        }
    }

    /// Their one factor over all routed rows, which brings the largest value to `top`.
    fn intermediate_factor(&self, middle: &[f64], top: f64) -> Result<f32, String> {
        let theirs = self.tensor("intermediate_global_encode_scale").reals()[0];
        let ours = top / largest(middle);
        if close(ours, theirs.into(), 1e-6, 0.0) {
            Ok(theirs)
        } else {
            Err(format!("the factor of the intermediate is {ours}, not {theirs}"))
        }
    }
}

/// Biases of gate and up out of those of up and then gate, of every expert; of plain layers there is no
/// gate.
fn bias_halves(both: &[f32], intermediate: usize) -> (Vec<f32>, Vec<f32>) {
    let half = |which: usize| {
        both.chunks(2 * intermediate)
            .flat_map(move |bias| bias[which * intermediate..][..intermediate].iter().copied())
    };
    (half(1).collect(), half(0).collect())
}

/// As the manifest says: 1e-4 of the largest value, but for at most one value in 200, whose intermediate
/// was requantised another way; those within 2e-2.
fn nearly(what: &str, ours: &[f64], theirs: &[f64]) -> Outcome {
    Tolerance { relative: 0.0, of_largest: 2e-2 }.judge(what, ours, theirs)?;
    let bound = 1e-4 * largest(theirs);
    let beyond =
        ours.iter().zip(theirs).filter(|(ours, theirs)| !close(**ours, **theirs, 0.0, bound)).count();
    if 200 * beyond <= theirs.len() {
        Ok(())
    } else {
        Err(format!("{what}: {beyond} of {} are more than 1e-4 of the largest away", theirs.len()))
    }
}
