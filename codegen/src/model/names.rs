//! Names of entries, as Rust spells them.

/// Whether `name` can name an entry: a Rust identifier in snake case that is no keyword, in ASCII,
/// starting with a letter, of at most 64 characters.
pub fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_lowercase());
    let rest = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    starts && rest && name.len() <= 64 && !name.ends_with('_') && !name.contains("__") && !is_keyword(name)
}

fn is_keyword(name: &str) -> bool {
    syn::parse_str::<syn::Ident>(name).is_err() || matches!(name, "union" | "macro_rules" | "gen" | "raw")
}

/// Types that modules of layouts, formats and rows call by their bare names.
const TYPES: &[&str] = &[
    "Accepts",
    "Activation",
    "ActivationFunction",
    "All2all",
    "Axis",
    "Backend",
    "Bias",
    "BiasOrder",
    "BiasType",
    "BlockScale",
    "Calibrated",
    "Contract",
    "Convention",
    "Delivery",
    "Device",
    "Digit",
    "ElementType",
    "Encoding",
    "EpilogueFactor",
    "Evidence",
    "ExpertsClass",
    "Extent",
    "Fact",
    "Fit",
    "Format",
    "FormatSpec",
    "Function",
    "GemmType",
    "GlobalScale",
    "GlobalScope",
    "Grouping",
    "Half",
    "Honoured",
    "InputContract",
    "InputLayout",
    "Kernel",
    "Known",
    "LayerConfig",
    "Layout",
    "Order",
    "Parameter",
    "Payload",
    "PayloadWord",
    "PerToken",
    "QuantConfig",
    "QuantizeAt",
    "Reach",
    "Reads",
    "Requires",
    "Rounding",
    "RoutingMethod",
    "ScaleLayout",
    "ScaleSource",
    "ScaleType",
    "Unscaled",
    "VllmNames",
    "WeightContract",
    "WeightPad",
    "WeightScale",
];

/// Whether a module of layouts, formats or rows already has a type of this entry's name.
pub fn is_taken_type(name: &str) -> bool {
    TYPES.contains(&type_name(name).as_str())
}

/// Whether the module of layouts and of formats already has a static of this entry's name.
pub fn is_taken_static(name: &str) -> bool {
    let lists = ["formats", "layouts", "orders", "payloads"];
    lists.contains(&name) || ["order_", "payload_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The name of the type: `swizzled_128x4` is `Swizzled128x4`. Where a digit would meet a digit the
/// underscore stays, so `fp8_1x128` is `Fp8_1x128`.
pub fn type_name(name: &str) -> String {
    let mut camel = String::new();
    for part in name.split('_') {
        let digits_meet =
            camel.ends_with(|c: char| c.is_ascii_digit()) && part.starts_with(|c: char| c.is_ascii_digit());
        if digits_meet {
            camel.push('_');
        }
        let mut chars = part.chars();
        camel.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(chars.as_str());
    }
    camel
}

/// The name of the static: `swizzled_128x4` is `SWIZZLED_128X4`.
pub fn static_name(name: &str) -> String {
    name.to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(type_name("swizzled_128x4"), "Swizzled128x4");
        assert_eq!(type_name("fp8_1x128"), "Fp8_1x128");
        assert!(
            is_name("mn_major_f32") && !is_name("Mn") && !is_name("a__b") && !is_name("type") && !is_name("")
        );
    }
}
