//! Brings `generated/` up to date with `backends.toml`. Not part of the published package.

fn main() {
    scalewright_codegen::Builder::new("backends.toml", "generated").build_script();
}
