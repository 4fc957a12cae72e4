//! The data: requests in vLLM's words, and what its own code decided.
//!
//! `cases.jsonl` holds them packed: a line of words, a line of lists of refusals, and a case a line.
//! `SCALEWRIGHT_SELECTION=DIR` reads every `*.jsonl` of a folder instead, in the form of the data.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use scalewright::backend::Activation;
use scalewright::generated::settings::SETTINGS;
use scalewright::oracle::{
    All2all, Checkpoint, Device, Feature, GemmType, Parallel, Request, RoutingMethod, Switch, TokenType,
};
use serde_json::{Value, json};

pub(crate) type Refusals = Vec<(Option<String>, Option<String>, String)>;

/// A request in vLLM's words, and what it decided.
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) family: String,
    pub(crate) request: Request,
    pub(crate) backend: Option<String>,
    pub(crate) experts: Option<String>,
    pub(crate) rejected: Refusals,
    /// The key of the quant config that it built, if it built one.
    pub(crate) config: Option<String>,
}

/// The fields of a case that both forms have.
#[derive(Default)]
struct Fields {
    device: String,
    world: String,
    family: String,
    scheme: String,
    activation: String,
    all2all: String,
    /// Hidden, intermediate of a rank, experts, and data-, expert- and sequence-parallel ranks.
    sizes: Vec<usize>,
    routing: String,
    router_dtype: String,
    token_dtype: String,
    features: Vec<Feature>,
    spread: Option<()>,
    name: String,
    environment: BTreeMap<String, String>,
    integers: Option<[String; 6]>,
    input: Option<String>,
    model_type: Option<String>,
}

/// The schemes of the data, weight and activation key, as the table names them.
const SCHEMES: &[(&str, &str)] = &[
    ("mxfp4_static|none", "mxfp4"),
    ("mxfp4_static|mxfp8_dyn", "mxfp4_mxfp8"),
    ("mxfp4_static|mxfp4_dyn", "mxfp4_mxfp4"),
    ("mxfp4_static|fp8_tensor_static", "mxfp4_fp8"),
    ("mxfp8_static|mxfp8_dyn", "mxfp8"),
    ("nvfp4_static|none", "nvfp4_a16"),
    ("nvfp4_static|nvfp4_dyn", "nvfp4"),
    ("nvfp4_static|nvfp4_dyn_token", "nvfp4_token"),
    ("fp8_tensor_static|fp8_tensor_static", "fp8_tensor"),
    ("fp8_tensor_static|fp8_tensor_dyn", "fp8_tensor_dynamic"),
    ("fp8_tensor_static|fp8_token_dyn", "fp8_tensor_token"),
    ("fp8_tensor_static|fp8_group128_dyn", "fp8_tensor_group128"),
    ("fp8_channel_static|fp8_token_dyn", "fp8_channel"),
    ("fp8_block128_static|fp8_group128_dyn", "fp8_block128"),
    ("fp8_block64_static|fp8_group128_dyn", "fp8_block64"),
    ("int8_channel_static|int8_token_dyn", "int8_channel"),
    ("int8_channel_static|none", "int8_channel_a16"),
    ("int8_tensor_static|int8_tensor_dyn", "int8_tensor"),
    ("int4_group|none", "int4_g128"),
    ("int4_group32|none", "int4_g32"),
    ("int4_group_asym|none", "uint4_g128"),
    ("int4_group32_asym|none", "uint4_g32"),
    ("int8_group|none", "int8_g128"),
    ("none|none", "bf16"),
    ("int4_group|fp8_token_dyn", "int4_fp8"),
    ("int4_w4a8_g128|none", "int4_int8"),
];

/// The token formats that a user can ask for in place of the checkpoint's.
const INPUTS: &[(&str, &str)] = &[
    ("fp8_per_tensor_static", "mxfp4_fp8"),
    ("mxfp4", "mxfp4_mxfp4"),
    ("mxfp8", "mxfp4_mxfp8"),
    ("fp8_per_block_dynamic", "mxfp4_fp8_group128"),
    ("fp8_per_token", "mxfp4_fp8_token"),
];

fn lookup(table: &[(&str, &'static str)], word: &str) -> &'static str {
    table.iter().find(|(theirs, _)| *theirs == word).unwrap_or_else(|| panic!("no word for {word}")).1
}

fn routing(word: &str) -> RoutingMethod {
    let plain = |word: &str| word.to_lowercase().replace('_', "");
    let found = RoutingMethod::ALL.iter().find(|method| plain(method.name()) == plain(word));
    *found.unwrap_or_else(|| panic!("no routing method {word}"))
}

fn token_type(word: &str) -> TokenType {
    match word {
        "bf16" => TokenType::Bf16,
        "fp16" => TokenType::F16,
        _ => TokenType::F32,
    }
}

impl Fields {
    fn request(mut self) -> Request {
        let mut scheme = lookup(SCHEMES, &self.scheme);
        if let Some(input) = self.input.as_deref().map(|input| lookup(INPUTS, input)) {
            if scheme != "mxfp4" && scheme != input {
                self.features.push(Feature::InputConflict);
            } else {
                scheme = input;
            }
        }
        let [hidden, intermediate, experts, data_parallel, expert_parallel, sequence_parallel] =
            self.sizes[..]
        else {
            panic!("six sizes, not {:?}", self.sizes)
        };
        let in_use = self.spread.is_some() && (data_parallel > 1 || sequence_parallel > 1);
        let all2all = in_use.then(|| self.all2all.parse::<All2all>().unwrap());
        let device = self.device.strip_prefix("sm").map_or(self.device.clone(), |arch| format!("sm_{arch}"));
        let missing: &[&str] = match self.world.as_str() {
            "full" => &[],
            "pip" => &["quark", "b12x", "hpc", "aiter"],
            _ => &["quark", "b12x", "hpc", "aiter", "flashinfer", "deep_gemm", "triton_kernels", "humming"],
        };
        // The wheel that was run was built for NVIDIA devices and x86.
        let missing = missing.iter().chain(&["vllm_arm", "vllm_rocm"]);
        let mut settings = Vec::new();
        for setting in SETTINGS {
            if let Some(value) = self.environment.get(setting.variable) {
                let value = if value == "1" { Switch::On } else { Switch::Off };
                settings.push((setting.name.to_owned(), value));
            }
        }
        let gemm_type = self.environment.get("VLLM_HUMMING_MOE_GEMM_TYPE");
        if self.environment.contains_key("VLLM_BATCH_INVARIANT") {
            self.features.push(Feature::BatchInvariance);
        }
        let mut request =
            Request::new(device.parse::<Device>().unwrap(), activation(&self.activation), hidden);
        if let Some([format, group, _, act_order, zero_points, biases]) = &self.integers {
            let said = [
                (act_order, Feature::ActOrder),
                (zero_points, Feature::ZeroPoints),
                (biases, Feature::BiasPossible),
            ];
            self.features.extend(said.iter().filter(|(word, _)| *word == "1").map(|(_, feature)| *feature));
            let format = if format == "ct" { "compressed_tensors" } else { format };
            request.checkpoint = Some(format.parse::<Checkpoint>().unwrap());
            request.group = Some(group.parse().unwrap_or(0));
        }
        request.missing_libraries = missing.map(|library| (*library).to_owned()).collect();
        request.scheme = Some(scheme.to_owned());
        request.intermediate = intermediate;
        request.experts = experts;
        request.routing = routing(&self.routing);
        request.router_dtype = token_type(&self.router_dtype);
        request.token_dtype = token_type(&self.token_dtype);
        request.parallel = Parallel {
            data_parallel,
            expert_parallel: self.spread.map(|()| expert_parallel),
            sequence_parallel,
            all2all,
        };
        request.features = self.features;
        request.model_type = self.model_type;
        request.backend = (self.name != "auto").then_some(self.name);
        request.settings = settings;
        request.gemm_type = gemm_type.map(|word| word.parse::<GemmType>().unwrap());
        request
    }
}

fn activation(word: &str) -> Activation {
    word.parse().unwrap()
}

fn family(entry: &str) -> String {
    match entry {
        "select_mxfp4" => "mxfp4",
        "select_deepseek_v4_mxfp4" => "mxfp4_deepseek_v4",
        "wna16" => "int_wna16",
        other => other,
    }
    .to_owned()
}

fn features(words: &str) -> (Vec<Feature>, Option<()>) {
    let known = [
        ('b', Feature::Bias),
        ('l', Feature::Lora),
        ('e', Feature::LoadBalancing),
        ('h', Feature::HashRouting),
        ('d', Feature::DecomposedRouting),
        ('c', Feature::CutlassAllowed),
    ];
    let found = known.iter().filter(|(letter, _)| words.contains(*letter)).map(|(_, feature)| *feature);
    (found.collect(), words.contains('E').then_some(()))
}

/// `alpha/beta/limit`, each empty where it is not set.
fn parameters(words: &str) -> impl Iterator<Item = Feature> {
    let parameters = words.split('/').zip([Feature::Alpha, Feature::Beta, Feature::Limit]);
    parameters
        .filter(|(word, _)| !word.is_empty())
        .map(|(_, feature)| feature)
        .collect::<Vec<_>>()
        .into_iter()
}

fn environment(words: &str) -> BTreeMap<String, String> {
    let pairs = words.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(variable, value)| (variable.to_owned(), value.to_owned())).collect()
}

fn integers(words: Option<&str>) -> Option<[String; 6]> {
    let words: Vec<_> = words?.split(',').map(str::to_owned).collect();
    words.try_into().ok()
}

fn packed(text: &str) -> Vec<Case> {
    let mut lines = text.lines();
    let words: Vec<String> = serde_json::from_str(lines.next().unwrap()).unwrap();
    let lists: Vec<Refusals> = serde_json::from_str(lines.next().unwrap()).unwrap();
    let read = |line: &str| {
        let row: Vec<Value> = serde_json::from_str(line).unwrap();
        let word = |index: usize| row[index].as_u64().map(|at| words[at as usize].as_str());
        let text = |index: usize| word(index).unwrap().to_owned();
        let (mut features, spread) = features(&text(11));
        features.extend(parameters(&text(12)));
        let fields = Fields {
            device: text(1),
            world: text(2),
            family: family(&text(3)),
            scheme: text(4),
            activation: text(5),
            all2all: text(6),
            sizes: text(7).split('/').map(|size| size.parse().unwrap()).collect(),
            routing: text(8),
            router_dtype: text(9),
            token_dtype: text(10),
            features,
            spread,
            name: text(13),
            environment: environment(&text(14)),
            integers: integers(word(15)),
            input: word(16).map(str::to_owned),
            model_type: word(17).map(str::to_owned),
        };
        Case {
            id: row[0].as_str().unwrap().to_owned(),
            family: fields.family.clone(),
            request: fields.request(),
            backend: word(18).map(str::to_owned),
            experts: word(19).map(str::to_owned),
            rejected: lists[row[20].as_u64().unwrap() as usize].clone(),
            config: word(21).map(str::to_owned),
        }
    };
    lines.map(read).collect()
}

/// A case in the form of the data.
fn raw(case: &Value) -> Case {
    let word = |key: &str| case[key].as_str().map(str::to_owned);
    let text = |key: &str| word(key).unwrap_or_else(|| panic!("{key} of {}", case["id"]));
    let is_set = |key: &str| case[key].as_u64().is_some_and(|flag| flag != 0) || case[key] == json!(true);
    let letters = [
        ("bias", "b"),
        ("lora", "l"),
        ("eplb", "e"),
        ("hash", "h"),
        ("decomp", "d"),
        ("allow_cutlass", "c"),
        ("use_ep", "E"),
    ];
    let said: String = letters.iter().filter(|(key, _)| is_set(key)).map(|(_, letter)| *letter).collect();
    let (mut features, spread) = features(&said);
    let numbers = ["alpha", "beta", "limit"].map(|key| case[key].as_f64().map(|n| n.to_string()));
    features.extend(parameters(&numbers.map(Option::unwrap_or_default).join("/")));
    let wna = case["wna"].as_object().map(|wna| {
        let keys = ["format", "group", "sym", "act_order", "may_have_zp", "may_have_bias"];
        keys.map(|key| wna[key].as_str().map_or_else(|| wna[key].to_string(), str::to_owned))
    });
    let pairs = case["env"].as_object().unwrap().iter();
    let size = |key: &str| case[key].as_u64().unwrap() as usize;
    let fields = Fields {
        device: text("dev"),
        world: text("world"),
        family: family(&word("entry").unwrap_or_else(|| text("fam"))),
        scheme: format!("{}|{}", text("wk"), text("ak")),
        activation: text("act"),
        all2all: text("a2a"),
        sizes: ["H", "I_rank", "E", "dp", "ep", "sp"].map(size).to_vec(),
        routing: text("route"),
        router_dtype: text("router_dtype"),
        token_dtype: text("in_dtype"),
        features,
        spread,
        name: text("moe_backend"),
        environment: pairs.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect(),
        integers: wna,
        input: word("override"),
        model_type: word("model_type"),
    };
    Case {
        id: text("id"),
        family: fields.family.clone(),
        request: fields.request(),
        backend: word("backend"),
        experts: word("experts"),
        rejected: serde_json::from_value(case["rej"].clone()).unwrap(),
        config: word("qc"),
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let Ok(folder) = std::env::var("SCALEWRIGHT_SELECTION") else {
        return packed(&fs::read_to_string("tests/selection/cases.jsonl").unwrap());
    };
    let mut files: Vec<_> =
        fs::read_dir(Path::new(&folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    let texts = files.map(|file| fs::read_to_string(file).unwrap()).collect::<Vec<_>>();
    let lines = texts.iter().flat_map(|text| text.lines());
    let values = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    values.filter(|case| case.get("rej").is_some()).map(|case| raw(&case)).collect()
}
