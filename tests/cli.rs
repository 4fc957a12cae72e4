//! The program as people call it: `quantize`, `relayout`, `dequantize`, `layout`, `show` and `select`.

#[path = "cli/picture.rs"]
mod picture;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/select.rs"]
mod select;
#[path = "cli/show.rs"]
mod show;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use scalewright::cpu::dequantize::dequantize;
use scalewright::cpu::quantize::global::{Scope, global_scales};
use scalewright::cpu::quantize::quantize;
use scalewright::format::{FormatSpec, Rounding};
use scalewright::generated::formats::{
    FP8_1X128_UE8M0, FP8_128X128, FP8_TENSOR, INT8_ROW, MXFP4, MXFP6_E3M2, MXFP8, MXFP8_E5M2, NVFP4,
    UINT4_G128,
};
use scalewright::generated::layouts::{LINEAR, MARLIN_GROUPED, PACKED_UE8M0, SWIZZLED_128X4};
use scalewright::layout::Layout;
use scalewright::recipe::Recipe;
use scalewright::scale::{Calibrated, Multiplier};
use scalewright::tensor::{RawQuantized, Tokens};
use tempfile::TempDir;

/// A folder, and the program run in it.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program with the words of `line`.
    fn run(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        Command::new(env!("CARGO_BIN_EXE_scalewright"))
            .args(words)
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    fn succeed(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The exit status and what is said on stderr.
    fn fail(&self, line: &str) -> (i32, String) {
        let output = self.run(line);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes F32 tensor `w` and another one into `name`.
    fn write_numbers(&self, name: &str, shape: &[usize], values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensors =
            [("w", Dtype::F32, shape.to_vec(), bytes), ("other", Dtype::U8, vec![3], vec![1, 2, 3])];
        write(&self.path(name), &tensors, None);
    }

    fn read(&self, name: &str) -> File {
        File::read(&self.path(name))
    }
}

fn write(path: &Path, tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)], metadata: Option<&str>) {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let metadata = metadata.map(|text| HashMap::from([("scalewright".to_owned(), text.to_owned())]));
    std::fs::write(path, safetensors::serialize(views, metadata).unwrap()).unwrap();
}

/// All that a file holds.
struct File {
    tensors: HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
    label: Option<serde_json::Value>,
}

impl File {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let label = header.metadata().as_ref().map(|all| serde_json::from_str(&all["scalewright"]).unwrap());
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let whole = |(name, view): (&str, TensorView<'_>)| {
            (name.to_owned(), (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        };
        Self { tensors: tensors.iter().map(whole).collect(), label }
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.tensors[name].2
    }

    fn reals(&self, name: &str) -> Vec<f32> {
        self.bytes(name).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn kind(&self, name: &str) -> (Dtype, &[usize]) {
        let (dtype, shape, _) = &self.tensors[name];
        (*dtype, shape)
    }
}

/// Numbers whose magnitude differs from block to block, so that no scale is like its neighbour.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1u64;
    let number = |at: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let uniform = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        uniform * 2f32.powi((at / 16 % 23) as i32 - 11)
    };
    (0..count).map(number).collect()
}

/// Type and shape of a tensor.
type Kind = (Dtype, &'static [usize]);

struct Case {
    format: &'static FormatSpec,
    layout: &'static Layout,
    rounding: Option<(&'static str, Rounding)>,
    shape: &'static [usize],
}

impl Case {
    /// What the library makes of expert `index`, scales in `layout`.
    fn expected(&self, values: &[f32], index: usize, layout: &'static Layout) -> RawQuantized {
        let [.., rows, cols] = *self.shape else { panic!("not a matrix") };
        let tokens = Tokens::new(&values[index * rows * cols..][..rows * cols], rows, cols).unwrap();
        let calibrated =
            self.format.global.map(|_| Calibrated::Global(global_scales(tokens, Scope::Tensor).unwrap()[0]));
        let recipe = Recipe { calibrated, ..Recipe::dynamic(self.rounding.map(|(_, rule)| rule)) };
        quantize(tokens, self.format, recipe, layout, 1).unwrap()
    }
}

fn cases() -> Vec<Case> {
    let case = |format, layout, rounding, shape| Case { format, layout, rounding, shape };
    vec![
        case(&MXFP8, &SWIZZLED_128X4, Some(("rceil", Rounding::Rceil)), &[5, 100]),
        case(&MXFP8_E5M2, &SWIZZLED_128X4, Some(("floor", Rounding::Floor)), &[129, 160]),
        case(&MXFP4, &PACKED_UE8M0, Some(("even", Rounding::Even)), &[2, 6, 160]),
        case(&MXFP6_E3M2, &LINEAR, Some(("ceil", Rounding::Ceil)), &[3, 96]),
        case(&FP8_1X128_UE8M0, &PACKED_UE8M0, Some(("rceil", Rounding::Rceil)), &[2, 3, 300]),
        case(&NVFP4, &SWIZZLED_128X4, None, &[3, 130, 40]),
        case(&FP8_128X128, &LINEAR, None, &[2, 130, 200]),
        case(&FP8_TENSOR, &LINEAR, None, &[2, 3, 7]),
        case(&INT8_ROW, &LINEAR, None, &[4, 9]),
        case(&UINT4_G128, &MARLIN_GROUPED, None, &[2, 64, 200]),
    ]
}

#[test]
fn there_and_back_is_what_the_library_does() {
    for case in cases() {
        let (format, layout, desk) = (case.format.name, case.layout.name, Desk::new());
        let [.., _, k] = *case.shape else { panic!("not a matrix") };
        let experts = if let [experts, _, _] = *case.shape { experts } else { 1 };
        let values = numbers(case.shape.iter().product());
        desk.write_numbers("in", case.shape, &values);
        let rounding = case.rounding.map_or_else(String::new, |(word, _)| format!("--rounding {word}"));
        desk.succeed(&format!("quantize in --tensor w --format {format} --layout {layout} {rounding} -o q"));
        desk.succeed("relayout q --tensor w --to linear -o l");
        desk.succeed(&format!("relayout l --tensor w --to {layout} -o back"));
        desk.succeed("dequantize q --tensor w -o d");
        assert_eq!(
            std::fs::read(desk.path("q")).unwrap(),
            std::fs::read(desk.path("back")).unwrap(),
            "{format}"
        );

        let (quantized, linear, numbers) = (desk.read("q"), desk.read("l"), desk.read("d"));
        let [mut payload, mut scales, mut linear_scales, mut zero_points] = [const { Vec::<u8>::new() }; 4];
        let (mut globals, mut dequantized) = (Vec::new(), Vec::new());
        for expert in 0..experts {
            let raw = case.expected(&values, expert, case.layout);
            let rows = dequantize(&raw, case.layout).unwrap();
            dequantized.extend(rows.chunks(raw.cols).flat_map(|row| &row[..k]).copied());
            linear_scales.extend(case.expected(&values, expert, &LINEAR).scales);
            payload.extend(raw.payload);
            scales.extend(raw.scales);
            zero_points.extend(raw.zero_points);
            globals.extend(raw.global.map(|global| global.to_multiplier().get()));
        }
        assert_eq!(quantized.bytes("w"), payload, "{format}");
        assert_eq!(quantized.bytes("w_scale"), scales, "{format}");
        assert_eq!(linear.bytes("w"), payload, "{format}");
        assert_eq!(linear.bytes("w_scale"), linear_scales, "{format}");
        assert_eq!(numbers.kind("w"), (Dtype::F32, case.shape), "{format}");
        assert_eq!(numbers.reals("w"), dequantized, "{format}");
        assert_eq!(numbers.tensors.len(), 1, "{format}");
        let own = |name: &str| quantized.tensors.get(name).map_or(&[][..], |(_, _, bytes)| bytes);
        assert_eq!(own("w_zero_point"), zero_points, "{format}");
        assert_eq!(
            own("w_global"),
            globals.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>(),
            "{format}"
        );
        assert!(!quantized.tensors.contains_key("other"));
    }
}

#[test]
fn tensors_have_the_types_and_shapes_that_readers_expect() {
    let expected: [(&str, Kind, Kind); 10] = [
        ("mxfp8", (Dtype::F8_E4M3, &[5, 128]), (Dtype::F8_E8M0, &[128, 4])),
        ("mxfp8_e5m2", (Dtype::F8_E5M2, &[129, 160]), (Dtype::F8_E8M0, &[256, 8])),
        ("mxfp4", (Dtype::U8, &[2, 6, 80]), (Dtype::F8_E8M0, &[2, 8, 8])),
        ("mxfp6_e3m2", (Dtype::U8, &[3, 96]), (Dtype::F8_E8M0, &[3, 3])),
        ("fp8_1x128_ue8m0", (Dtype::F8_E4M3, &[2, 3, 384]), (Dtype::F8_E8M0, &[2, 4, 4])),
        ("nvfp4", (Dtype::U8, &[3, 130, 24]), (Dtype::F8_E4M3, &[3, 256, 4])),
        ("fp8_128x128", (Dtype::F8_E4M3, &[2, 130, 256]), (Dtype::F32, &[2, 2, 2])),
        ("fp8_tensor", (Dtype::F8_E4M3, &[2, 3, 7]), (Dtype::F32, &[2, 1, 1])),
        ("int8_row", (Dtype::I8, &[4, 9]), (Dtype::F32, &[4, 1])),
        ("uint4_g128", (Dtype::U8, &[2, 64, 128]), (Dtype::BF16, &[2, 64, 2])),
    ];
    for (case, (format, elements, scales)) in cases().into_iter().zip(expected) {
        let desk = Desk::new();
        desk.write_numbers("in", case.shape, &numbers(case.shape.iter().product()));
        let rounding = case.rounding.map_or_else(String::new, |(word, _)| format!("--rounding {word}"));
        let line =
            format!("quantize in --tensor w --format {format} --layout {} {rounding}", case.layout.name);
        desk.succeed(&format!("{line} -o q"));
        desk.succeed(&format!("{line} -o again"));
        assert_eq!(std::fs::read(desk.path("q")).unwrap(), std::fs::read(desk.path("again")).unwrap());
        let file = desk.read("q");
        assert_eq!(file.kind("w"), elements, "{format}");
        assert_eq!(file.kind("w_scale"), scales, "{format}");
        let label = file.label.unwrap();
        assert_eq!(label["format"], format);
        assert_eq!(label["layout"], case.layout.name);
        assert_eq!(label["rounding"].as_str(), case.rounding.map(|(word, _)| word));
        let [.., rows, k] = *case.shape else { panic!("not a matrix") };
        assert_eq!(
            (label["rows"].as_u64(), label["k"].as_u64()),
            (Some(rows as u64), Some(k as u64)),
            "{format}"
        );
        assert_eq!(label["version"], 1);
    }
}

#[test]
fn each_scale_is_where_the_swizzle_puts_it() {
    let desk = Desk::new();
    // Block (row, col) holds 448 * 2^(8 row + col), whose scale byte is 127 + 8 row + col.
    let value = |at: usize| 448.0 * 2f32.powi((at / 160 * 8 + at % 160 / 32) as i32);
    desk.write_numbers("in", &[2, 160], &(0..320).map(value).collect::<Vec<_>>());
    desk.succeed("quantize in --tensor w --format mxfp8 --layout 128x4 --rounding rceil -o q");
    let file = desk.read("q");
    let mut expected = vec![0; 1024];
    for (offset, byte) in [(0, 127), (1, 128), (2, 129), (3, 130), (512, 131)] {
        expected[offset] = byte;
        expected[offset + 16] = byte + 8;
    }
    assert_eq!(file.bytes("w_scale"), expected);
    assert!(file.bytes("w").iter().all(|byte| *byte == 0x7E));
}

#[test]
fn a_second_level_scale_can_be_given() {
    let desk = Desk::new();
    let values = numbers(2 * 3 * 32);
    desk.write_numbers("in", &[2, 3, 32], &values);
    let stored = |global: &str| {
        let line = "quantize in --tensor w --format nvfp4 --layout linear --force -o q";
        desk.succeed(&format!("{line} {global}"));
        (desk.read("q").reals("w_global"), desk.read("q").bytes("w_scale").to_vec())
    };
    let auto = stored("");
    assert_eq!(stored("--global auto"), auto);
    assert_eq!(stored("--global 0.3").0, [0.3, 0.3]);
    assert_eq!(stored("--global auto,0.3").0, [auto.0[0], 0.3]);
    let case = Case { format: &NVFP4, layout: &LINEAR, rounding: None, shape: &[2, 3, 32] };
    assert_eq!(auto.1[..6], case.expected(&values, 0, &LINEAR).scales);
    let global = Multiplier::new(0.3).unwrap().to_divisor();
    let recipe = Recipe { calibrated: Some(Calibrated::Global(global)), ..Recipe::default() };
    let second = quantize(Tokens::new(&values[96..], 3, 32).unwrap(), &NVFP4, recipe, &LINEAR, 1).unwrap();
    assert_eq!(stored("--global auto,0.3").1[6..], second.scales);
}

#[test]
fn numbers_are_read_and_written_in_three_types() {
    let desk = Desk::new();
    let values = [1.0f32, -2.5, 0.375, 96.0].repeat(8);
    let encode = |cast: fn(f32) -> [u8; 2]| values.iter().flat_map(|value| cast(*value)).collect::<Vec<u8>>();
    let bf16 = encode(|value| half::bf16::from_f32(value).to_le_bytes());
    let f16 = encode(|value| half::f16::from_f32(value).to_le_bytes());
    write(&desk.path("bf16"), &[("w", Dtype::BF16, vec![1, 32], bf16.clone())], None);
    write(&desk.path("f16"), &[("w", Dtype::F16, vec![1, 32], f16.clone())], None);
    desk.write_numbers("f32", &[1, 32], &values);
    let made = ["f32", "bf16", "f16"].map(|name| {
        desk.succeed(&format!(
            "quantize {name} --tensor w --format mxfp8 --layout linear --rounding floor -o q-{name}"
        ));
        std::fs::read(desk.path(&format!("q-{name}"))).unwrap()
    });
    assert!(made.iter().all(|file| *file == made[0]));
    // All values are multiples of the smallest step of their block.
    desk.succeed("dequantize q-f32 --tensor w --dtype bf16 -o d-bf16");
    desk.succeed("dequantize q-f32 --tensor w --dtype f16 -o d-f16");
    assert_eq!(desk.read("d-bf16").tensors["w"], (Dtype::BF16, vec![1, 32], bf16));
    assert_eq!(desk.read("d-f16").tensors["w"], (Dtype::F16, vec![1, 32], f16));
}

#[test]
fn files_of_other_programs_are_read_once_told_what_they_are() {
    let desk = Desk::new();
    let scales: Vec<u8> = (1..=8).collect();
    let tensors = [
        ("w", Dtype::U8, vec![4, 32], vec![0x22; 128]),
        ("w_scale", Dtype::U8, vec![4, 2, 1], scales.clone()),
    ];
    write(&desk.path("in"), &tensors, None);
    desk.succeed("relayout in --tensor w --format mxfp4 --from linear --to R128c4 -o out");
    let file = desk.read("out");
    assert_eq!(file.kind("w_scale"), (Dtype::F8_E8M0, &[128, 4][..]));
    let placed = [0, 16, 32, 48].map(|at| [file.bytes("w_scale")[at], file.bytes("w_scale")[at + 1]]);
    assert_eq!(placed.as_flattened(), scales);
    // The file says now what it is; that may be repeated, but not denied.
    desk.succeed("relayout out --tensor w --format mxfp4 --from 128x4 --to linear -o back");
    assert_eq!(desk.read("back").bytes("w_scale"), scales);
    desk.succeed("dequantize out --tensor w -o d");
    assert_eq!(desk.read("d").reals("w")[32], 2f32.powi(2 - 127));
}

#[test]
fn a_file_is_replaced_by_force_even_if_it_is_the_one_that_is_read() {
    let desk = Desk::new();
    desk.write_numbers("in", &[4, 64], &numbers(256));
    desk.succeed("quantize in --tensor w --format mxfp8 --layout linear --rounding rceil -o q");
    desk.succeed("relayout q --tensor w --to 128x4 -o apart");
    desk.succeed("relayout q --tensor w --to 128x4 -o q --force");
    assert_eq!(std::fs::read(desk.path("q")).unwrap(), std::fs::read(desk.path("apart")).unwrap());
    assert_eq!(desk.names(), ["apart", "in", "q"]);
}
