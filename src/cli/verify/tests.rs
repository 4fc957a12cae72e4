use clap::ValueEnum;
use scalewright::conformance::TOLERANCE;

use super::family::{Family, named};
use super::*;

fn layer_of(family: Family) -> Layer {
    let activation = family.activation(None);
    Layer::made_up(family, family.small(), None, Some(5), activation).ok().unwrap()
}

/// Every row takes a layer of every family, and is right on what it is given; a misread layout shows.
#[test]
fn every_row_takes_every_family() {
    for family in Family::value_variants() {
        let layer = layer_of(*family);
        assert!(layer.shared.as_ref().is_none_or(Agreement::holds), "{}", family.name());
        for id in rows(&[]).ok().unwrap() {
            let row = run_row(id.contract(), &layer).unwrap_or_else(|error| panic!("{id}: {error}"));
            let Measure { error_quantised: error, misread, .. } = row.measure;
            assert!(error <= TOLERANCE, "{id} is off by {error} on {}", family.name());
            let hides = matches!(misread, Misread::OffBy(wrong) if wrong < 10.0 * error);
            assert!(!hides, "{id} on {}: {misread:?}", family.name());
        }
    }
}

/// What had to change is said: a row that takes the layer as it is has nothing to say.
#[test]
fn changes_are_said() {
    let changes = |family, row: &str| {
        let id: BackendId = row.parse().unwrap();
        run_row(id.contract(), &layer_of(family)).unwrap().changes
    };
    assert_eq!(changes(Family::Qwen3, "triton_unquantized"), Vec::<String>::new());
    assert_eq!(changes(Family::Deepseek, "deepgemm_fp8_block_sm90"), Vec::<String>::new());
    let said = changes(Family::GptOss, "deepgemm_fp8_block_sm90");
    assert!(
        said[0].contains("swigluoai") && said[1].contains("biases") && said[2].contains("mxfp4"),
        "{said:?}"
    );
}

#[test]
fn shapes_have_names() {
    let is_deepseek =
        |name| named(name).is_ok_and(|(family, shape)| family == Family::Deepseek && shape.experts == 256);
    assert!(is_deepseek("deepseek-v3") && !is_deepseek("mixtral-8x7b"));
    assert!(named("deepseek").is_err());
}
