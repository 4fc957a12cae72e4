//! CUDA text: complete, self-contained, and every template rendered.

use std::path::Path;

use scalewright_codegen::emit::MARKER;
use scalewright_codegen::emit::cuda::{Kernel, kernels};
use scalewright_codegen::{Source, check};

const CONTRACTS: &str = include_str!("contracts.toml");

fn kernels_of(name: &str, text: &str) -> Vec<Kernel> {
    let checked = check(&Source::new(name, text)).unwrap_or_else(|report| panic!("{report}"));
    kernels(&checked.table)
}

/// The test models: the contracts, the same with each way to choose scales and with FP4 tokens, and
/// the project's own table where it is there.
fn models() -> Vec<(String, String)> {
    let mut models: Vec<_> = ["rceil", "floor", "even", "ceil"]
        .map(|rule| {
            (
                format!("contracts, {rule}"),
                CONTRACTS.replace("rounding = \"rceil\"", &format!("rounding = \"{rule}\"")),
            )
        })
        .into();
    let fp4 = CONTRACTS.replace("format = [\"mxfp8\"]", "format = [\"mxfp4\"]");
    models.push(("contracts, mxfp4".to_owned(), fp4));
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends.toml");
    models.extend(std::fs::read_to_string(own).ok().map(|text| ("backends.toml".to_owned(), text)));
    models
}

#[test]
fn every_kernel_is_complete() {
    for (model, text) in models() {
        let kernels = kernels_of(&model, &text);
        for verb in ["quantize_", "relayout_"] {
            assert!(kernels.iter().any(|kernel| kernel.name.starts_with(verb)), "{model} renders no {verb}");
        }
        for Kernel { name, text } in &kernels {
            for left in ["{{", "}}", "{%", "%}", "{#", "#include", "\r", "\t"] {
                assert!(!text.contains(left), "{model}: `{left}` is left in {name}\n{text}");
            }
            assert!(text.starts_with(MARKER) && text.ends_with('\n'), "{model}: {name}");
            assert!(
                text.contains(&format!("extern \"C\" __global__ void {name}_")),
                "{model}: {name} has no entry"
            );
            for (open, close) in [('{', '}'), ('(', ')'), ('[', ']')] {
                let count = |one| text.chars().filter(|c| *c == one).count();
                assert_eq!(count(open), count(close), "{model}: {name}: {open}{close}");
            }
        }
        let mut names: Vec<_> = kernels.iter().map(|kernel| &kernel.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), kernels.len(), "{model}: two kernels of one name");
    }
}

#[test]
fn every_template_is_rendered() {
    let all: Vec<_> = models().iter().flat_map(|(model, text)| kernels_of(model, text)).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/device");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let body = std::fs::read_to_string(&path).unwrap();
        let used = all.iter().any(|kernel| kernel.text.contains(body.trim()));
        assert!(used, "no test model renders {}", path.display());
    }
}
