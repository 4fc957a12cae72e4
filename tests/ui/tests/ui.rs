//! A buffer in the wrong layout, a wire buffer at a kernel, weights of another row, a scale in the other
//! convention, a padded size for a logical one and a type of no table do not compile, and the compiler
//! says so.

#[path = "../cases/right_use.rs"]
mod right_use;

/// That the refused calls differ from `cases/right_use.rs` in their types alone.
#[test]
fn the_right_use_compiles() {
    let _ = (right_use::cutlass, right_use::trtllm);
}

#[test]
fn wrong_uses_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("cases/crossed_scale_conventions.rs");
    cases.compile_fail("cases/crossed_sizes.rs");
    cases.compile_fail("cases/linear_scales_for_cutlass.rs");
    cases.compile_fail("cases/shuffled_weights_for_another_row.rs");
    cases.compile_fail("cases/swizzled_scales_on_the_wire.rs");
    cases.compile_fail("cases/types_of_no_table.rs");
    cases.compile_fail("cases/wire_buffer_for_a_kernel.rs");
}
