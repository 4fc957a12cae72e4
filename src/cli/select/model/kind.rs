//! Kinds of models: what their configurations leave to the code that reads them.

use scalewright::UnknownWord;
use scalewright::backend::Activation;
use scalewright::oracle::{Feature, RoutingMethod};

use super::fields::Fields;

/// A kind of model.
pub(super) struct Kind {
    /// Its `model_type`.
    pub(super) name: &'static str,
    /// The field with the intermediate size of an expert.
    pub(super) intermediate: &'static str,
    /// The field with the number of experts.
    pub(super) experts: &'static str,
    /// The activation function, where `hidden_act` does not say it.
    pub(super) activation: Option<Activation>,
    /// What its layers have.
    pub(super) features: &'static [Feature],
    router: Router,
}

/// What a router does with its logits.
#[derive(Clone, Copy)]
enum Router {
    /// Top-k, then softmax.
    TopK,
    /// Softmax, top-k, then a sum of 1.
    Softmax,
    /// The same; `norm_topk_prob` says whether the weights are scaled.
    SoftmaxNormalized,
    /// Sigmoid with a correction, the best groups, top-k, then a sum of 1.
    Grouped,
    /// Sigmoid, top-k, then a sum of 1; `use_routing_bias` says whether there is a correction.
    Sigmoid,
}

const MIXTRAL: Kind = Kind {
    name: "mixtral",
    intermediate: "intermediate_size",
    experts: "num_local_experts",
    activation: None,
    features: &[],
    router: Router::Softmax,
};
const GPT_OSS: Kind = Kind {
    name: "gpt_oss",
    activation: Some(Activation::Swigluoai),
    features: &[Feature::Bias, Feature::Alpha, Feature::Beta, Feature::Limit],
    router: Router::TopK,
    ..MIXTRAL
};
const QWEN3: Kind = Kind {
    name: "qwen3_moe",
    intermediate: "moe_intermediate_size",
    experts: "num_experts",
    router: Router::SoftmaxNormalized,
    ..MIXTRAL
};
const DEEPSEEK_V3: Kind = Kind {
    name: "deepseek_v3",
    intermediate: "moe_intermediate_size",
    experts: "n_routed_experts",
    router: Router::Grouped,
    ..MIXTRAL
};

const KINDS: &[Kind] = &[
    GPT_OSS,
    MIXTRAL,
    Kind { name: "minimax_m1", ..MIXTRAL },
    Kind { name: "minimax_m2", router: Router::Sigmoid, ..MIXTRAL },
    Kind { name: "qwen2_moe", ..QWEN3 },
    QWEN3,
    Kind { name: "qwen3_next", ..QWEN3 },
    Kind { name: "qwen3_vl_moe_text", ..QWEN3 },
    Kind { name: "qwen3_5_moe_text", ..QWEN3 },
    DEEPSEEK_V3,
    Kind { name: "deepseek_v32", ..DEEPSEEK_V3 },
    Kind { name: "kimi_k2", ..DEEPSEEK_V3 },
    Kind { name: "glm4_moe", ..DEEPSEEK_V3 },
    Kind { name: "glm4_moe_lite", ..DEEPSEEK_V3 },
    Kind { name: "glm_moe_dsa", ..DEEPSEEK_V3 },
];

/// What a model of an unknown kind is said by.
const FLAGS: &str = "flags (see --help), without --model";

/// The model's type, as its configuration spells it.
pub(super) fn model_type(fields: &Fields) -> Result<&str, String> {
    fields.word("model_type", FLAGS)
}

impl Kind {
    /// The kind of the model that is configured.
    pub(super) fn of(fields: &Fields) -> Result<&'static Self, String> {
        // MiniMax-M2 was first published under the name of its series.
        let name = match model_type(fields)? {
            "minimax" => "minimax_m2",
            name => name,
        };
        KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known = KINDS.iter().map(|kind| kind.name).collect();
            let error = UnknownWord { word: name.to_owned(), known };
            format!("the field `model_type`: {error}. Say what the layer is with {FLAGS}")
        })
    }

    /// How its router picks experts.
    pub(super) fn routing(&self, fields: &Fields) -> Result<RoutingMethod, String> {
        const FLAG: &str = "--routing";
        match self.router {
            Router::TopK => Ok(RoutingMethod::Renormalize),
            Router::Softmax => Ok(RoutingMethod::RenormalizeNaive),
            Router::SoftmaxNormalized => Ok(match fields.is_set("norm_topk_prob", FLAG)? {
                true => RoutingMethod::RenormalizeNaive,
                false => RoutingMethod::Default,
            }),
            Router::Grouped => {
                // GLM's configurations leave both out and mean these.
                for (field, only) in [("topk_method", "noaux_tc"), ("scoring_func", "sigmoid")] {
                    if let Some(other) = fields.get(field).filter(|value| *value != only) {
                        return Err(fields.not_understood(field, other, FLAG));
                    }
                }
                Ok(match fields.is_set("norm_topk_prob", FLAG)? {
                    true => RoutingMethod::DeepseekV3,
                    false => RoutingMethod::Unspecified,
                })
            }
            Router::Sigmoid => match fields.word("scoring_func", FLAG)? {
                "sigmoid" => Ok(match fields.is_set("use_routing_bias", FLAG)? {
                    true => RoutingMethod::Minimax2,
                    false => RoutingMethod::SigmoidRenorm,
                }),
                other => Err(fields.not_understood("scoring_func", other, FLAG)),
            },
        }
    }
}
