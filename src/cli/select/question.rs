//! What is asked: by flags, by a line of a batch or by the configuration of a model.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::LazyLock;

use scalewright::UnknownWord;
use scalewright::backend::Activation;
use scalewright::generated::oracle::ORACLES;
use scalewright::generated::settings::SETTINGS;
use scalewright::oracle::{
    All2all, Checkpoint, Device, Engine, Feature, GemmType, Oracle, Parallel, Request, RoutingMethod, Switch,
    TokenType,
};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// A question. What is absent has its default; docs/select.md is the long form of this list.
#[derive(clap::Args, Deserialize, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Question {
    /// The family of weights, `[oracle.x]`. --model knows it.
    #[arg(long, value_name = "F")]
    pub(super) oracle: Option<String>,
    /// The device, as sm_100 or gfx950.
    #[arg(long, value_name = "D")]
    pub(super) device: Option<Device>,
    /// Whose order is followed: vllm or native.
    #[arg(long, value_name = "E")]
    pub(super) engine: Option<Engine>,
    /// The activation function between the GEMMs.
    #[arg(long, value_name = "A")]
    pub(super) activation: Option<Activation>,
    /// The scheme of the checkpoint, `[scheme.x]`.
    #[arg(long, value_name = "S")]
    pub(super) scheme: Option<String>,
    /// The hidden size.
    #[arg(long, value_name = "N")]
    pub(super) hidden: Option<NonZeroUsize>,
    /// The intermediate size of one rank.
    #[arg(long, value_name = "N")]
    pub(super) intermediate: Option<NonZeroUsize>,
    /// The experts of the model.
    #[arg(long, value_name = "N")]
    pub(super) experts: Option<NonZeroUsize>,
    /// The experts of a token, of which there cannot be more than experts.
    #[arg(long, value_name = "N")]
    pub(super) top_k: Option<NonZeroUsize>,
    /// How the router picks experts.
    #[arg(long, value_name = "R")]
    pub(super) routing: Option<RoutingMethod>,
    /// The type of the router's logits.
    #[arg(long, value_name = "T")]
    pub(super) router_dtype: Option<TokenType>,
    /// The type of the tokens.
    #[arg(long, value_name = "T")]
    pub(super) token_dtype: Option<TokenType>,
    /// Expert-parallel ranks.
    #[arg(long = "ep", value_name = "N")]
    pub(super) expert_parallel: Option<NonZeroUsize>,
    /// Data-parallel ranks.
    #[arg(long = "dp", value_name = "N")]
    pub(super) data_parallel: Option<NonZeroUsize>,
    /// Sequence-parallel ranks.
    #[arg(long = "sp", value_name = "N")]
    pub(super) sequence_parallel: Option<NonZeroUsize>,
    /// The all-to-all that moves tokens between ranks.
    #[arg(long = "transport", value_name = "T")]
    pub(super) all2all: Option<All2all>,
    /// Something that the layer has or its caller allows, as bias or lora; may be repeated.
    #[arg(long = "feature", value_name = "NAME")]
    pub(super) features: Vec<Feature>,
    /// How the checkpoint lays integer weights out.
    #[arg(long, value_name = "C")]
    pub(super) checkpoint: Option<Checkpoint>,
    /// Elements along K that share a scale of integer weights; 0 is a whole channel.
    #[arg(long, value_name = "N")]
    pub(super) group: Option<usize>,
    /// The model's type, as its configuration spells it.
    #[arg(long, value_name = "NAME")]
    pub(super) model_type: Option<String>,
    /// The backend asked for by name; nothing else is tried then.
    #[arg(long = "moe-backend", value_name = "NAME")]
    pub(super) backend: Option<String>,
    /// A setting of the engine, NAME=on or NAME=off; may be repeated.
    #[arg(long = "setting", value_name = "NAME=on|off", value_parser = setting)]
    #[serde(deserialize_with = "settings")]
    pub(super) settings: Vec<(String, Switch)>,
    /// A library that is not installed; may be repeated.
    #[arg(long = "missing-library", value_name = "NAME")]
    pub(super) missing_libraries: Vec<String>,
    /// Humming's way of reading routed tokens.
    #[arg(long, value_name = "G")]
    pub(super) gemm_type: Option<GemmType>,
}

/// Names that the table is asked by.
struct Names {
    schemes: BTreeSet<&'static str>,
    libraries: BTreeSet<&'static str>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    schemes: ORACLES.iter().flat_map(|oracle| oracle.schemes()).collect(),
    libraries: ORACLES.iter().flat_map(|oracle| oracle.libraries()).collect(),
});

const HIDDEN: usize = 4096;

impl Question {
    /// The oracle to ask and what to ask it.
    ///
    /// # Errors
    /// What is missing, unknown or contradicts itself.
    pub(super) fn request(self) -> Result<(&'static Oracle, Request), String> {
        let families = || ORACLES.iter().map(|oracle| oracle.family);
        let missing = |what, known: Vec<_>| format!("no {what} is given; known are {}", known.join(", "));
        let family = self.oracle.as_deref().ok_or_else(|| missing("oracle", families().collect()))?;
        let found = ORACLES.iter().find(|oracle| oracle.family == family);
        let oracle = found.ok_or_else(|| unknown("oracle", family, families()))?;
        let devices = || Device::ALL.iter().map(|device| device.name()).collect();
        let device = self.device.ok_or_else(|| missing("device", devices()))?;
        self.check_names()?;
        let parallel = self.parallel()?;
        let default =
            Request::new(device, self.activation.unwrap_or(Activation::Silu), size(self.hidden, HIDDEN));
        let request = Request {
            engine: self.engine.unwrap_or(default.engine),
            missing_libraries: self.missing_libraries,
            scheme: self.scheme,
            intermediate: size(self.intermediate, default.intermediate),
            experts: size(self.experts, default.experts),
            routing: self.routing.unwrap_or(default.routing),
            router_dtype: self.router_dtype.unwrap_or(default.router_dtype),
            token_dtype: self.token_dtype.unwrap_or(default.token_dtype),
            parallel,
            features: self.features,
            checkpoint: self.checkpoint,
            group: self.group,
            model_type: self.model_type,
            backend: self.backend,
            settings: self.settings,
            gemm_type: self.gemm_type,
            ..default
        };
        match self.top_k {
            Some(top_k) if top_k.get() > request.experts => {
                Err(format!("a token cannot have {top_k} of {} experts (top_k, experts)", request.experts))
            }
            _ => Ok((oracle, request)),
        }
    }

    /// Refuses names that the table does not have, and settings that are set twice.
    fn check_names(&self) -> Result<(), String> {
        if let Some(scheme) = self.scheme.as_deref().filter(|name| !NAMES.schemes.contains(name)) {
            return Err(unknown("scheme", scheme, NAMES.schemes.iter().copied()));
        }
        let libraries = &NAMES.libraries;
        if let Some(library) = self.missing_libraries.iter().find(|name| !libraries.contains(name.as_str())) {
            return Err(unknown("library", library, libraries.iter().copied()));
        }
        for (at, (name, _)) in self.settings.iter().enumerate() {
            if !SETTINGS.iter().any(|setting| setting.name == name) {
                return Err(unknown("setting", name, SETTINGS.iter().map(|setting| setting.name)));
            }
            if self.settings[..at].iter().any(|(before, _)| before == name) {
                return Err(format!("the setting `{name}` is set twice"));
            }
        }
        Ok(())
    }

    /// An all-to-all without a word on ranks spreads the data over those that hold the experts.
    fn parallel(&self) -> Result<Parallel, String> {
        let expert_parallel = self.expert_parallel.map(NonZeroUsize::get);
        let sequence_parallel = size(self.sequence_parallel, 1);
        let spread = expert_parallel.filter(|_| self.all2all.is_some() && sequence_parallel == 1);
        let data_parallel = size(self.data_parallel, spread.unwrap_or(1));
        let moves = expert_parallel.is_some() && (data_parallel > 1 || sequence_parallel > 1);
        match self.all2all {
            Some(all2all) if !moves => Err(format!(
                "{all2all} moves tokens between ranks, and here each has its own; say how many share the experts \
                 and the data (--ep, --dp; expert_parallel, data_parallel), or leave the all-to-all away"
            )),
            all2all => Ok(Parallel { data_parallel, expert_parallel, sequence_parallel, all2all }),
        }
    }
}

fn size(given: Option<NonZeroUsize>, default: usize) -> usize {
    given.map_or(default, NonZeroUsize::get)
}

fn unknown(what: &str, word: &str, known: impl Iterator<Item = &'static str>) -> String {
    let error = UnknownWord { word: word.to_owned(), known: known.collect() };
    format!("{what} {error}")
}

/// `NAME=on` or `NAME=off`.
fn setting(text: &str) -> Result<(String, Switch), String> {
    let (name, value) = text.split_once('=').ok_or("is not of the form NAME=on or NAME=off")?;
    let value = value.parse().map_err(|error: UnknownWord| error.to_string())?;
    Ok((name.to_owned(), value))
}

/// An object of names and switches. Pairs are kept as they come: what is set twice is for the question to
/// refuse.
fn settings<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<(String, Switch)>, D::Error> {
    struct Pairs;

    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, Switch)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of settings, each `on` or `off`")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            std::iter::from_fn(|| map.next_entry().transpose()).collect()
        }
    }
    input.deserialize_map(Pairs)
}
