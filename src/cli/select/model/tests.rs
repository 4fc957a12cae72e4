use scalewright::oracle::Checkpoint;
use serde_json::{Value, json};

use super::*;

const GPT_OSS: &str = "gpt-oss-20b";
const MIXTRAL: &str = "mixtral-8x7b";
const QWEN3: &str = "qwen3-30b-a3b-fp8";
const DEEPSEEK: &str = "deepseek-v3-nvfp4";
const GLM: &str = "glm-4.5-air";
const MINIMAX_M1: &str = "minimax-m1";
const MINIMAX_M2: &str = "minimax-m2";

fn config(model: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/models");
    std::fs::read_to_string(format!("{folder}/{model}.json")).unwrap()
}

fn question(request: Value) -> Question {
    serde_json::from_value(request).unwrap()
}

fn derived(text: &str) -> Result<Question, String> {
    derive(Question::default(), text, None)
}

/// The configuration of `model` with `field`, a path with dots, set to `value`; null is as good as absent.
fn changed(model: &str, field: &str, value: Value) -> String {
    let mut config: Value = serde_json::from_str(&config(model)).unwrap();
    *config.pointer_mut(&format!("/{}", field.replace('.', "/"))).unwrap() = value;
    config.to_string()
}

#[test]
fn models_are_requests() {
    let cases = [
        (
            GPT_OSS,
            json!({
                "oracle": "mxfp4", "scheme": "mxfp4", "activation": "swigluoai", "hidden": 2880,
                "intermediate": 2880, "experts": 32, "top_k": 4, "routing": "renormalize",
                "router_dtype": "bf16", "model_type": "gpt_oss",
                "features": ["bias", "alpha", "beta", "limit"],
            }),
        ),
        (
            MIXTRAL,
            json!({
                "oracle": "unquantized", "scheme": "bf16", "activation": "silu", "hidden": 4096,
                "intermediate": 14336, "experts": 8, "top_k": 2, "routing": "renormalize_naive",
                "router_dtype": "bf16", "token_dtype": "bf16", "model_type": "mixtral",
            }),
        ),
        (
            QWEN3,
            json!({
                "oracle": "fp8", "scheme": "fp8_block128", "activation": "silu", "hidden": 2048,
                "intermediate": 768, "experts": 128, "top_k": 8, "routing": "renormalize_naive",
                "router_dtype": "bf16", "token_dtype": "bf16", "model_type": "qwen3_moe",
            }),
        ),
        (
            DEEPSEEK,
            json!({
                "oracle": "nvfp4", "scheme": "nvfp4", "activation": "silu", "hidden": 7168,
                "intermediate": 2048, "experts": 256, "top_k": 8, "routing": "deepseek_v3",
                "router_dtype": "f32", "token_dtype": "bf16", "model_type": "deepseek_v3",
            }),
        ),
        (
            GLM,
            json!({
                "oracle": "fp8", "scheme": "fp8_channel", "activation": "silu", "hidden": 4096,
                "intermediate": 1408, "experts": 128, "top_k": 8, "routing": "deepseek_v3",
                "router_dtype": "f32", "token_dtype": "bf16", "model_type": "glm4_moe",
                "features": ["cutlass_allowed"],
            }),
        ),
        (
            MINIMAX_M1,
            json!({
                "oracle": "unquantized", "scheme": "bf16", "activation": "silu", "hidden": 6144,
                "intermediate": 9216, "experts": 32, "top_k": 2, "routing": "renormalize_naive",
                "router_dtype": "bf16", "token_dtype": "bf16", "model_type": "minimax_m1",
            }),
        ),
        (
            MINIMAX_M2,
            json!({
                "oracle": "fp8", "scheme": "fp8_block128", "activation": "silu", "hidden": 3072,
                "intermediate": 1536, "experts": 256, "top_k": 8, "routing": "minimax2",
                "router_dtype": "f32", "model_type": "minimax_m2",
            }),
        ),
    ];
    for (model, request) in cases {
        assert_eq!(derived(&config(model)), Ok(question(request)), "{model}");
    }
}

#[test]
fn a_part_of_a_model_goes_before_the_whole() {
    let part: Value = serde_json::from_str(&config(QWEN3)).unwrap();
    let whole = json!({ "model_type": "a_whole", "hidden_size": 1, "text_config": part }).to_string();
    assert_eq!(derived(&whole), derived(&config(QWEN3)));
}

/// Every way of quantising, over one model.
#[test]
fn quantisations_are_schemes() {
    let tensors = |weights: &str, tokens: &str| {
        let numbers = |words: &str| {
            let words: Vec<_> = words.split(' ').collect();
            let [kind, bits, strategy, group, dynamic] = words[..] else { return Value::Null };
            json!({
                "type": kind, "num_bits": bits.parse::<u32>().unwrap(), "strategy": strategy,
                "group_size": group.parse::<i32>().ok(), "dynamic": dynamic == "dynamic", "symmetric": dynamic != "asymmetric",
                "block_structure": (strategy == "block").then_some([128, 128]),
            })
        };
        let group = json!({ "weights": numbers(weights), "input_activations": numbers(tokens) });
        json!({ "quant_method": "compressed-tensors", "config_groups": { "group_0": group } })
    };
    let modelopt = |algorithm: &str| json!({ "quant_method": "modelopt", "quant_algo": algorithm });
    let fp8 = |scheme: &str, block: Value| json!({ "quant_method": "fp8", "activation_scheme": scheme, "weight_block_size": block });
    let cases = [
        (fp8("dynamic", json!([128, 128])), "fp8", "fp8_block128"),
        (fp8("dynamic", json!([64, 64])), "fp8", "fp8_block64"),
        (fp8("dynamic", Value::Null), "fp8", "fp8_tensor_dynamic"),
        (fp8("static", Value::Null), "fp8", "fp8_tensor"),
        (json!({ "quant_method": "mxfp8" }), "mxfp8", "mxfp8"),
        (modelopt("NVFP4"), "nvfp4", "nvfp4"),
        (modelopt("FP8"), "fp8", "fp8_tensor"),
        (modelopt("FP8_PER_CHANNEL_PER_TOKEN"), "fp8", "fp8_channel"),
        (modelopt("MXFP8"), "mxfp8", "mxfp8"),
        (tensors("float 4 tensor_group 16 static", ""), "nvfp4", "nvfp4_a16"),
        (tensors("float 4 tensor_group 16 static", "float 4 tensor_group 16 local"), "nvfp4", "nvfp4"),
        (tensors("float 4 group 32 static", ""), "mxfp4", "mxfp4"),
        (tensors("float 4 group 32 static", "float 4 group 32 dynamic"), "mxfp4", "mxfp4_mxfp4"),
        (tensors("float 4 group 32 static", "float 8 group 32 dynamic"), "mxfp4", "mxfp4_mxfp8"),
        (tensors("float 8 group 32 static", "float 8 group 32 dynamic"), "mxfp8", "mxfp8"),
        (tensors("float 8 tensor - static", "float 8 tensor - static"), "fp8", "fp8_tensor"),
        (tensors("float 8 tensor - static", "float 8 tensor - dynamic"), "fp8", "fp8_tensor_dynamic"),
        (tensors("float 8 tensor - static", "float 8 token - dynamic"), "fp8", "fp8_tensor_token"),
        (tensors("float 8 block - static", "float 8 group 128 dynamic"), "fp8", "fp8_block128"),
        (tensors("int 8 channel - static", "int 8 token - dynamic"), "int8", "int8_channel"),
        (tensors("int 4 group 128 static", "float 8 token - dynamic"), "w4a8", "int4_fp8"),
        (tensors("int 4 channel -1 static", "int 8 token - dynamic"), "w4a8_int8", "int4_int8"),
        (tensors("int 8 channel - static", ""), "int_wna16", "int8_g128"),
        (tensors("int 4 group 32 static", ""), "int_wna16", "int4_g32"),
        (tensors("int 4 group 128 asymmetric", ""), "int_wna16", "uint4_g128"),
    ];
    for (config, oracle, scheme) in cases {
        let asked = derived(&changed(QWEN3, "quantization_config", config.clone())).unwrap();
        let got = (asked.oracle.as_deref(), asked.scheme.as_deref());
        assert_eq!(got, (Some(oracle), Some(scheme)), "{config}");
    }
}

#[test]
fn integer_checkpoints_say_what_they_hold() {
    use Feature::{ActOrder, BiasPossible, ZeroPoints};
    let awq = json!({ "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true });
    let gptq = json!({ "quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": true, "sym": true });
    let cases = [
        (awq, "int4_g128", Checkpoint::Awq, 128, vec![BiasPossible, ZeroPoints]),
        (gptq, "int8_g128", Checkpoint::Gptq, 0, vec![BiasPossible, ActOrder]),
    ];
    for (config, scheme, checkpoint, group, features) in cases {
        let asked = derived(&changed(QWEN3, "quantization_config", config)).unwrap();
        assert_eq!((asked.scheme.as_deref(), asked.checkpoint), (Some(scheme), Some(checkpoint)));
        assert_eq!((asked.group, asked.features), (Some(group), features));
    }
}

#[test]
fn routers_are_told_by_their_fields() {
    let cases = [
        (changed(QWEN3, "norm_topk_prob", json!(false)), RoutingMethod::Default),
        (changed(DEEPSEEK, "norm_topk_prob", json!(false)), RoutingMethod::Unspecified),
        (changed(MINIMAX_M2, "use_routing_bias", json!(false)), RoutingMethod::SigmoidRenorm),
        (changed(MINIMAX_M2, "model_type", json!("minimax")), RoutingMethod::Minimax2),
    ];
    for (config, routing) in cases {
        assert_eq!(derived(&config).unwrap().routing, Some(routing), "{config}");
    }
}

#[test]
fn flags_go_before_the_file() {
    let said = json!({ "hidden": 96, "scheme": "mxfp4_mxfp8", "activation": "silu", "routing": "topk" });
    let config = changed(GPT_OSS, "hidden_size", json!("unreadable"));
    let asked = derive(question(said), &config, None).unwrap();
    assert_eq!((asked.oracle.as_deref(), asked.scheme.as_deref()), (Some("mxfp4"), Some("mxfp4_mxfp8")));
    assert_eq!((asked.hidden, asked.routing), (NonZeroUsize::new(96), Some(RoutingMethod::Topk)));
    assert_eq!(asked.activation, Some(Activation::Silu));
}

#[test]
fn ranks_share_the_intermediate_size() {
    let of = |ranks| derive(Question::default(), &config(QWEN3), NonZeroUsize::new(ranks));
    assert_eq!(of(4).unwrap().intermediate, NonZeroUsize::new(192));
    let error = of(5).unwrap_err();
    assert!(error.contains("`moe_intermediate_size` = 768") && error.contains("--intermediate"), "{error}");
}

#[test]
fn what_is_not_understood_is_named_with_the_flag_for_it() {
    let quantization =
        |field: &str, value: Value| changed(QWEN3, &format!("quantization_config.{field}"), value);
    let cases = [
        (changed(QWEN3, "hidden_size", Value::Null), "no field `hidden_size`; say it with --hidden"),
        (changed(QWEN3, "num_experts", json!(-1)), "`num_experts` is -1"),
        (changed(QWEN3, "num_experts_per_tok", json!(0)), "--top-k"),
        (
            changed(QWEN3, "hidden_act", json!("mish")),
            "`hidden_act` is mish, which is not understood; say it with --activation",
        ),
        (changed(QWEN3, "norm_topk_prob", Value::Null), "--routing"),
        (changed(DEEPSEEK, "topk_method", json!("greedy")), "--routing"),
        (changed(QWEN3, "torch_dtype", json!("int8")), "--token-dtype"),
        (changed(QWEN3, "model_type", json!("qwen3_mo")), "(did you mean `qwen3_moe`?)"),
        (changed(QWEN3, "model_type", Value::Null), "no field `model_type`"),
        (quantization("quant_method", json!("bitsandbytes")), "--oracle and --scheme"),
        (quantization("weight_block_size", json!([128, 64])), "weight_block_size` is [128,64]"),
        (
            changed(GLM, "quantization_config.config_groups", json!({})),
            "`quantization_config.config_groups` is 0 groups",
        ),
        (
            changed(GLM, "quantization_config.config_groups.group_0.input_activations", Value::Null),
            "float8 channel with tokens none",
        ),
        (
            changed(GLM, "quantization_config.config_groups.group_0.weights.num_bits", Value::Null),
            "no field `quantization_config.config_groups.group_0.weights.num_bits`",
        ),
        (changed(GLM, "quantization_config", json!("fp8")), "`quantization_config` is \"fp8\""),
        ("[]".to_owned(), "not a JSON object"),
    ];
    for (config, message) in cases {
        let error = derived(&config).unwrap_err();
        assert!(error.contains(message), "{error}\nnot: {message}");
    }
}
