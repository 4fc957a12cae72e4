//! Six contracts that are difficult to write down: the schema holds them, and the model decides what
//! follows.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use scalewright_codegen::diagnostic::Code;
use scalewright_codegen::model::names::{is_taken_type, type_name};
use scalewright_codegen::model::transport::Delivery;
use scalewright_codegen::model::words::{Activation, GemmType};
use scalewright_codegen::model::{Backend, Fit, Kernel, Known, Multiples, Scales, Table};
use scalewright_codegen::{Checked, Source, check, emit};

fn contracts() -> Checked {
    let source = Source::new("contracts.toml", include_str!("contracts.toml"));
    check(&source).unwrap_or_else(|report| panic!("{report}"))
}

fn row<'a>(table: &'a Table, name: &str) -> &'a Backend {
    table.backends.iter().find(|row| row.name == name).expect("the row is in the table")
}

#[test]
fn rows_are_executed_or_external() {
    let Checked { table, report } = contracts();
    for row in &table.backends {
        let kernel = if row.name == "humming_mxfp4" { Kernel::External } else { Kernel::Generated };
        assert_eq!(row.kernel, kernel, "{}", row.name);
    }
    assert!(report.findings().is_empty(), "{report}");
}

/// What keeps a row from being executed is a warning that names it.
#[test]
fn an_open_row_is_described() {
    let text = include_str!("contracts.toml")
        .replace("alpha = \"weight_times_input\"", "")
        .replace("global = { convention = \"divisor\", scope = \"max_over_experts\" }", "");
    let Checked { table, report } =
        check(&Source::new("contracts.toml", &text)).unwrap_or_else(|report| panic!("{report}"));
    let obstacle = "it leaves open the second-level scales of its tokens (`global`), the epilogue factor of \
                    its GEMMs (`alpha`)"
        .to_owned();
    assert_eq!(row(&table, "flashinfer_cutedsl_nvfp4").kernel, Kernel::Described(obstacle));
    let found: Vec<_> = report.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(found, [Code::W0701], "{report}");
}

#[test]
fn deepep_v2_delivers_as_each_row_reads() {
    let Checked { table, .. } = contracts();
    let transport = &table.transports[0];
    let delivery = |name: &str| match transport.delivery(row(&table, name)).0 {
        Delivery::Local => "local".to_owned(),
        Delivery::Direct(None) => "as it is".to_owned(),
        Delivery::Direct(Some(wire)) => format!("as it is, in {}", wire.name),
        Delivery::Convert { wire, prepared } => format!("from {} to {}", wire.name, prepared.name),
        Delivery::QuantizeAfter => "quantised after".to_owned(),
        Delivery::Refused(reason) => reason,
    };
    // Equal digits and another fit are another layout.
    assert_eq!(delivery("flashinfer_trtllm_mxfp4_mxfp8"), "from packed_ue8m0_rows to linear");
    assert_eq!(delivery("deepgemm_fp8_block_sm90"), "as it is, in linear");
    assert_eq!(delivery("deepgemm_fp8_block_sm100"), "as it is, in linear");
    assert_eq!(delivery("flashinfer_cutedsl_nvfp4"), "quantised after");
    assert_eq!(delivery("marlin_mxfp4"), "as it is");
    assert_eq!(delivery("humming_mxfp4"), "as it is");
}

#[test]
fn the_model_says_what_the_rows_say() {
    let Checked { table, .. } = contracts();
    let trtllm = row(&table, "flashinfer_trtllm_mxfp4_mxfp8");
    assert!(
        matches!(&trtllm.gemm2, Some(input) if input.layout == Known::Vendor("8x4 or 128x4 by tile".to_owned()))
    );
    assert_eq!(trtllm.experts.classes[0].requires.all2all.as_deref(), Some(&[][..]), "empty allows none");
    assert_eq!(trtllm.experts.classes[1].requires.all2all, None, "absent restricts nothing");

    let (sm90, sm100) = (row(&table, "deepgemm_fp8_block_sm90"), row(&table, "deepgemm_fp8_block_sm100"));
    assert_eq!(sm90.vllm.as_ref().unwrap().backend, sm100.vllm.as_ref().unwrap().backend);
    assert_eq!(sm100.weight.requantize_from.as_ref().unwrap().name, "fp8_128x128");
    assert_eq!(sm100.weight.scale.as_ref().unwrap().repeat_rows, 128);
    assert_eq!(sm100.gemm1.prepared_format.as_ref().unwrap().name, "fp8_1x128");
    let Known::Is(Scales::At { prepared, kernel }) = &sm90.gemm1.layout else { panic!("a layout") };
    assert_eq!((prepared.name.as_str(), kernel.name.as_str()), ("linear", "mn_major_f32"));
    assert_eq!(kernel.fit, Fit::Pad(Multiples { row: 4, col: 1 }));

    let cutedsl = row(&table, "flashinfer_cutedsl_nvfp4");
    assert!(cutedsl.weight.gate_up.iter().all(|(_, order)| order.multiple == 64));

    let marlin = row(&table, "marlin_mxfp4");
    let order =
        |function| marlin.weight.gate_up.iter().find(|(one, _)| *one == function).unwrap().1.name.as_str();
    assert_eq!((order(Activation::Silu), order(Activation::Swigluoai)), ("gate_up", "gate_up_interleaved"));
    assert_eq!(marlin.gemm1.layout, Known::Is(Scales::Unscaled));

    let humming = row(&table, "humming_mxfp4");
    let types: Vec<_> = humming.experts.classes.iter().map(|class| class.requires.gemm_type).collect();
    assert_eq!(types, [Some(GemmType::Indexed), Some(GemmType::Grouped)]);
}

#[test]
fn every_row_is_emitted() {
    let Checked { table, .. } = contracts();
    let files = emit::files(&table);
    for row in &table.backends {
        let text = &files[&format!("backends/{}.rs", row.name)];
        assert_eq!(text.contains("mod tests"), row.kernel == Kernel::Generated, "{}", row.name);
    }
    let kernels: Vec<_> = files.keys().filter_map(|path| path.strip_prefix("cuda/")).collect();
    assert!(kernels.contains(&"relayout_packed_ue8m0_rows_linear.cu"), "{kernels:?}");
    assert!(kernels.contains(&"quantize_mxfp8_packed_ue8m0_rows.cu"), "{kernels:?}");
}

/// The types that a file calls by their bare names.
fn bare_types(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let mut last = String::new();
    for token in tokens {
        let word = match &token {
            // What these are given are functions; what attributes are given, macros.
            TokenTree::Group(_) if ["honours!", "gate_up!", "#"].contains(&last.as_str()) => String::new(),
            TokenTree::Group(group) => {
                bare_types(group.stream(), names);
                String::new()
            }
            TokenTree::Punct(punct) if punct.as_char() == '!' => format!("{last}!"),
            token => token.to_string(),
        };
        if let (TokenTree::Ident(_), true) = (&token, last != ":")
            && word.starts_with(|first: char| first.is_ascii_uppercase())
            && word.contains(|letter: char| letter.is_ascii_lowercase())
        {
            names.insert(word.clone());
        }
        last = word;
    }
}

/// An entry called as a type that its own module uses would not compile.
#[test]
fn no_entry_can_take_the_name_of_a_type_in_use() {
    let files = emit::files(&contracts().table);
    let with_entries = |path: &&String| {
        ["layouts.rs", "formats.rs"].contains(&path.as_str())
            || path.starts_with("backends/") && !path.ends_with("mod.rs")
    };
    let mut types = BTreeSet::new();
    for path in files.keys().filter(with_entries) {
        let file = syn::parse_file(&files[path]).unwrap();
        let own: Vec<_> = file
            .items
            .iter()
            .filter_map(|item| match item {
                syn::Item::Enum(item) => Some(item.ident.to_string()),
                syn::Item::Struct(item) => Some(item.ident.to_string()),
                _ => None,
            })
            .collect();
        let mut bare = BTreeSet::new();
        bare_types(file.to_token_stream(), &mut bare);
        // Values, and the one type that no name can be.
        let others = ["None", "Some", "Self"];
        types.extend(bare.into_iter().filter(|name| !own.contains(name) && !others.contains(&name.as_str())));
    }
    assert!(types.len() > 20, "{types:?}");
    for name in types {
        let mut entry = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && !entry.is_empty() {
                entry.push('_');
            }
            entry.push(c.to_ascii_lowercase());
        }
        assert_eq!(type_name(&entry), name);
        assert!(is_taken_type(&entry), "an entry `{entry}` would be a second `{name}`");
    }
}
