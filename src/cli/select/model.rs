//! What the config.json of a Hugging Face checkpoint says of its MoE layers.

mod fields;
mod kind;
mod quantization;

use std::num::NonZeroUsize;
use std::path::Path;

use scalewright::backend::Activation;
use scalewright::oracle::{Feature, RoutingMethod, TokenType};

use super::question::Question;
use crate::cli::{Trouble, question, wrong_file};
use fields::Fields;
use kind::Kind;
use quantization::Quantization;

/// `question` with what it leaves open taken from the configuration at `path`, whose intermediate size
/// `tp` ranks share.
///
/// # Errors
/// A field that is needed and is missing or not understood, and the flag that can say it instead.
pub(super) fn complete(
    question: Question,
    path: &Path,
    tp: Option<NonZeroUsize>,
) -> Result<Question, Trouble> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| self::question(format!("{} cannot be read: {error}", path.display())))?;
    derive(question, &text, tp).map_err(|error| wrong_file(format!("{}: {error}", path.display())))
}

fn derive(said: Question, text: &str, tp: Option<NonZeroUsize>) -> Result<Question, String> {
    let fields = Fields::read(text)?;
    let kind = Kind::of(&fields)?;
    let Quantization { oracle, scheme, checkpoint, group, features } = match (&said.oracle, &said.scheme) {
        (Some(_), Some(_)) => Quantization::default(),
        _ => quantization::read(&fields)?,
    };
    let activation = said.activation.map_or_else(|| activation(&fields, kind), Ok)?;
    let features = [said.features, features, kind.features.to_vec(), limit(&fields, kind)].concat();
    let routing = said.routing.map_or_else(|| kind.routing(&fields), Ok)?;
    Ok(Question {
        oracle: said.oracle.or(oracle),
        scheme: said.scheme.or(scheme),
        checkpoint: said.checkpoint.or(checkpoint),
        group: said.group.or(group),
        activation: Some(activation),
        features,
        hidden: Some(said.hidden.map_or_else(|| fields.size("hidden_size", "--hidden"), Ok)?),
        intermediate: Some(said.intermediate.map_or_else(|| intermediate(&fields, kind, tp), Ok)?),
        experts: Some(said.experts.map_or_else(|| fields.size(kind.experts, "--experts"), Ok)?),
        top_k: Some(said.top_k.map_or_else(|| fields.size("num_experts_per_tok", "--top-k"), Ok)?),
        routing: Some(routing),
        router_dtype: Some(said.router_dtype.unwrap_or(router_dtype(routing))),
        token_dtype: said.token_dtype.map_or_else(|| token_dtype(&fields), |dtype| Ok(Some(dtype)))?,
        model_type: Some(said.model_type.map_or_else(|| kind::model_type(&fields).map(str::to_owned), Ok)?),
        ..said
    })
}

fn activation(fields: &Fields, kind: &Kind) -> Result<Activation, String> {
    if let Some(activation) = kind.activation {
        return Ok(activation);
    }
    match fields.word("hidden_act", "--activation")? {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_tanh" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        other => Err(fields.not_understood("hidden_act", other, "--activation")),
    }
}

/// The clamp, where the configuration has one and the kind does not say so itself.
fn limit(fields: &Fields, kind: &Kind) -> Vec<Feature> {
    let is_new = !kind.features.contains(&Feature::Limit) && fields.get("swiglu_limit").is_some();
    is_new.then_some(Feature::Limit).into_iter().collect()
}

fn intermediate(fields: &Fields, kind: &Kind, tp: Option<NonZeroUsize>) -> Result<NonZeroUsize, String> {
    let whole = fields.size(kind.intermediate, "--intermediate")?;
    let ranks = tp.map_or(1, NonZeroUsize::get);
    let rank = NonZeroUsize::new(whole.get() / ranks).filter(|_| whole.get().is_multiple_of(ranks));
    rank.ok_or_else(|| {
        format!(
            "{ranks} ranks do not divide `{}` = {whole}; say with --intermediate what one has",
            kind.intermediate
        )
    })
}

/// Models that choose by a correction compute their router in single precision.
fn router_dtype(routing: RoutingMethod) -> TokenType {
    match routing {
        RoutingMethod::DeepseekV3 | RoutingMethod::Minimax2 => TokenType::F32,
        _ => TokenType::Bf16,
    }
}

fn token_dtype(fields: &Fields) -> Result<Option<TokenType>, String> {
    let named = ["dtype", "torch_dtype"].into_iter().find(|name| fields.get(name).is_some());
    let Some(field) = named else { return Ok(None) };
    match fields.word(field, "--token-dtype")? {
        "bfloat16" => Ok(Some(TokenType::Bf16)),
        "float16" => Ok(Some(TokenType::F16)),
        "float32" => Ok(Some(TokenType::F32)),
        other => Err(fields.not_understood(field, other, "--token-dtype")),
    }
}

#[cfg(test)]
mod tests;
