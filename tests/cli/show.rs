//! What the program says of the classes of a row.

use expect_test::expect;

use super::Desk;

/// What is said of the classes of each row.
fn classes(rows: &[&str]) -> String {
    let desk = Desk::new();
    let of = |row: &&str| {
        let said = desk.succeed(&format!("show {row}"));
        let (_, classes) = said.split_once("\nvLLM's classes, in order\n").unwrap();
        format!("{row}\n{}", classes.split("\n\n").next().unwrap())
    };
    rows.iter().map(of).collect::<Vec<_>>().join("\n")
}

#[test]
fn classes_say_what_they_ask_for_offer_and_refuse() {
    let rows = [
        "b12x_mxfp4_bf16",
        "emulation_nvfp4",
        "flashinfer_trtllm_mxfp4_bf16",
        "aiter_fp8_block",
        "aiter_mxfp8",
        "rdna3_int4",
    ];
    expect![[r#"
        b12x_mxfp4_bf16
          B12xExperts: on sm_120, sm_121; with b12x; activation silu, situ, swigluoai_uninterleave, relu2_no_mul; not with expert-parallel ranks
            offers plain
            refuses at once with bias: takes no biases of experts
            refuses at once where the intermediate size is no multiple of 32: takes no intermediate size that is not a multiple of 32
        emulation_nvfp4
          Nvfp4QuantizationEmulationTritonExperts: on sm_70, sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121, gfx90a, gfx942, gfx950, gfx1100, gfx1201, gfx1250, xe2; not behind flashinfer_nvlink_one_sided, flashinfer_nvlink_two_sided
            offers load_balancing, plain, batch_invariance
            refuses at once with lora: has no LoRA
            refuses at once with bias: takes no biases of experts
            refuses on sm_70, sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121, gfx90a, gfx942, gfx950, gfx1100, gfx1201, gfx1250, xe2, where the number of experts is at least 993: takes fewer than 993 experts
        flashinfer_trtllm_mxfp4_bf16
          TrtLlmMxfp4LoRAExperts: on sm_100, sm_103; with flashinfer; activation silu, swigluoai; no all-to-all; at most 1 data-parallel ranks
            tried where something is asked for by name, with lora
            offers lora
          TrtLlmMxfp4ExpertsMonolithic: routes itself; on sm_100, sm_103; with flashinfer; activation silu, swigluoai, situ; routing renormalize, renormalize_naive, deepseek_v3; no all-to-all; at most 1 data-parallel ranks
          TrtLlmMxfp4ExpertsModular: on sm_100, sm_103; with flashinfer; activation silu, swigluoai, situ
            offers load_balancing
        aiter_fp8_block
          AiterFp8BlockExperts: on gfx942, gfx950; with aiter; with the setting aiter on; with the setting aiter_moe on; activation silu, gelu, swigluoai, situ, swigluoai_uninterleave; not behind flashinfer_nvlink_one_sided, flashinfer_nvlink_two_sided
            offers load_balancing
        aiter_mxfp8
          AiterMxfp8Experts: on gfx950; with aiter; with the setting aiter on; with the setting aiter_moe on
            offers load_balancing, plain, lora
            refuses with gelu, gelu_tanh, relu2, swigluoai, swiglustep, situ, silu_no_mul, gelu_no_mul, gelu_tanh_no_mul, relu2_no_mul: does not have the activation function in this mode
            refuses with swigluoai_uninterleave, without alpha: does not honour the parameters of the function with this scheme
        rdna3_int4
          Rdna3WNA16Experts: on gfx1100; with vllm_rocm; no all-to-all
            offers plain"#]].assert_eq(&classes(&rows));
}
