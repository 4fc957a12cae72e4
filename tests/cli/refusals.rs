//! What the program refuses: it says why and what to do, and leaves nothing behind.

use safetensors::tensor::Dtype;

use super::{Desk, numbers, write};

/// A folder with numbers, a quantised tensor, and files that are wrong in one way each.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.write_numbers("in", &[4, 100], &numbers(400));
    desk.succeed("quantize in --tensor w --format mxfp8 --layout linear --rounding rceil -o q");
    let whole = std::fs::read(desk.path("q")).unwrap();
    std::fs::write(desk.path("cut"), &whole[..whole.len() - 1]).unwrap();
    std::fs::write(desk.path("empty"), []).unwrap();
    std::fs::create_dir(desk.path("folder")).unwrap();

    let mut two = numbers(64);
    two[32..].fill(0.0);
    desk.write_numbers("zeros", &[2, 1, 32], &two);
    let plain = |name: &str, dtype, shape: &[usize], bytes: usize| {
        write(&desk.path(name), &[("w", dtype, shape.to_vec(), vec![0; bytes])], None);
    };
    plain("integers", Dtype::I64, &[4, 2], 64);
    plain("vector", Dtype::F32, &[8], 32);
    plain("no-rows", Dtype::F32, &[0, 32], 0);
    plain("no-k", Dtype::F32, &[4, 0], 0);
    plain("no-scale", Dtype::F8_E4M3, &[4, 32], 128);
    let label = |name: &str, text: &str, scales: usize| {
        let tensors = [
            ("w", Dtype::F8_E4M3, vec![4, 128], vec![0; 512]),
            ("w_scale", Dtype::F8_E8M0, vec![scales], vec![0; scales]),
        ];
        write(&desk.path(name), &tensors, Some(text));
    };
    let sound = r#"{"version":1,"tensor":"w","format":"mxfp8","layout":"linear","rounding":"rceil","rows":4,"cols":128,"k":100}"#;
    label("few-scales", sound, 15);
    label("newer", &sound.replace(":1,", ":2,"), 16);
    label("unreadable", "{", 16);
    label("lies", &sound.replace("\"cols\":128", "\"cols\":160"), 16);
    label("long-k", &sound.replace(":100", ":129"), 16);
    let nvfp4 = [
        ("w", Dtype::U8, vec![1, 8], vec![0; 8]),
        ("w_scale", Dtype::F8_E4M3, vec![1, 1], vec![0]),
        ("w_global", Dtype::F32, vec![1], vec![0; 4]),
    ];
    write(&desk.path("no-global"), &nvfp4[..2], None);
    write(&desk.path("zero-global"), &nvfp4, None);
    desk
}

const WRONG_FILE: i32 = 1;
const WRONG_QUESTION: i32 = 2;

#[test]
fn refusals_say_what_is_wrong_and_leave_nothing() {
    let desk = desk();
    let before = desk.names();
    let quantize = |input: &str, rest: &str| format!("quantize {input} --tensor w {rest} -o out");
    let to_mxfp8 = |input: &str| quantize(input, "--format mxfp8 --layout linear --rounding rceil");
    let to_linear =
        |input: &str, rest: &str| format!("relayout {input} --tensor w {rest} --to linear -o out");
    let cases = [
        // Names.
        (quantize("in", "--format mxfp9 --layout linear"), WRONG_QUESTION, "did you mean `mxfp"),
        (
            quantize("in", "--format mxfp8 --layout swizled_128x4"),
            WRONG_QUESTION,
            "did you mean `swizzled_128x4`? The table has",
        ),
        (
            quantize("in", "--format mxfp8 --layout r128c4 --rounding rceil"),
            WRONG_QUESTION,
            "did you mean `R128c4`",
        ),
        (
            quantize("in", "--format nothingofthesort --layout linear"),
            WRONG_QUESTION,
            "`nothingofthesort`; the table has",
        ),
        (
            "quantize in --tensor v --format mxfp8 --layout linear --rounding rceil -o out".into(),
            WRONG_QUESTION,
            "no tensor `v`; of its 2 tensors: other, w",
        ),
        // Rounding, second-level scales.
        (
            quantize("in", "--format mxfp8 --layout linear"),
            WRONG_QUESTION,
            "--rounding rceil, floor, even or ceil",
        ),
        (
            quantize("in", "--format nvfp4 --layout linear --rounding rceil"),
            WRONG_QUESTION,
            "leave --rounding away",
        ),
        (quantize("in", "--format bf16 --layout linear"), WRONG_QUESTION, "`bf16` has no scales"),
        (
            quantize("in", "--format mxfp8 --layout linear --rounding up"),
            WRONG_QUESTION,
            "rceil, floor, even, ceil",
        ),
        (
            quantize("in", "--format mxfp8 --layout linear --rounding rceil --global auto"),
            WRONG_QUESTION,
            "leave --global away",
        ),
        (
            quantize("in", "--format nvfp4 --layout linear --global 1,2,3"),
            WRONG_QUESTION,
            "3 values for 1 matrices",
        ),
        (quantize("in", "--format nvfp4 --layout linear --global 0"), WRONG_QUESTION, "is no scale"),
        (
            quantize("in", "--format nvfp4 --layout linear --global some"),
            WRONG_QUESTION,
            "neither `auto` nor a number",
        ),
        (quantize("zeros", "--format nvfp4 --layout linear"), WRONG_QUESTION, "expert 1: "),
        // Layouts that do not take the scales.
        (quantize("in", "--format fp8_1x128 --layout 128x4"), WRONG_QUESTION, "does not hold the F32 scales"),
        (
            quantize("in", "--format mxfp8 --layout marlin_grouped --rounding rceil"),
            WRONG_QUESTION,
            "must be a multiple of 64",
        ),
        (
            "relayout q --tensor w --to marlin_grouped -o out".into(),
            WRONG_QUESTION,
            "must be a multiple of 64",
        ),
        (
            "relayout q --tensor w --to mn_major_f32 -o out".into(),
            WRONG_QUESTION,
            "does not hold the E8m0 scales",
        ),
        // Files.
        (to_mxfp8("nowhere"), WRONG_QUESTION, "nowhere cannot be read"),
        (to_mxfp8("folder"), WRONG_QUESTION, "folder cannot be read"),
        (to_mxfp8("cut"), WRONG_FILE, "not a complete safetensors file"),
        (to_mxfp8("empty"), WRONG_FILE, "not a complete safetensors file"),
        (to_mxfp8("integers"), WRONG_FILE, "is I64; numbers to quantise are F32, F16 or BF16"),
        (to_mxfp8("q"), WRONG_FILE, "is F8_E4M3"),
        (to_mxfp8("vector"), WRONG_FILE, "[rows, K] or [experts, rows, K]"),
        (to_mxfp8("no-rows"), WRONG_FILE, "none of them 0"),
        (to_mxfp8("no-k"), WRONG_FILE, "none of them 0"),
        (to_linear("in", ""), WRONG_QUESTION, "--format F --from L"),
        (to_linear("in", "--format mxfp8 --from linear"), WRONG_FILE, "is F32; F8_E4M3 is expected"),
        (to_linear("no-scale", "--format mxfp8 --from linear"), WRONG_FILE, "lacks its `w_scale`"),
        (
            to_linear("no-scale", "--format fp8_1x128 --from linear"),
            WRONG_FILE,
            "blocks of 128 elements, which do not divide rows of 32",
        ),
        (to_linear("no-scale", "--format mxfp8"), WRONG_QUESTION, "--from"),
        (to_linear("no-scale", "--format f32 --from linear"), WRONG_QUESTION, "`f32` has no scales"),
        (to_linear("few-scales", ""), WRONG_FILE, "15 bytes; 16 are expected"),
        (to_linear("newer", ""), WRONG_FILE, "is of version 2"),
        (to_linear("unreadable", ""), WRONG_FILE, "is not what `quantize` writes"),
        (to_linear("lies", ""), WRONG_FILE, "4 rows of 160 `mxfp8` elements"),
        (to_linear("long-k", ""), WRONG_FILE, "129 of them not padding"),
        (to_linear("q", "--format mxfp8 --from 128x4"), WRONG_QUESTION, "is mxfp8 with scales in linear"),
        (to_linear("no-global", "--format nvfp4 --from linear"), WRONG_FILE, "lacks its `w_global`"),
        (to_linear("zero-global", "--format nvfp4 --from linear"), WRONG_FILE, "expert 0 (0e0)"),
        ("dequantize cut --tensor w -o out".into(), WRONG_FILE, "not a complete safetensors file"),
        ("dequantize in --tensor w -o out".into(), WRONG_QUESTION, "--format F --from L"),
        ("dequantize q --tensor w --dtype int8 -o out".into(), WRONG_QUESTION, "f32, f16, bf16"),
        // Outputs.
        (
            "dequantize q --tensor w -o in".into(),
            WRONG_QUESTION,
            "in exists; name another file to write, or replace it with --force",
        ),
        ("dequantize q --tensor w -o ./q".into(), WRONG_QUESTION, "is the file to read"),
        ("dequantize q --tensor w -o folder --force".into(), WRONG_QUESTION, "folder is not a file"),
        ("dequantize q --tensor w -o no/where/out".into(), WRONG_QUESTION, "cannot be written"),
        ("dequantize q --tensor w -o ..".into(), WRONG_QUESTION, "exists"),
        ("dequantize q --tensor w -o .. --force".into(), WRONG_QUESTION, "names no file"),
    ];
    let input = std::fs::read(desk.path("in")).unwrap();
    for (line, status, message) in cases {
        let (got, said) = desk.fail(&line);
        assert!(said.contains(message) && !said.contains("panicked"), "{line}\nsays: {said}\nnot: {message}");
        assert_eq!(got, status, "{line}: {said}");
    }
    assert_eq!(desk.names(), before);
    assert_eq!(std::fs::read(desk.path("in")).unwrap(), input);
    assert!(desk.names().iter().all(|name| !name.starts_with('.')));
}

/// No byte of the header can be changed so that the program falls over.
#[test]
fn a_broken_header_is_no_panic() {
    let desk = Desk::new();
    let tensors = [
        ("w", Dtype::U8, vec![2, 2, 16], vec![0x21; 64]),
        ("w_scale", Dtype::F8_E8M0, vec![2, 2, 1], vec![127; 4]),
    ];
    let label = r#"{"version":1,"tensor":"w","format":"mxfp4","layout":"linear","rounding":null,"rows":2,"cols":32,"k":9}"#;
    write(&desk.path("q"), &tensors, Some(label));
    desk.succeed("dequantize q --tensor w -o d");
    let sound = std::fs::read(desk.path("q")).unwrap();
    for at in (0..sound.len()).filter(|at| sound[*at].is_ascii_digit()) {
        let mut broken = sound.clone();
        broken[at] = if broken[at] == b'9' { b'0' } else { b'9' };
        std::fs::write(desk.path("broken"), broken).unwrap();
        let output = desk.run("dequantize broken --tensor w --force -o d");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0..=2)) && !said.contains("panicked"), "{at}: {said}");
    }
}
