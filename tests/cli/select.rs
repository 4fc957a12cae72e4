//! `select`: what is chosen is what the library chooses, whichever way it is asked.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use scalewright::backend::Activation;
use scalewright::generated::oracle::ORACLES;
use scalewright::generated::settings::SETTINGS;
use scalewright::oracle::{
    All2all, Checkpoint, Device, Engine, Feature, GemmType, Request, RoutingMethod, Switch, TokenType,
    evaluate,
};
use serde_json::{Value, json};

use super::Desk;

const DOCS: &str = include_str!("../../docs/select.md");

/// Answers to the lines of `requests`, and the exit status.
fn batch(requests: &str) -> (Vec<Value>, i32) {
    let desk = Desk::new();
    std::fs::write(desk.path("requests"), requests).unwrap();
    let Output { status, stdout, stderr } = desk.run("select --batch requests");
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    let answers = std::str::from_utf8(&stdout).unwrap().lines();
    (answers.map(|line| serde_json::from_str(line).unwrap()).collect(), status.code().unwrap())
}

/// The fields of a request, as the error about an unknown one lists them.
fn fields() -> Vec<String> {
    let (answers, status) = batch(r#"{"nothing of the sort":1}"#);
    assert_eq!(status, 1);
    let error = answers[0]["error"].as_str().unwrap();
    let (_, listed) = error.split_once("expected one of ").unwrap();
    listed.split(", ").map(|field| field.trim_matches('`').to_owned()).collect()
}

#[test]
fn people_are_told_the_row_its_contract_and_each_refusal() {
    let line =
        "select --oracle mxfp4 --device sm_120 --scheme mxfp4_mxfp8 --activation swigluoai --hidden 2880";
    let said = Desk::new().succeed(line);
    // The page shows this very answer.
    assert!(DOCS.contains(&format!("$ scalewright {line}\n{said}```")), "{said}");
}

#[test]
fn where_nothing_fits_all_reasons_are_said() {
    let output = Desk::new().run("select --oracle int8 --device sm_70");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("no int8 backend fits\n\nrefused\n  TRITON   TritonExperts  "), "{said}");
    assert!(said.contains("  does not run on sm_70\n"), "{said}");

    let output = Desk::new().run("select --oracle w4a8 --device sm_70 --engine native --json");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        answer,
        json!({
            "oracle": "w4a8", "row": null, "vllm": null, "experts": null,
            "error": "no w4a8 backend fits, and none was tried", "rejected": [],
        })
    );
}

/// Each family on each device, for both engines: all that the library says is in the answer.
#[test]
fn a_batch_answers_what_the_library_chooses() {
    let mut requests = String::new();
    let mut expected = Vec::new();
    for oracle in ORACLES {
        for (engine, device) in
            Engine::ALL.iter().flat_map(|engine| Device::ALL.iter().map(move |device| (engine, device)))
        {
            let family = oracle.family;
            requests += &format!(
                "{}\n",
                json!({ "oracle": family, "engine": engine.name(), "device": device.name() })
            );
            let request = Request { engine: *engine, ..Request::new(*device, Activation::Silu, 4096) };
            let selection = evaluate(oracle, &request);
            let (chosen, refused) = match &selection {
                Ok(selection) => (Some(selection), &selection.rejected[..]),
                Err(nothing) => (None, nothing.rejected()),
            };
            let rejected: Vec<_> = refused
                .iter()
                .map(|one| json!({ "backend": one.backend, "class": one.class, "code": one.reason.code(), "reason": one.reason.to_string() }))
                .collect();
            let mut answer = json!({
                "line": expected.len() + 1, "oracle": family, "row": chosen.map(|chosen| chosen.contract.name),
                "vllm": chosen.and_then(|chosen| chosen.contract.vllm).map(|names| names.backend),
                "experts": chosen.and_then(|chosen| chosen.class), "rejected": rejected,
            });
            if let Err(nothing) = selection {
                answer["error"] = nothing.headline().into();
            }
            expected.push(answer);
        }
    }
    assert!(expected.iter().any(|answer| answer["row"].is_null()));
    assert!(expected.iter().any(|answer| answer["row"].is_string()));
    assert_eq!(batch(&requests), (expected, 0));
}

/// Flags and fields are one question: each of these changes the answer to a plain one, either way alike.
#[test]
fn flags_and_fields_ask_the_same() {
    let cases = [
        ("fp8", "sm_100", "--engine native", json!({ "engine": "native" })),
        ("mxfp4", "sm_100", "--activation swiglustep", json!({ "activation": "swiglustep" })),
        ("mxfp4", "sm_100", "--scheme mxfp4_mxfp8", json!({ "scheme": "mxfp4_mxfp8" })),
        ("int_wna16", "sm_100", "--hidden 2850", json!({ "hidden": 2850 })),
        ("int_wna16", "sm_100", "--group 128", json!({ "group": 128 })),
        ("int_wna16", "sm_100", "--checkpoint gptq", json!({ "checkpoint": "gptq" })),
        ("fp8", "sm_90", "--experts 5000", json!({ "experts": 5000 })),
        ("fp8", "sm_100", "--routing custom", json!({ "routing": "custom" })),
        ("fp8", "sm_100", "--router-dtype f16", json!({ "router_dtype": "f16" })),
        ("unquantized", "cpu_arm", "--token-dtype f16", json!({ "token_dtype": "f16" })),
        ("fp8", "sm_90", "--ep 8", json!({ "expert_parallel": 8 })),
        ("mxfp4", "sm_100", "--dp 16", json!({ "data_parallel": 16 })),
        ("fp8", "sm_100", "--sp 2", json!({ "sequence_parallel": 2 })),
        ("fp8", "sm_90", "--ep 8 --transport nixl_ep", json!({ "expert_parallel": 8, "all2all": "nixl_ep" })),
        ("fp8", "sm_100", "--feature lora --feature bias", json!({ "features": ["lora", "bias"] })),
        ("fp8", "sm_120", "--model-type kolibri1", json!({ "model_type": "kolibri1" })),
        ("mxfp4", "sm_100", "--moe-backend triton", json!({ "backend": "triton" })),
        ("fp8", "sm_90", "--setting aiter=on", json!({ "settings": { "aiter": "on" } })),
        ("fp8", "sm_100", "--missing-library flashinfer", json!({ "missing_libraries": ["flashinfer"] })),
        ("int_wna16", "sm_90", "--gemm-type grouped", json!({ "gemm_type": "grouped" })),
    ];
    let desk = Desk::new();
    for (oracle, device, flags, fields) in cases {
        // A size and schemes at which each of them matters.
        let scheme = match oracle {
            "fp8" => "fp8_block128",
            "int_wna16" => "int4_g128",
            "unquantized" => "bf16",
            other => other,
        };
        let mut request =
            json!({ "oracle": oracle, "device": device, "scheme": scheme, "intermediate": 4000 });
        let plain = request.to_string();
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (mut answers, status) = batch(&format!("{plain}\n{request}"));
        assert_eq!(status, 0);
        answers.iter_mut().for_each(|answer| drop(answer.as_object_mut().unwrap().remove("line")));
        assert_ne!(answers[0], answers[1], "{flags} changes nothing");
        let scheme = if flags.starts_with("--scheme") { String::new() } else { format!("--scheme {scheme}") };
        let plain = format!("--oracle {oracle} --device {device} --intermediate 4000 {scheme}");
        let answer = desk.run(&format!("select --json {plain} {flags}")).stdout;
        assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap(), answers[1], "{flags}");
    }
}

#[test]
fn a_line_that_is_no_request_is_answered_by_its_number() {
    let sound = r#"{"oracle":"mxfp4","device":"sm_90"}"#;
    let cases = [
        ("", "EOF"),
        ("{", "column 1: EOF"),
        ("7", "invalid type"),
        (
            r#"{"oracle":"mxfp4","device":"sm90"}"#,
            "column 33: `sm90` is not known (did you mean `sm_90`?); known are sm_70",
        ),
        (r#"{"oracle":"mxfp5","device":"sm_90"}"#, "oracle `mxfp5` is not known (did you mean `mxfp4`?)"),
        (r#"{"oracle":"mxfp4"}"#, "no device is given; known are sm_70"),
        (r#"{"device":"sm_90"}"#, "no oracle is given; known are fp8"),
        (r#"{"oracle":"mxfp4","device":"sm_90","hiden":1}"#, "unknown field `hiden`"),
        (r#"{"oracle":"mxfp4","device":"sm_90","hidden":0}"#, "nonzero"),
        (r#"{"oracle":"mxfp4","device":"sm_90","device":"sm_90"}"#, "duplicate field `device`"),
        (r#"{"oracle":"mxfp4","device":"sm_90","top_k":9,"experts":8}"#, "cannot have 9 of 8 experts"),
        (r#"{"oracle":"mxfp4","device":"sm_90","scheme":"mxfp"}"#, "scheme `mxfp` is not known"),
        (r#"{"oracle":"mxfp4","device":"sm_90","features":["biass"]}"#, "(did you mean `bias`?)"),
        (
            r#"{"oracle":"mxfp4","device":"sm_90","settings":{"aiter":"on","aiter":"off"}}"#,
            "`aiter` is set twice",
        ),
        (r#"{"oracle":"mxfp4","device":"sm_90","settings":{"aitr":"on"}}"#, "setting `aitr` is not known"),
        (r#"{"oracle":"mxfp4","device":"sm_90","all2all":"deepep_v2"}"#, "moves tokens between ranks"),
        (
            r#"{"oracle":"mxfp4","device":"sm_90","expert_parallel":8,"data_parallel":1,"all2all":"deepep_v2"}"#,
            "moves tokens between ranks",
        ),
    ];
    let long = format!("{{\"scheme\":\"{}\"}}", "x".repeat(1 << 20));
    let cases: Vec<_> = cases.into_iter().chain([(long.as_str(), "at most 65536 bytes")]).collect();
    let lines: Vec<_> = cases.iter().flat_map(|(line, _)| [*line, sound]).collect();
    let (answers, status) = batch(&lines.join("\n"));
    assert_eq!((answers.len(), status), (lines.len(), 1));
    for (at, (answer, line)) in answers.iter().zip(lines).enumerate() {
        assert_eq!(answer["line"], at + 1);
        match answer["error"].as_str() {
            None => assert_eq!((line, answer["oracle"].as_str()), (sound, Some("mxfp4"))),
            Some(error) => {
                let message = cases[at / 2].1;
                assert!(error.contains(message), "{line:.100}\nsays: {error}\nnot: {message}");
                assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
            }
        }
    }
}

/// A name that an oracle does not have is its answer, not an error of the line.
#[test]
fn what_an_oracle_refuses_is_an_answer() {
    let (answers, status) = batch(r#"{"oracle":"mxfp4","device":"sm_90","backend":"marlinn"}"#);
    assert_eq!((answers[0]["row"].is_null(), status), (true, 0));
    assert!(answers[0]["error"].as_str().unwrap().contains("did you mean `marlin`?"));
}

/// Whoever sends the next request only after an answer gets one, and an output that nobody reads is no
/// error.
#[test]
fn a_pipe_is_served_request_by_request() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalewright"));
    command
        .args(["select", "--batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut requests = program.stdin.take().unwrap();
    let mut answers = BufReader::new(program.stdout.take().unwrap()).lines();
    for line in 1..4 {
        writeln!(requests, r#"{{"oracle":"fp8","device":"sm_90"}}"#).unwrap();
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["line"], line);
    }
    drop(answers);
    writeln!(requests, r#"{{"oracle":"fp8","device":"sm_90"}}"#).unwrap();
    // A process that another test is just starting may still hold the output open.
    drop(requests);
    let output = program.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_model_is_asked_for_with_what_flags_leave_open() {
    let model = |name: &str| format!("{}/tests/cli/models/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let desk = Desk::new();
    let cases = [
        (
            "gpt-oss-20b",
            "",
            "mxfp4 (mxfp4) for vllm on sm_100: swigluoai, hidden 2880, intermediate 2880, 32 experts top-4, renormalize routing",
        ),
        (
            "mixtral-8x7b",
            "--tp 2",
            "unquantized (bf16) for vllm on sm_100: silu, hidden 4096, intermediate 7168, 8 experts top-2, renormalize_naive routing",
        ),
        (
            "deepseek-v3-nvfp4",
            "--ep 8 --transport deepep_v2",
            "nvfp4 (nvfp4) for vllm on sm_100: silu, hidden 7168, intermediate 2048, 256 experts top-8 on 8 ranks behind deepep_v2, deepseek_v3 routing",
        ),
        (
            "glm-4.5-air",
            "--scheme fp8_tensor",
            "fp8 (fp8_tensor) for vllm on sm_100: silu, hidden 4096, intermediate 1408, 128 experts top-8, deepseek_v3 routing",
        ),
    ];
    for (name, flags, heading) in cases {
        let said = desk.succeed(&format!("select --device sm_100 --model {} {flags}", model(name)));
        assert_eq!(said.lines().next(), Some(heading));
    }
    std::fs::write(desk.path("config"), r#"{"model_type":"mixtral"}"#).unwrap();
    let (status, said) = desk.fail("select --device sm_100 --model config");
    assert_eq!(
        (status, said.as_str()),
        (1, "scalewright: config: has no field `hidden_act`; say it with --activation\n")
    );
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    let cases = [
        ("", "no oracle is given"),
        ("--oracle mxfp4", "no device is given; known are sm_70"),
        ("--oracle mxfp4 --device sm90", "did you mean `sm_90`?"),
        ("--oracle mxfp --device sm_90", "did you mean `mxfp4`?"),
        ("--oracle mxfp4 --device sm_90 --activation swiglu", "known are silu"),
        ("--oracle mxfp4 --device sm_90 --transport deepep", "did you mean `deepep_v2`?"),
        ("--oracle mxfp4 --device sm_90 --transport deepep_v2", "moves tokens between ranks"),
        ("--oracle mxfp4 --device sm_90 --missing-library flashinfr", "did you mean `flashinfer`?"),
        ("--oracle mxfp4 --device sm_90 --setting aiter", "NAME=on or NAME=off"),
        ("--oracle mxfp4 --device sm_90 --setting aiter=1", "known are on, off"),
        ("--oracle mxfp4 --device sm_90 --moe-backend marlinn", "did you mean `marlin`?"),
        (
            "--oracle mxfp4 --device sm_90 --moe-backend VLLM_USE_FLASHINFER_MOE_MXFP4_BF16",
            "was dropped after",
        ),
        ("--oracle mxfp4 --device sm_90 --tp 2", "--model"),
        ("--batch - --device sm_90", "cannot be used with"),
        ("--batch nowhere", "nowhere cannot be read"),
        ("--model nowhere --device sm_90", "nowhere cannot be read"),
    ];
    let desk = Desk::new();
    for (flags, message) in cases {
        let (status, said) = desk.fail(&format!("select {flags}"));
        assert!(said.contains(message), "{flags}\nsays: {said}\nnot: {message}");
        assert_eq!(status, 2, "{flags}: {said}");
    }
}

/// The page that people write requests from has every field and every word, and no others.
#[test]
fn every_field_and_word_is_documented() {
    let (_, rest) = DOCS.split_once("## The request").unwrap();
    let (table, _) = rest.split_once("## The answer").unwrap();
    let row = |field: &str| table.lines().find(|line| line.starts_with(&format!("| `{field}` |")));
    let documented = table.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(documented, fields().len());
    for field in fields() {
        assert!(row(&field).is_some(), "`{field}` is not documented");
    }
    macro_rules! names {
        ($vocabulary:ty) => {
            <$vocabulary>::ALL.iter().map(|word| word.name()).collect::<BTreeSet<_>>()
        };
    }
    let words = [
        ("oracle", ORACLES.iter().map(|oracle| oracle.family).collect()),
        ("device", names!(Device)),
        ("engine", names!(Engine)),
        ("activation", names!(Activation)),
        ("scheme", ORACLES.iter().flat_map(|oracle| oracle.schemes()).collect()),
        ("routing", names!(RoutingMethod)),
        ("router_dtype", names!(TokenType)),
        ("all2all", names!(All2all)),
        ("features", names!(Feature)),
        ("checkpoint", names!(Checkpoint)),
        ("settings", SETTINGS.iter().map(|setting| setting.name).chain(names!(Switch)).collect()),
        ("missing_libraries", ORACLES.iter().flat_map(|oracle| oracle.libraries()).collect()),
        ("gemm_type", names!(GemmType)),
    ];
    for (field, words) in words {
        let meaning = row(field).unwrap().split('|').nth(3).unwrap();
        let listed: BTreeSet<_> = meaning.split('`').skip(1).step_by(2).collect();
        let lacking: Vec<_> = words.difference(&listed).collect();
        assert!(lacking.is_empty(), "`{field}` lacks {lacking:?}");
    }
}
