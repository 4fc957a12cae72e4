//! The rows of the table as a program meets them: by type, by name, and chosen by an oracle.

#![allow(clippy::print_stdout, reason = "a test prints the row it is about")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use scalewright::backend::{Activation, Backend, Parameter};
use scalewright::config::{self, ActivationFunction, LayerConfig, QuantConfig};
use scalewright::for_each_backend;
use scalewright::generated::BackendId;
use scalewright::generated::backends::*;
use scalewright::generated::layouts::LAYOUTS;
use scalewright::generated::oracle::{fp8, mxfp4, nvfp4};
use scalewright::layout::{Extent, Fit, Layout};
use scalewright::oracle::{
    All2all, Device, Engine, NoSelection, Parallel, Request, RoutingMethod, Selection,
};
use scalewright_macros::backend_test;

#[backend_test]
fn is_known_by_name<B: Backend>() {
    let contract = B::CONTRACT;
    println!("{contract:#?}");
    let id: BackendId = contract.name.parse().unwrap();
    assert_eq!(id.to_string(), contract.name);
    assert!(std::ptr::eq(id.contract(), contract));
    assert!(CONTRACTS.iter().any(|listed| std::ptr::eq(*listed, contract)));
}

#[backend_test]
fn honours_what_it_says_and_refuses_the_rest<B: Backend>() {
    for kind in Activation::ALL {
        let honoured = B::CONTRACT.activations.iter().find(|honoured| honoured.function == *kind);
        let accepts = |function| config::honours(B::CONTRACT, function).is_ok();
        let neutral = with_parameter(*kind, None);
        assert_eq!(accepts(neutral), honoured.is_some(), "{} {kind}", B::CONTRACT.name);
        for parameter in Parameter::ALL {
            let function = with_parameter(*kind, Some(*parameter));
            let is_its_own = function != neutral;
            let says = honoured.is_some_and(|honoured| honoured.parameters.contains(parameter));
            assert!(is_its_own || !says, "{kind} has no {parameter}");
            assert!(!is_its_own || accepts(function) == says, "{} {function:?}", B::CONTRACT.name);
        }
    }
    // Calibrated scales are given exactly where the row reads them.
    let inputs = [Some(&B::CONTRACT.gemm1_input), B::CONTRACT.gemm2_input.as_ref()];
    let reads = inputs.into_iter().flatten().any(|input| input.calibrated().is_some());
    if let Some(honoured) = B::CONTRACT.activations.iter().find(|one| one.function == Activation::Silu) {
        let config = QuantConfig::<B>::new(LayerConfig::dynamic(ActivationFunction::SILU));
        assert_eq!(config.is_ok(), !reads, "{} {honoured:?}", B::CONTRACT.name);
    }
}

/// The function with neutral parameters, but for one, if it has that.
fn with_parameter(kind: Activation, changed: Option<Parameter>) -> ActivationFunction {
    let or_neutral = |parameter, neutral: f32| if changed == Some(parameter) { 2.5 } else { neutral };
    let (alpha, beta) = (or_neutral(Parameter::Alpha, 1.0), or_neutral(Parameter::Beta, 0.0));
    let limit = or_neutral(Parameter::Limit, f32::INFINITY);
    match kind {
        Activation::Silu => ActivationFunction::Silu { limit },
        Activation::Gelu => ActivationFunction::Gelu,
        Activation::GeluTanh => ActivationFunction::GeluTanh,
        Activation::Relu2 => ActivationFunction::Relu2,
        Activation::Swigluoai => ActivationFunction::Swigluoai { alpha, beta, limit },
        Activation::SwigluoaiUninterleave => ActivationFunction::SwigluoaiUninterleave { alpha, beta, limit },
        Activation::Swiglustep => ActivationFunction::Swiglustep { limit },
        Activation::Situ => ActivationFunction::Situ {
            beta: or_neutral(Parameter::Beta, f32::INFINITY),
            linear_beta: or_neutral(Parameter::LinearBeta, f32::INFINITY),
        },
        Activation::SiluNoMul => ActivationFunction::SiluNoMul,
        Activation::GeluNoMul => ActivationFunction::GeluNoMul,
        Activation::GeluTanhNoMul => ActivationFunction::GeluTanhNoMul,
        Activation::Relu2NoMul => ActivationFunction::Relu2NoMul,
    }
}

#[test]
fn ids_are_the_rows() {
    let names: Vec<_> = BackendId::ALL.iter().map(|id| id.name()).collect();
    assert_eq!(names, CONTRACTS.iter().map(|contract| contract.name).collect::<Vec<_>>());
    assert!(names.is_sorted());
    let error = "flashinfer_cutlas".parse::<BackendId>().unwrap_err();
    assert_eq!(error.known, names);
    assert!(error.to_string().starts_with("`flashinfer_cutlas` is not known (did you mean `"));
}

/// A constructor takes what its row honours: swigluoai has a place in one and none in the other.
#[test]
fn constructors_take_what_the_row_honours() {
    use flashinfer_cutlass_mxfp4_mxfp8::Activation::Swigluoai;
    let config = FlashinferCutlassMxfp4Mxfp8::config(Swigluoai { alpha: 1.702, beta: 1.0, limit: 7.0 });
    let expected = ActivationFunction::Swigluoai { alpha: 1.702, beta: 1.0, limit: 7.0 };
    assert_eq!(config.activation(), expected);
    assert_eq!(config.contract().name, "flashinfer_cutlass_mxfp4_mxfp8");

    let config = DeepgemmFp8BlockSm90::config(deepgemm_fp8_block_sm90::Activation::Silu);
    assert_eq!(config.activation(), ActivationFunction::SILU);
    let error = config::honours(DeepgemmFp8BlockSm90::CONTRACT, expected).unwrap_err();
    assert_eq!(
        error.to_string(),
        "backend `deepgemm_fp8_block_sm90` does not honour the activation function swigluoai; \
         it honours silu, swigluoai_uninterleave, swiglustep"
    );
}

fn gpt_oss(device: Device) -> Request {
    Request::new(device, Activation::Swigluoai, 2880)
}

fn with_scheme(scheme: &str, request: Request) -> Request {
    Request { scheme: Some(scheme.to_owned()), ..request }
}

fn chosen(selection: Result<Selection, NoSelection>) -> (&'static str, Option<&'static str>) {
    let selection = selection.unwrap();
    (selection.contract.name, selection.class)
}

/// Member, class and code of each refusal.
fn refused(
    selection: &Result<Selection, NoSelection>,
) -> Vec<(&'static str, Option<&'static str>, &'static str)> {
    let rejected = match selection {
        Ok(selection) => &selection.rejected,
        Err(nothing) => nothing.rejected(),
    };
    rejected.iter().map(|rejected| (rejected.backend, rejected.class, rejected.reason.code())).collect()
}

const MONOLITHIC: Option<&str> = Some("TrtLlmMxfp4ExpertsMonolithic");
const OAI_MONOLITHIC: Option<&str> = Some("OAITritonMxfp4ExpertsMonolithic");
const MODULAR: Option<&str> = Some("TrtLlmMxfp4ExpertsModular");

#[test]
fn blackwell_runs_the_monolithic_kernel() {
    let plain = mxfp4::select(&with_scheme("mxfp4", gpt_oss(Device::Sm100)));
    assert!(refused(&plain).is_empty());
    assert_eq!(chosen(plain), ("flashinfer_trtllm_mxfp4_bf16", MONOLITHIC));
    let quantized = mxfp4::select(&with_scheme("mxfp4_mxfp8", gpt_oss(Device::Sm100)));
    assert_eq!(chosen(quantized), ("flashinfer_trtllm_mxfp4_mxfp8", MONOLITHIC));
}

#[test]
fn a_routing_method_or_an_all2all_of_its_own_needs_the_modular_kernel() {
    let member = "FLASHINFER_TRTLLM_MXFP4_BF16";
    let other = Request { routing: RoutingMethod::Llama4, ..gpt_oss(Device::Sm100) };
    let selection = mxfp4::select(&with_scheme("mxfp4", other));
    assert_eq!(refused(&selection), [(member, MONOLITHIC, "routing_method")]);
    assert_eq!(chosen(selection), ("flashinfer_trtllm_mxfp4_bf16", MODULAR));

    let all2all = Some(All2all::AllgatherReducescatter);
    let parallel = Parallel { data_parallel: 2, expert_parallel: Some(2), all2all, ..Parallel::default() };
    let request = Request { parallel, ..gpt_oss(Device::Sm100) };
    let selection = mxfp4::select(&with_scheme("mxfp4", request));
    assert_eq!(refused(&selection), [(member, MONOLITHIC, "parallel_config")]);
    assert_eq!(chosen(selection), ("flashinfer_trtllm_mxfp4_bf16", MODULAR));
}

/// Where TRT-LLM does not run, tokens that are to be MXFP8 go to CUTLASS.
#[test]
fn small_blackwell_runs_cutlass() {
    let selection = mxfp4::select(&with_scheme("mxfp4_mxfp8", gpt_oss(Device::Sm120)));
    let member = "FLASHINFER_TRTLLM_MXFP4_MXFP8";
    assert_eq!(refused(&selection), [MONOLITHIC, MODULAR].map(|class| (member, class, "device")));
    assert_eq!(chosen(selection), ("flashinfer_cutlass_mxfp4_mxfp8", Some("FlashInferExperts")));
}

#[test]
fn one_member_of_an_enum_is_a_row_for_each_device() {
    let on = |device| chosen(mxfp4::select(&with_scheme("mxfp4", gpt_oss(device))));
    assert_eq!(on(Device::Sm90), ("triton_mxfp4_sm90", OAI_MONOLITHIC));
    assert_eq!(on(Device::Sm110), ("triton_mxfp4_sm100", OAI_MONOLITHIC));
    assert_eq!(on(Device::Sm89), ("marlin_mxfp4", Some("MarlinExperts")));
}

#[test]
fn where_nothing_fits_every_class_says_why() {
    let request = Request { activation: Activation::Silu, ..gpt_oss(Device::CpuArm) };
    let selection = nvfp4::select(&with_scheme("nvfp4", request));
    let nothing = selection.clone().unwrap_err();
    assert!(matches!(nothing, NoSelection::NothingFits { family: "nvfp4", .. }));
    let said = nothing.to_string();
    let refused = refused(&selection);
    assert!(refused.contains(&("FLASHINFER_CUTLASS", Some("FlashInferExperts"), "device")), "{refused:?}");
    for (member, class, code) in refused {
        assert_eq!(code, "device");
        assert!(said.contains(member) && class.is_some_and(|class| said.contains(class)), "{said}");
    }
}

/// `requires` speaks of the engine's kernels; this crate's run anywhere.
#[test]
fn the_native_engine_runs_anywhere() {
    for device in Device::ALL {
        let request = Request { engine: Engine::Native, ..gpt_oss(*device) };
        assert_eq!(chosen(mxfp4::select(&request)), ("flashinfer_cutlass_mxfp4_mxfp8", None));
    }
}

#[test]
fn a_missing_library_is_named() {
    let without = |libraries: &[&str]| {
        let missing_libraries = libraries.iter().map(|library| (*library).to_owned()).collect();
        mxfp4::select(&with_scheme("mxfp4", Request { missing_libraries, ..gpt_oss(Device::Sm100) }))
    };
    let selection = without(&["flashinfer"]);
    assert_eq!(chosen(selection.clone()), ("triton_mxfp4_sm100", OAI_MONOLITHIC));
    let reasons: Vec<_> = selection.unwrap().rejected.iter().map(|one| one.reason.to_string()).collect();
    assert!(reasons[0].contains("flashinfer"), "{reasons:?}");
    assert_eq!(chosen(without(&["flashinfer", "triton_kernels"])).0, "marlin_mxfp4");
}

/// A name that the user gives is followed or refused, never replaced.
#[test]
fn a_backend_that_is_asked_for_is_followed_or_refused() {
    let asked = |name: &str, device| {
        let backend = Some(name.to_owned());
        mxfp4::select(&with_scheme("mxfp4_mxfp8", Request { backend, ..gpt_oss(device) }))
    };
    let followed = chosen(asked("flashinfer_cutlass", Device::Sm100));
    assert_eq!(followed, ("flashinfer_cutlass_mxfp4_mxfp8", Some("FlashInferExperts")));
    let refused = asked("flashinfer_cutlass", Device::Sm80).unwrap_err();
    assert!(matches!(refused, NoSelection::AskedFor { .. }), "{refused}");
    let unknown = asked("flashinfer_cutlas", Device::Sm100).unwrap_err().to_string();
    assert!(unknown.contains("did you mean `flashinfer_cutlass`?"), "{unknown}");
    let dropped = asked("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", Device::Sm100).unwrap_err();
    assert!(matches!(dropped, NoSelection::Dropped { .. }), "{dropped}");
    assert!(dropped.to_string().contains("write flashinfer_cutlass"), "{dropped}");
}

#[test]
fn schemes_and_functions_that_no_row_has_are_refused() {
    let request = Request { activation: Activation::Silu, ..gpt_oss(Device::Sm80) };
    let selection = fp8::select(&with_scheme("fp8_block64", request));
    let codes: BTreeSet<_> = refused(&selection).iter().map(|(_, _, code)| *code).collect();
    assert!(codes.contains("quant_scheme") && codes.contains("device"), "{codes:?}");
    assert!(selection.is_err());

    let silu = Request { activation: Activation::Silu, ..gpt_oss(Device::Sm100) };
    let silu = Request { missing_libraries: vec!["flashinfer".to_owned()], ..silu };
    let deepgemm = Some("TritonOrDeepGemmExperts");
    let selection = fp8::select(&with_scheme("fp8_block128", silu.clone()));
    assert_eq!(chosen(selection), ("deepgemm_fp8_block_sm100", deepgemm));
    let gelu = Request { activation: Activation::Gelu, ..silu };
    let refused = refused(&fp8::select(&with_scheme("fp8_block128", gelu)));
    assert!(refused.contains(&("DEEPGEMM", deepgemm, "activation")), "{refused:?}");
}

fn agrees(layout: &Layout, row: usize, col: usize, physical: Extent) {
    let offset = (layout.offset)(row, col, physical);
    let place = format!("({row}, {col}) of {} in {physical:?}", layout.name);
    assert!(offset < physical.count(), "{place} is stored at {offset}");
    assert_eq!(offset, layout.offset_by_digits(row, col, physical), "{place}");
    assert_eq!((layout.locate)(offset, physical), (row, col), "{place}");
    assert_eq!(layout.locate_by_digits(offset, physical), (row, col), "{place}");
}

/// The smallest box of at least this size that the layout takes.
fn box_of(layout: &Layout, rows: usize, cols: usize) -> Extent {
    let (Fit::Pad(multiple) | Fit::Divide(multiple)) = layout.fit;
    Extent { rows: rows.next_multiple_of(multiple.rows), cols: cols.next_multiple_of(multiple.cols) }
}

/// The straight-line arithmetic that was generated is the digits' on every place of small boxes.
#[test]
fn maps_are_the_digits_on_small_boxes() {
    for layout in LAYOUTS {
        for (rows, cols) in [(1, 1), (5, 3), (129, 9), (260, 17)] {
            let physical = box_of(layout, rows, cols);
            for row in 0..physical.rows {
                (0..physical.cols).for_each(|col| agrees(layout, row, col, physical));
            }
        }
    }
}

proptest! {
    #[test]
    fn maps_are_the_digits_on_large_boxes(
        layout in prop::sample::select(LAYOUTS),
        (rows, cols) in (1usize..1 << 20, 1usize..1 << 12),
        (row, col) in (0usize..1 << 20, 0usize..1 << 12),
    ) {
        let physical = box_of(layout, rows, cols);
        agrees(layout, row % physical.rows, col % physical.cols, physical);
    }
}
