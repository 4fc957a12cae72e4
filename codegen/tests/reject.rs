//! Bad tables and what is said about them. `UPDATE_EXPECT=1 cargo test` rewrites the reports.

use std::collections::BTreeSet;
use std::path::Path;

use expect_test::{expect, expect_file};
use scalewright_codegen::diagnostic::{Code, Severity};
use scalewright_codegen::{Report, Source, check};

const REJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reject");

/// The findings of a table, whether or not they stop it.
fn report(name: &str, text: &str) -> Report {
    match check(&Source::new(name, text)) {
        Ok(checked) => checked.report,
        Err(report) => report,
    }
}

fn codes(text: &str) -> Vec<&'static str> {
    report("table.toml", text).findings().iter().map(|finding| finding.code.name()).collect()
}

#[test]
fn every_code_has_a_table_with_just_that_finding() {
    for code in Code::ALL {
        let name = code.name();
        let source = Source::new(format!("{name}.toml"), code.example());
        let (report, checks) = match check(&source) {
            Ok(checked) => (checked.report, true),
            Err(report) => (report, false),
        };
        let found: BTreeSet<_> = report.findings().iter().map(|finding| finding.code).collect();
        assert_eq!(found, BTreeSet::from([*code]), "\n{report}");
        assert_eq!(checks, code.severity() == Severity::Warning, "\n{report}");
        let path = Path::new(REJECT).join(format!("{name}.stderr"));
        expect_file![path].assert_eq(&format!("{report}\n"));
    }
}

#[test]
fn no_file_is_without_a_code() {
    for entry in std::fs::read_dir(REJECT).unwrap() {
        let path = entry.unwrap().path();
        let (stem, extension) = (path.file_stem().unwrap(), path.extension().unwrap_or_default());
        let known = Code::ALL.iter().any(|code| stem == code.name());
        assert!(known && (extension == "toml" || extension == "stderr"), "{} is no case", path.display());
    }
}

/// What a reader of a report is owed: a place in the table, and what to do about it, which a parser's
/// own message alone says in its own way.
#[test]
fn every_finding_says_where_and_what_to_do() {
    for code in Code::ALL.iter().filter(|code| **code != Code::E0101) {
        for finding in report("table.toml", code.example()).findings() {
            assert!(!finding.primary.span.is_empty(), "{}: no place", code.name());
            let says = finding.help.is_some() || !finding.primary.text.is_empty();
            assert!(says, "{}: nothing to do", code.name());
        }
    }
}

#[test]
fn codes_are_parsed_and_explained() {
    assert_eq!(Code::parse("E0101"), Some(Code::E0101));
    assert_eq!(Code::parse("w0702"), Some(Code::W0702));
    assert_eq!(Code::parse("E9999"), None);
    assert_eq!(Code::parse(""), None);
    for code in Code::ALL {
        assert_eq!(Code::parse(code.name()), Some(*code));
        assert!(!code.title().is_empty() && code.explanation().ends_with('.'), "{}", code.name());
    }
}

const MANY: &str = r#"
[layout.linear]
digits = ["row", "col"]
scale = ["e8m0", "e8mo"]

[layout.torn]
digits = ["row/8", "col", "row%4"]
scale = ["e8m0"]

[format.mxfp8]
element = "e4m3"
scale.block = { dtype = "e8m0", rows = 1, cols = 32 }

[backend.first]
kernel = "generated"
swizzled = true
[backend.first.weight]
format = "mxfp9"
payload = "row_major"
scale = { layout = "linear", encoding = "as_stored", fill = 0xFF, is_swizzled = true }
[backend.first.gemm1_input]
format = ["mxfp8"]
layout = { prepared = "linear", kernel = "liner" }

[backend.second]
kernel = "generatd"
[backend.second.weight]
format = "mxfp8"
payload = "row_major"
[backend.second.gemm1_input]
format = ["mxfp8"]
rounding = "round"
multiple = { hidden = 0 }

[transport.wire]
grouping = "tokens"
scope = "global"

[oracle.mxfp8.vllm]
order = ["first", "frist"]
"#;

#[test]
fn every_finding_is_reported_at_once() {
    let report = report("table.toml", MANY);
    let found: Vec<_> = report
        .findings()
        .iter()
        .map(|finding| {
            let line = MANY[..finding.primary.span.start].matches('\n').count() + 1;
            format!("{line:>2} {} {}", finding.code.name(), finding.message)
        })
        .collect();
    expect![[r#"
         1 E0103 the key `schema` is missing
         4 E0105 `e8mo` is not a scale type
         7 E0202 `row/8` does not go on where `row%4` ends
        16 E0102 the key `swizzled` is not known here
        18 E0301 there is no format `mxfp9`
        19 E0301 there is no payload `row_major`
        20 E0102 the key `is_swizzled` is not known here
        22 E0305 `mxfp8` has power-of-two scales, and the row does not say how they are chosen
        22 E0307 `mxfp8` is quantised, and the row does not say by whom
        23 E0301 there is no layout `liner`
        26 E0105 `generatd` is not a kind of kernel
        32 E0105 `round` is not a rounding rule
        33 E0106 `0` is out of range
        37 E0105 `global` is not a scope of a transport
        40 E0301 there is no backend `frist`
    "#]]
    .assert_eq(&(found.join("\n") + "\n"));
    // Nothing is said to be missing that is merely broken.
    assert!(!report.to_string().contains("there is no layout `linear`"), "{report}");
}

#[test]
fn the_nearest_word_is_suggested() {
    let help = |text: &str| report("table.toml", text).findings()[0].help.clone().unwrap_or_default();
    let near = help("schema = 1\nlayuot = {}\n");
    assert!(near.starts_with("did you mean `layout`?"), "{near}");
    let near = help("schema = 1\n[order.x]\ndigits = [\"half\", \"row\"]\nfirst = \"gates\"\n");
    assert_eq!(near, "did you mean `gate`? known: `gate`, `up`");
    // Nothing is near: only what is known.
    let far = help("schema = 1\n[order.x]\ndigits = [\"half\", \"row\"]\nfirst = \"zzz\"\n");
    assert_eq!(far, "known: `gate`, `up`");
}

/// Findings that have a code of their own in `reject/` in another form.
#[test]
fn other_forms_of_the_same_findings() {
    let layout = |digits: &str, rest: &str| {
        format!("schema = 1\n[layout.x]\ndigits = [{digits}]\nscale = [\"f32\"]\n{rest}\n")
    };
    let order = |text: &str| format!("schema = 1\n[order.x]\n{text}\n");
    for (table, code) in [
        (layout(r#""row", "col%1""#, ""), "E0201"),
        (layout(r#""row", "col/1048577""#, ""), "E0201"),
        (layout(r#""row", "col", "half""#, ""), "E0204"),
        (layout(r#""row", "col/2""#, ""), "E0202"),
        (layout(r#""row", "row", "col""#, ""), "E0202"),
        (layout(r#""row", "col""#, "divides = { row = 0x1000001 }"), "E0106"),
        (layout(r#""row", "col""#, "pad = { row = -1 }"), "E0106"),
        (layout(r#""row", "col""#, "pad = { row = 99999999999999999999 }"), "E0106"),
        (layout(r#""row", "col""#, "pad = { row = 1.0 }"), "E0104"),
        // Dividing by 1 refuses nothing, so it is the same layout.
        (
            layout(r#""row", "col""#, "") + "[layout.y]\ndigits = [\"row\", \"col\"]\nscale = [\"bf16\"]\ndivides = { row = 1 }\n",
            "E0207",
        ),
        (order("digits = [\"half%2\", \"row\"]\nfirst = \"up\""), "E0202"),
        (order("digits = [\"row\"]\nfirst = \"up\""), "E0204"),
        (order("digits = [\"row\"]\ndivides = { col = 4 }"), "E0102"),
        ("schema = 1\n[format.x]\nelement = \"bf16\"\nscale.block = { dtype = \"f32\", rows = 1, cols = 2 }\n".to_owned(), "E0303"),
        ("schema = 1\n[format.x]\nelement = \"e2m1\"\nscale.block = { dtype = \"f32\", rows = 1, cols = 3 }\n".to_owned(), "E0303"),
        ("schema = 1\n[transport.x]\ngrouping = \"tokens\"\npayload = []\n".to_owned(), "E0504"),
        ("".to_owned(), "E0103"),
        ("schema = \"1\"".to_owned(), "E0104"),
    ] {
        assert_eq!(codes(&table), [code], "\n{table}\n{}", report("table.toml", &table));
    }
}

/// What a parser says after its first error follows from it.
#[test]
fn one_open_bracket_is_one_finding() {
    assert_eq!(
        codes("schema = 1\n[layout.x]\ndigits = [\"row\", \"col\"\nscale = [\"f32\"]\npad = { row = 1 }\n"),
        ["E0101"]
    );
}

/// A rule that cannot be read takes no row out of its order.
#[test]
fn rows_of_an_unreadable_order_are_not_also_unreachable() {
    let text = format!("{}[[oracle.mxfp4.vllm.reorder]]\nwhen = {{}}\ndrop = 1\n", Code::W0702.example());
    assert_eq!(codes(&text), ["E0104"]);
}

#[test]
fn weights_that_cannot_be_prepared_are_refused() {
    let base = Code::E0406.example().replace("gated = 96", "gated = 128");
    let nan = base
        .replace("element = \"e2m1\"", "element = \"e5m2\"")
        .replace("plain = 128 }, fill = 0", "plain = 128 }, fill = 0xFF");
    assert_eq!(codes(&nan), ["E0405"]);
    let torn = base.replace("scale = [\"e8m0\"]", "scale = [\"e8m0\"]\ndivides = { col = 8 }");
    assert_eq!(codes(&torn), ["E0406"; 2], "{}", report("table.toml", &torn));
}

#[test]
fn a_device_is_no_group() {
    let text = Code::W0702.example().replace(
        "honours = { silu = [] }",
        "honours = { silu = [] }\n[[backend.example.experts]]\nclass = \"x\"\nrequires = { devices = \"sm_90\" }",
    );
    let report = report("table.toml", &text);
    assert!(report.to_string().contains("write `[\"sm_90\"]`"), "{report}");
}

/// Entries become Rust names, and none may become one that is there already.
#[test]
fn names_that_would_not_compile_are_refused() {
    let format = |name: &str| format!("schema = 1\n[format.{name}]\nelement = \"bf16\"\n");
    for name in [
        "self",
        "match",
        "union",
        "Bf16",
        "a__b",
        "a_",
        "1x",
        "_a",
        "format",
        "format_spec",
        "formats",
        "\"é\"",
        "\"\"",
        "\"a b\"",
    ] {
        assert_eq!(codes(&format(name)), ["E0107"], "{name}");
    }
    for name in ["bf16", "f16", "a", "a_1"] {
        assert!(codes(&format(name)).is_empty(), "{name}");
    }
    let two = format("a_1") + &format("a1").replace("schema = 1", "").replace("bf16", "f16");
    assert_eq!(codes(&two), ["E0107"]);
    let layout = |name: &str, divides: usize| {
        format!(
            "[layout.{name}]\ndigits = [\"row\", \"col\"]\nscale = [\"f32\"]\ndivides = {{ col = {divides} }}\n"
        )
    };
    let ambiguous = format!("schema = 1\n{}{}{}", layout("a", 2), layout("a_b", 4), layout("c", 8));
    assert!(codes(&ambiguous).is_empty());
    let ambiguous =
        format!("schema = 1\n{}{}{}{}", layout("a", 2), layout("a_b", 4), layout("c", 8), layout("b_c", 16));
    assert_eq!(codes(&ambiguous), ["E0107"], "relayout_a_b_c");
}

/// A part of a row that cannot be read keeps nobody from looking at the parts beside it.
#[test]
fn parts_of_a_row_are_looked_at_apart() {
    let text = Code::E0304.example();
    let text = text.replace("encoding = \"as_stored\"", "encoding = \"as_store\"");
    let text = text
        .replace("silu = []", "tanh = []")
        .replace("format = [\"mxfp8\"]\nrounding = \"rceil\"\nlayout", "format = [\"mxfp9\"]\nlayout");
    let report = check(&Source::new("table.toml", text)).expect_err("it is wrong in four places");
    let codes: Vec<_> = report.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::E0105, Code::E0304, Code::E0301, Code::E0105], "{report}");
}

/// Rows and layouts that would work in part, or not for long.
#[test]
fn half_truths_are_refused() {
    let of = |text: String| {
        let report = check(&Source::new("table.toml", text)).expect_err("it is wrong");
        report.findings().iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    let row = Code::W0702.example();
    let torn = row.replace("grouping = \"tokens\"", "grouping = \"tokens\"\nmultiple = { hidden = 100 }");
    assert!(of(torn).contains(&Code::E0406));
    let repeated = row.replace("payload = ", "repeat = { row = 7 }\npayload = ");
    assert!(of(repeated).contains(&Code::E0406));
    let aliased = Code::E0502.example().replace(
        "digits = [\"row\", \"col\"]",
        "digits = [\"row\", \"col\"]\naliases = [\"swizzled_128x4\"]",
    );
    assert!(of(aliased).contains(&Code::E0107));
}

/// Formats and tokens of every kind of scale, each wrong in one way.
#[test]
fn scales_that_do_not_fit_are_found() {
    let format = |body: &str| codes(&format!("schema = 1\n[format.x]\n{body}"));
    let fits = [
        "element = \"e4m3\"\nscale.row = { dtype = \"f32\" }",
        "element = \"int8\"\nscale.tensor = { dtype = \"f32\" }",
        "element = \"uint4\"\nscale.block = { dtype = \"bf16\", rows = 1, cols = 64, zero_point = \"uint4\" }",
    ];
    for body in fits {
        assert!(format(body).is_empty(), "{body}");
    }
    let misfits = [
        "element = \"e4m3\"\nscale.row = { dtype = \"f32\" }\nscale.tensor = { dtype = \"f32\" }",
        "element = \"int4\"\nscale.block = { dtype = \"bf16\", rows = 1, cols = 33 }",
        "element = \"int4\"\nscale.block = { dtype = \"bf16\", rows = 1, cols = 64, zero_point = \"uint4\" }",
        "element = \"uint4\"\nscale.block = { dtype = \"bf16\", rows = 1, cols = 64 }",
        "element = \"uint4\"\nscale.block = { dtype = \"bf16\", rows = 1, cols = 64, zero_point = \"int8\" }",
        "element = \"bf16\"\nscale.tensor = { dtype = \"f32\" }",
        "element = \"e5m2\"",
        "element = \"uint4\"\nscale.block = { dtype = \"e8m0\", rows = 1, cols = 64, zero_point = \"uint4\" }",
        "element = \"e2m1\"\nscale.block = { dtype = \"e8m0\", rows = 1, cols = 16 }\nscale.global = { dtype = \"f32\" }",
        "element = \"e2m1\"\nscale.block = { dtype = \"e4m3\", rows = 1, cols = 16 }\nscale.global = { dtype = \"e8m0\" }",
        "element = \"e4m3\"\nscale.tensor = { dtype = \"f32\" }\nscale.global = { dtype = \"f32\" }",
    ];
    for body in misfits {
        assert_eq!(format(body), ["E0303"], "{body}");
    }
    let table = |old: &str, new: &str| {
        let text = include_str!("contracts.toml");
        assert!(text.contains(old), "{old}");
        codes(&text.replace(old, new))
    };
    // One scale a tensor needs a source, and nothing else has one.
    let tensor = "[format.mxfp8]\nelement = \"e4m3\"\nscale.tensor = { dtype = \"e8m0\" }";
    let block = "[format.mxfp8]\nelement = \"e4m3\"\nscale.block = { dtype = \"e8m0\", rows = 1, cols = 32 }";
    assert!(table(block, tensor).contains(&"E0307"));
    let given = table("multiple = { hidden = 256 }", "multiple = { hidden = 256 }\nscale = \"static\"");
    assert!(given.contains(&"E0307"), "{given:?}");
    // What is handed over has another type of scales, and a format that has them.
    assert_eq!(table("prepared_dtype = \"f32\"", "prepared_dtype = \"e8m0\""), ["E0306"]);
    assert!(table("prepared_dtype = \"f32\"", "prepared_dtype = \"bf16\"").contains(&"E0301"));
}

/// Facts of a row that nothing here reads keep it from being executed, and what it says twice or for
/// nothing is found.
#[test]
fn what_a_row_says_is_read_or_refused() {
    let with = |old: &str, new: &str| {
        let text = include_str!("contracts.toml");
        assert!(text.contains(old), "{old}");
        codes(&text.replace(old, new))
    };
    for (old, new) in [
        (
            "convention = \"divisor\", scope = \"max_over_experts\"",
            "convention = \"divisor\", scope = \"per_expert\"",
        ),
        (
            "convention = \"multiplier\", scope = \"per_expert\"",
            "convention = \"divisor\", scope = \"per_expert\"",
        ),
        (
            "convention = \"multiplier\", scope = \"per_expert\"",
            "convention = \"multiplier\", scope = \"max_over_experts\"",
        ),
        ("alpha = \"weight_times_input\"", ""),
    ] {
        assert_eq!(with(old, new), ["W0701"], "{old} -> {new}");
    }
    let itself = with("requantize_from = \"fp8_128x128\"", "requantize_from = \"fp8_1x128_ue8m0\"");
    assert!(itself.contains(&"E0306"), "{itself:?}");
    let twice = "swigluoai = [\"alpha\", \"beta\", \"limit\", \"beta\"]";
    assert!(with("swigluoai = [\"alpha\", \"beta\", \"limit\"]", twice).contains(&"E0402"));
    let same =
        "[format.mxfp8_again]\nelement = \"e4m3\"\nscale.block = { dtype = \"e8m0\", rows = 1, cols = 32 }\n";
    assert_eq!(with("[format.nvfp4]", &format!("{same}[format.nvfp4]")), ["E0207"]);
    let twiddled = "[payload.row_major]\npad = { row = 16, col = 64 }\nword = \"fp4_hopper_twiddle\"";
    assert!(with("[payload.row_major]", twiddled).contains(&"E0302"));
    assert_eq!(
        with(
            "quantize = \"prepare\"\nlayout = { prepared = \"linear\", kernel = \"packed_ue8m0\" }",
            "quantize = \"expert\"\nlayout = { prepared = \"linear\", kernel = \"packed_ue8m0\" }"
        ),
        ["E0306"]
    );
}

/// Sizes of plain weights are held against the orders and payloads of plain functions.
#[test]
fn plain_padding_is_its_own() {
    let text = include_str!("contracts.toml");
    let plain = text
        .replace(
            "[order.up_gate_64]",
            "[order.plain_64]\ndigits = [\"row/64\", \"row%64\"]\ndivides = { row = 64 }\n[order.up_gate_64]",
        )
        .replace("swigluoai = \"up_gate_64\" }", "swigluoai = \"up_gate_64\", relu2_no_mul = \"plain_64\" }")
        .replacen(
            "honours = { silu = [], swigluoai = [\"alpha\", \"beta\", \"limit\"] }",
            "honours = { silu = [], swigluoai = [\"alpha\", \"beta\", \"limit\"], relu2_no_mul = [] }",
            1,
        );
    let padded = |gated: usize, plain_size: usize| {
        codes(&plain.replace(
            "intermediate = { gated = 64, plain = 128 }",
            &format!("intermediate = {{ gated = {gated}, plain = {plain_size} }}"),
        ))
    };
    let errors =
        |codes: Vec<&'static str>| codes.into_iter().filter(|code| code.starts_with('E')).collect::<Vec<_>>();
    assert!(!errors(padded(64, 32)).is_empty());
    assert!(errors(padded(64, 64)).iter().all(|code| *code != "E0406"), "{:?}", padded(64, 64));
}

/// A refusal for a row is one for a row of its order: it would be silently never made otherwise.
#[test]
fn a_refusal_names_a_row_of_its_order() {
    let text = include_str!("reject/E0604.toml");
    let order = text.find("[[oracle.").map_or(text, |rules| &text[..rules]);
    let row = order.lines().find_map(|line| line.strip_prefix("[backend.")).unwrap();
    let row = row.split([']', '.']).next().unwrap();
    let refuse =
        |name: &str| format!("{order}refuse = [{{ row = \"{name}\", when = {{}}, reason = \"bias\" }}]\n");
    assert_eq!(codes(&refuse(row)), [""; 0]);
    assert_eq!(codes(&refuse("nobody")), ["E0604"]);
}

/// Two rows of one member are told apart by what the oracle looks at, and by nothing else.
#[test]
fn rows_of_a_member_are_told_apart() {
    let text = Code::E0605.example();
    let all = "requires = { devices = [\"sm_90\", \"sm_100\"] }";
    let one = "[oracle.mxfp4.vllm]\norder";
    let scheme = "[scheme.a]\nweight = \"mxfp4\"\n[scheme.b]\nweight = \"mxfp4\"\n";
    let served = |input: &str| {
        let text = text.replace("devices = [\"sm_90\"]\n", "serves = [\"a\"]\n");
        let text =
            text.replace("experts = \"triton\"\nkernel", "experts = \"triton\"\nserves = [\"b\"]\nkernel");
        text.replace(one, &format!("{scheme}[oracle.mxfp4.vllm]\n{input}order"))
    };
    assert_eq!(codes(&served("")), [""; 0]);
    // An order that does not look at schemes when it picks a row.
    for input in ["input = \"preferred\"\n", "input = \"ignored\"\n"] {
        assert_eq!(codes(&served(input)), ["E0605"]);
    }
    let two = text.replace(all, &format!("{all}\n[[experts.triton]]\nclass = \"Batched\""));
    let by_class = |first: &str, second: &str| {
        let of = |class: &str| format!("experts = \"triton\"\nclasses = [\"{class}\"]\n");
        let text = two.replacen("experts = \"triton\"\n", &of(first), 1);
        codes(&text.replacen("experts = \"triton\"\nkernel", &format!("{}kernel", of(second)), 1))
    };
    assert_eq!(by_class("TritonExperts", "Batched"), [""; 0]);
    assert_eq!(by_class("Batched", "Batched"), ["E0605"]);
    let apart =
        text.replace("experts = \"triton\"\nkernel", "experts = \"triton\"\ndevices = [\"sm_100\"]\nkernel");
    assert_eq!(codes(&apart), [""; 0]);
    // Nobody asks for the device of a row that has no classes.
    let without = apart.replace("experts = \"triton\"\n", "");
    assert!(codes(&without).contains(&"E0605"), "{}", report("table.toml", &without));
}

/// A row is only said to be never reached where that is certain.
#[test]
fn a_row_that_another_covers_is_never_reached() {
    let text = Code::W0703.example();
    let with = |old: &str, new: &str| {
        assert!(text.contains(old), "{old}");
        codes(&text.replace(old, new))
    };
    let first = "class = \"OpenExperts\"\nrequires = { devices = [\"sm_90\", \"sm_100\"]";
    for more in [
        "library = [\"quark\"]",
        "routing = [\"default\"]",
        "all2all = []",
        "all2all_refused = [\"nixl_ep\"]",
        "expert_parallel = \"required\"",
        "data_parallel_max = 1",
        "hidden_multiple = 64",
        "activation_format = \"batched\"",
        "activation = [\"gelu\"]",
    ] {
        assert_eq!(with(first, &format!("{first}, {more}")), [""; 0], "{more}");
    }
    let narrow = "class = \"NarrowExperts\"";
    assert_eq!(with(narrow, &format!("{narrow}\noffers = [\"lora\"]")), [""; 0]);
    assert_eq!(with("class = \"OpenExperts\"", "class = \"OpenExperts\"\nkind = \"monolithic\""), [""; 0]);
    assert_eq!(with("devices = [\"sm_90\"], ", ""), [""; 0]);
    assert_eq!(
        with("order = [\"open\", \"narrow\"]", "order = [\"open\"]\nexplicit = [\"narrow\"]"),
        [""; 0]
    );
    assert_eq!(with("order = [\"open\", \"narrow\"]", "order = [\"narrow\", \"open\"]"), [""; 0]);
    let ruled = |change: &str| {
        let rule = format!("[[oracle.mxfp4.vllm.reorder]]\nwhen = {{ device = [\"sm_90\"] }}\n{change}\n");
        codes(&format!("{text}{rule}"))
    };
    for change in ["move = \"narrow\"\nto = \"first\"", "drop = [\"open\"]", "only = [\"narrow\"]"] {
        assert_eq!(ruled(change), [""; 0], "{change}");
    }
    assert_eq!(ruled("drop = [\"narrow\"]"), ["W0703"]);
    // This crate's own order looks at no class: only at schemes and activation functions.
    assert_eq!(
        codes(&format!("{text}[oracle.mxfp4.native]\norder = [\"narrow\", \"open\"]\n")),
        ["W0703"; 2]
    );
    // Members that serve the scheme of a request come first.
    let schemes = "[scheme.a]\nweight = \"mxfp4\"\n[scheme.b]\nweight = \"mxfp4\"\n";
    let preferred = |first: &str, second: &str| {
        let serving = |text: String, row: &str, scheme: &str| {
            let experts = format!("experts = \"{row}\"\n");
            text.replace(&experts, &format!("{experts}serves = [\"{scheme}\"]\n"))
        };
        let text = serving(serving(text.to_owned(), "open", first), "narrow", second);
        let order = format!("{schemes}[oracle.mxfp4.vllm]\ninput = \"preferred\"\n");
        codes(&text.replace("[oracle.mxfp4.vllm]\n", &order))
    };
    assert_eq!(preferred("a", "a"), ["W0703"]);
    assert_eq!(preferred("a", "b"), [""; 0]);
    // A device that its classes do not run on.
    let elsewhere = text.replace("experts = \"narrow\"", "experts = \"narrow\"\ndevices = [\"sm_100\"]");
    let report = report("table.toml", &elsewhere);
    assert!(report.to_string().contains("its classes run on none of its devices"), "{report}");
}

/// A row that only this crate's own order has is not reached by vLLM's names.
#[test]
fn names_that_choose_nothing_are_found() {
    let text = Code::W0703.example().replace("\"open\", \"narrow\"", "\"open\"");
    let native = format!("{text}[oracle.mxfp4.native]\norder = [\"narrow\"]\n");
    assert_eq!(codes(&native), ["W0702"]);
    assert_eq!(
        codes(&native.replace("vllm = { backend = \"NARROW\", flags = [\"narrow\"] }\n", "")),
        [""; 0]
    );
}
