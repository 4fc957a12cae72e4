//! What each row says of its numbers against the quant config that vLLM builds for it: the fields of
//! its `FusedMoEQuantConfig`, for every case that has one.

#[path = "selection/cases.rs"]
#[allow(dead_code, reason = "the other test reads all of it")]
mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cases::{Case, cases};
use scalewright::backend::{Activation, Contract, InputContract, Known, Parameter, QuantizeAt};
use scalewright::format::{BlockScale, ElementType, FormatSpec, Reach};
use scalewright::generated::oracle::ORACLES;
use scalewright::oracle::{Feature, evaluate};

/// A config of `configs.jsonl`.
#[derive(serde::Deserialize)]
struct Config {
    key: String,
    /// The parameters that the layer set, and those that the config kept.
    given: BTreeSet<String>,
    kept: BTreeSet<String>,
    input: Described,
    weight: Described,
    per_token: bool,
    swizzled: bool,
}

/// A type, and what shares a scale: rows and columns, -1 for all.
type Described = (Option<String>, Option<[i64; 2]>);

/// `format` as vLLM's config describes it. Of MX and NV formats the type says the block.
fn described(format: &FormatSpec) -> Described {
    let dtype = match (format.element, format.global, format.block.map(|block| block.cols)) {
        (ElementType::E2m1, Some(_), _) => "nvfp4",
        (ElementType::E2m1, None, _) => "mxfp4",
        (ElementType::E4m3, _, Some(Reach::Of(32))) => "mxfp8",
        (ElementType::E4m3, ..) => "float8_e4m3fn",
        (ElementType::Int8, ..) => "int8",
        (ElementType::Int4 | ElementType::Uint4, ..) => "int4",
        _ => return (None, None),
    };
    let shape = match (dtype, format.block) {
        ("float8_e4m3fn" | "int8", Some(block)) => Some([reach(block.rows), reach(block.cols)]),
        _ => None,
    };
    (Some(dtype.to_owned()), shape)
}

fn reach(reach: Reach) -> i64 {
    match reach {
        Reach::Of(count) => count as i64,
        Reach::Whole => -1,
    }
}

impl Config {
    /// The input in this file's words: block FP8 is called by the block of the weights, MX blocks by
    /// their type alone, a tensor's FP8 also `fp8`.
    fn input(&self) -> Described {
        match &self.input {
            (Some(dtype), _) if dtype == "fp8" => (Some("float8_e4m3fn".to_owned()), Some([-1, -1])),
            (Some(dtype), Some([rows, cols])) if dtype == "float8_e4m3fn" && *cols > 0 => {
                (Some(dtype.clone()), Some([(*rows).min(1), *cols]))
            }
            (Some(dtype), _) if ["mxfp8", "mxfp4", "nvfp4"].contains(&dtype.as_str()) => {
                (Some(dtype.clone()), None)
            }
            other => other.clone(),
        }
    }

    /// What differs between the config and `contract`, in words.
    fn differences(&self, contract: &Contract, activation: Activation) -> Vec<String> {
        let input = &contract.gemm1_input;
        let mut found = Vec::new();
        let mut differ = |is: bool, what: String| {
            if is {
                found.push(what);
            }
        };
        let wanted = self.input();
        let says: Vec<_> = input.formats.iter().map(|format| described(format)).collect();
        differ(
            !says.contains(&wanted) && !self.leaves_it_to_the_kernel(input),
            format!("input {says:?}, {wanted:?}"),
        );
        let per_token = is_per_token(input) && !self.leaves_it_to_the_kernel(input);
        differ(self.per_token != per_token, format!("per token {}", self.per_token));
        if let (Known::Is(layout), Some("mxfp8" | "nvfp4")) = (input.layout, wanted.0.as_deref()) {
            let prepared = layout.prepared.name;
            differ(
                self.swizzled != (prepared == "swizzled_128x4"),
                format!("{prepared}, swizzled {}", self.swizzled),
            );
        }
        let weight = described(contract.weight.format);
        let same_type =
            weight.0 == self.weight.0 || is_mxfp8(contract.weight.format) && self.weight.1 == Some([1, 32]);
        let block = self.weight.1.filter(|[rows, _]| *rows > 1);
        differ(
            !same_type && self.weight.0.is_some() || block.is_some() && block != weight.1,
            format!("weight {weight:?}, {:?}", self.weight),
        );
        let honours = contract.activations.iter().find(|honoured| honoured.function == activation);
        if let Some(honoured) = honours {
            let words = honoured.parameters.iter().map(|parameter| parameter.name().to_owned());
            let honoured: BTreeSet<String> = words.filter(|word| self.given.contains(word)).collect();
            // The parameters of these functions are what the three fields are for.
            let its_own = matches!(activation, Activation::Swigluoai | Activation::SwigluoaiUninterleave);
            let same = if its_own { honoured == self.kept } else { honoured.is_subset(&self.kept) };
            differ(!same, format!("honours {honoured:?} of {activation}, kept {:?}", self.kept));
        }
        found
    }

    /// Whether the config says nothing of what the kernel does inside.
    fn leaves_it_to_the_kernel(&self, input: &InputContract) -> bool {
        let inside = input.quantize == Some(QuantizeAt::Expert) && matches!(input.layout, Known::Vendor(_));
        self.input.0.is_none() && inside
    }
}

fn is_mxfp8(format: &FormatSpec) -> bool {
    described(format).0.as_deref() == Some("mxfp8")
}

/// vLLM's flag: one scale a token.
fn is_per_token(input: &InputContract) -> bool {
    let row = |block: BlockScale| (block.rows, block.cols) == (Reach::Of(1), Reach::Whole);
    input.formats.iter().filter_map(|format| format.block).any(row)
}

/// The parameters that the layer of `case` sets.
fn given(case: &Case) -> BTreeSet<String> {
    let known = [
        (Feature::Alpha, Parameter::Alpha),
        (Feature::Beta, Parameter::Beta),
        (Feature::Limit, Parameter::Limit),
    ];
    let set = known.iter().filter(|(feature, _)| case.request.features.contains(feature));
    set.map(|(_, parameter)| parameter.name().to_owned()).collect()
}

#[test]
#[allow(clippy::print_stdout, reason = "the figure is what one runs it for")]
fn rows_say_what_the_quant_config_says() {
    let text = fs::read_to_string("tests/selection/configs.jsonl").unwrap();
    let configs = text.lines().map(|line| serde_json::from_str::<Config>(line).unwrap());
    let mut by_key: BTreeMap<String, Vec<Config>> = BTreeMap::new();
    configs.for_each(|config| by_key.entry(config.key.clone()).or_default().push(config));

    let (mut compared, mut differing) = (0, BTreeSet::new());
    for case in &cases() {
        let Some(key) = &case.config else { continue };
        let oracle = ORACLES.iter().find(|oracle| oracle.family == case.family).unwrap();
        let Ok(selection) = evaluate(oracle, &case.request) else { continue };
        if Some(selection.backend) != case.backend.as_deref() {
            continue;
        }
        compared += 1;
        let (contract, given) = (selection.contract, given(case));
        // The arguments that a key leaves open are those of the layer, where the data has them.
        let exact: Vec<_> = by_key[key].iter().filter(|config| config.given == given).collect();
        let open: Vec<_> = by_key[key].iter().collect();
        let configs = if exact.is_empty() { open } else { exact };
        let all: Vec<_> =
            configs.iter().map(|config| config.differences(contract, case.request.activation)).collect();
        if all.iter().all(|differences| !differences.is_empty()) {
            differing.insert(format!("{} ({key}): {}", contract.name, all[0].join("; ")));
        }
    }
    println!("{compared} cases with a quant config");
    assert!(compared > 12_000, "{compared}");
    assert_eq!(differing, BTreeSet::new());
}
