//! Rows: the type, the contract, what it accepts, the config constructor and the tests.

use proc_macro2::TokenStream;
use quote::quote;

use super::layouts::{order_ident, payload_ident};
use super::{Module, count, ident, imports, option, select, static_ident, transports, type_ident, variant};
use crate::model::words::{Activation, Convention, Parameter, QuantizeAt, Word};
use crate::model::{
    self, Backend, Format, GlobalScale, Grouping, Input, Kernel, Known, Layout, Scales, Table, Weight,
};

pub(super) fn module(table: &Table) -> Module {
    let rows: Vec<_> = table.backends.iter().map(|row| ident(&row.name)).collect();
    let types = table.backends.iter().map(|row| type_ident(&row.name));
    let items = quote! {
        #(pub use self::#rows::#types;)*

        /// Every row's contract, sorted by name.
        pub static CONTRACTS: &[&::scalewright::backend::Contract] = &[#(&#rows::CONTRACT),*];
    };
    Module {
        name: "backends".to_owned(),
        doc: "The rows of the table.".to_owned(),
        items,
        children: table.backends.iter().map(|row| one(row, table)).collect(),
    }
}

fn one(row: &Backend, table: &Table) -> Module {
    let ty = type_ident(&row.name);
    let type_doc = format!(" `[backend.{}]`: {}.", row.name, summary(row));
    let reads = reads(row, table);
    let (honours, config, gate_up) = (honours(row), config(row), gate_up(row));
    let contract = contract(row, table);
    let tests = tests(row);
    let items = quote! {
        #[doc = #type_doc]
        #[derive(Debug, Clone, Copy)]
        pub enum #ty {}

        row!(#ty #(, #reads)*);
        #honours
        #gate_up
        #config
        #contract
        #tests
    };
    let siblings = ["device_groups", "formats", "kernel_classes", "layouts", "transports"];
    let siblings = imports(quote!(super::super), &siblings, &items);
    Module {
        name: row.name.clone(),
        doc: format!("`[backend.{}]`", row.name),
        items: quote!(use ::scalewright::row::*; #siblings #items),
        children: Vec::new(),
    }
}

fn summary(row: &Backend) -> String {
    let formats: Vec<_> = row.gemm1.formats.iter().map(|format| format.name.as_str()).collect();
    let who = match row.kernel {
        Kernel::Generated => "executed by this crate",
        Kernel::Described(_) => "described, not yet executed",
        Kernel::External => "run by the vendor's library",
    };
    format!("{} weights, {} tokens, {who}", row.weight.format.name, formats.join(" or "))
}

/// The formats that the row is handed in a known layout; where its experts quantise, these are the
/// table's formats without scales.
fn reads(row: &Backend, table: &Table) -> Vec<TokenStream> {
    let input = &row.gemm1;
    let (formats, layout) = match &input.layout {
        _ if input.quantize == Some(QuantizeAt::Expert) => {
            let plain = table.formats.iter().filter(|format| format.block.is_none());
            (plain.collect::<Vec<_>>(), quote!(Unscaled))
        }
        Known::Vendor(_) => return Vec::new(),
        Known::Is(Scales::Unscaled) => (input.formats.iter().collect(), quote!(Unscaled)),
        Known::Is(Scales::At { prepared, .. }) => {
            let layout = type_ident(&prepared.name);
            (input.handed().iter().collect(), quote!(layouts::#layout))
        }
    };
    let reads = formats.into_iter().map(|format| {
        let format = type_ident(&format.name);
        quote!(reads(formats::#format, #layout))
    });
    reads.collect()
}

fn honours(row: &Backend) -> TokenStream {
    if row.honours.is_empty() {
        return TokenStream::new();
    }
    let functions = row.honours.iter().map(|(function, parameters)| {
        let name = variant(*function);
        let taken: Vec<_> = parameters.iter().map(|parameter| ident(parameter.name())).collect();
        let taken = (!taken.is_empty()).then(|| quote!((#(#taken),*)));
        let fixed = function.parameters().iter().filter(|parameter| !parameters.contains(parameter));
        let fixed: Vec<_> = fixed
            .map(|parameter| {
                let (field, value) = (ident(parameter.name()), neutral(*function, *parameter));
                quote!(#field = #value)
            })
            .collect();
        let fixed = (!fixed.is_empty()).then(|| quote!([#(#fixed),*]));
        quote!(#name #taken #fixed)
    });
    quote!(honours!(#(#functions),*);)
}

/// The counterpart of vLLM's `*_moe_quant_config`: takes what the row honours and nothing else.
fn config(row: &Backend) -> TokenStream {
    if row.honours.is_empty() {
        return TokenStream::new();
    }
    let ty = type_ident(&row.name);
    let gemms = [("gemm1_input", Some(&row.gemm1)), ("gemm2_input", row.gemm2.as_ref())];
    let given = gemms.map(|(name, input)| Some((ident(name), input?, input?.calibrated()?)));
    let parameters = given.iter().flatten().map(|(name, _, convention)| {
        let ty = variant(*convention);
        quote!(#name: #ty)
    });
    let parameters: Vec<_> = parameters.collect();
    let given_doc = (!parameters.is_empty()).then(|| {
        let doc = " The scales are those of the GEMMs' inputs, from the model's calibration; where a \
                   checkpoint has one an expert, the largest of them.";
        quote!(#[doc = ""] #[doc = #doc])
    });
    let layer = if parameters.is_empty() {
        quote!(LayerConfig::dynamic(activation.into()))
    } else {
        let [gemm1, gemm2] = given.map(|given| {
            option(given.map(|(name, input, convention)| match (input.global, convention) {
                (None, _) => quote!(Calibrated::Static(#name)),
                (Some(_), Convention::Divisor) => quote!(Calibrated::Global(#name)),
                (Some(_), Convention::Multiplier) => quote!(Calibrated::Global(#name.to_divisor())),
            }))
        });
        quote!(LayerConfig { activation: activation.into(), gemm1: #gemm1, gemm2: #gemm2 })
    };
    quote! {
        impl #ty {
            /// The quant config of a layer on this row.
            #given_doc
            pub fn config(activation: Activation, #(#parameters),*) -> QuantConfig<Self> {
                QuantConfig::from_row(#layer)
            }
        }
    }
}

/// The value of a parameter that leaves the function as it is without it.
fn neutral(function: Activation, parameter: Parameter) -> TokenStream {
    match parameter {
        Parameter::Alpha => quote!(1.0),
        // Where situ saturates.
        Parameter::Beta if function == Activation::Situ => quote!(f32::INFINITY),
        Parameter::Beta => quote!(0.0),
        Parameter::LinearBeta | Parameter::Limit => quote!(f32::INFINITY),
    }
}

/// One test for each promise of an executed row; the suites are the crate's.
fn tests(row: &Backend) -> TokenStream {
    if row.kernel != Kernel::Generated {
        return TokenStream::new();
    }
    quote! {
        #[cfg(test)]
        mod tests {
            ::scalewright::conformance_tests!(super::CONTRACT);
        }
    }
}

fn contract(row: &Backend, table: &Table) -> TokenStream {
    let name = &row.name;
    let vllm = option(row.vllm.as_ref().map(|vllm| {
        let (backend, flags) = (&vllm.backend, &vllm.flags);
        quote!(VllmNames { backend: #backend, flags: &[#(#flags),*] })
    }));
    let kernel = match &row.kernel {
        Kernel::Generated => quote!(Kernel::Generated),
        Kernel::Described(obstacle) => quote!(Kernel::Described(#obstacle)),
        Kernel::External => quote!(Kernel::External),
    };
    let facts = row.facts.iter().map(|fact| {
        let (from, at, how) = (&fact.from, &fact.at, variant(fact.how));
        quote!(Fact::new(#from, #at, Evidence::#how))
    });
    let weight = weight(&row.weight);
    let gemm1 = input(&row.gemm1);
    let gemm2 = option(row.gemm2.as_ref().map(input));
    let honours = if row.honours.is_empty() { quote!(&[]) } else { quote!(HONOURS) };
    let experts = select::classes(&row.experts, table);
    let (serves, classes) = (&row.serves, &row.classes);
    let devices = select::devices(row.devices.as_ref(), table);
    let routes = transports::list_ident(row);
    quote! {
        /// The row as a value.
        pub static CONTRACT: Contract = Contract {
            name: #name,
            vllm: #vllm,
            kernel: #kernel,
            facts: &[#(#facts),*],
            weight: #weight,
            gemm1_input: #gemm1,
            gemm2_input: #gemm2,
            activations: #honours,
            serves: &[#(#serves),*],
            devices: #devices,
            experts: #experts,
            classes: &[#(#classes),*],
            routes: transports::#routes,
        };
    }
}

/// A field and its value; `None` for one that is left out.
type Said = Option<(&'static str, TokenStream)>;

/// `Type { what is said, ..rest }`; `rest` alone if nothing is.
fn partial(ty: &str, said: Vec<Said>, rest: TokenStream) -> TokenStream {
    if said.iter().all(Option::is_none) {
        return rest;
    }
    let ty = ident(ty);
    let rest = said.iter().any(Option::is_none).then(|| quote!(..#rest));
    let said = said.into_iter().flatten().map(|(key, value)| {
        let key = ident(key);
        quote!(#key: #value)
    });
    quote!(#ty { #(#said,)* #rest })
}

fn some(key: &'static str, value: Option<TokenStream>) -> Said {
    value.map(|value| (key, quote!(Some(#value))))
}

fn format(format: &Format) -> TokenStream {
    let name = static_ident(&format.name);
    quote!(&formats::#name)
}

fn layout(layout: &Layout) -> TokenStream {
    let name = static_ident(&layout.name);
    quote!(&layouts::#name)
}

fn known<T>(known: &Known<T>, is: impl Fn(&T) -> TokenStream) -> TokenStream {
    match known {
        Known::Is(value) => {
            let value = is(value);
            quote!(Known::Is(#value))
        }
        Known::Vendor(why) => quote!(Known::Vendor(#why)),
    }
}

fn gate_up(row: &Backend) -> TokenStream {
    let mut orders: Vec<(&str, Vec<_>)> = Vec::new();
    for (function, order) in &row.weight.gate_up {
        let function = variant(*function);
        match orders.iter_mut().find(|(name, _)| *name == order.name) {
            Some((_, functions)) => functions.push(function),
            None => orders.push((&order.name, vec![function])),
        }
    }
    if orders.is_empty() {
        return TokenStream::new();
    }
    let orders = orders.into_iter().map(|(name, functions)| {
        let order = order_ident(name);
        quote!(layouts::#order[#(#functions),*])
    });
    quote!(gate_up!(#(#orders),*);)
}

fn weight(weight: &Weight) -> TokenStream {
    let own_format = format(&weight.format);
    let payload = known(&weight.payload, |payload| {
        let name = payload_ident(&payload.name);
        quote!(&layouts::#name)
    });
    let pad = weight.pad.map(|pad| {
        let (hidden, gated, plain) = (count(pad.hidden), count(pad.gated), count(pad.plain));
        let fill = count(pad.fill.into());
        quote!(WeightPad { hidden: #hidden, gated: #gated, plain: #plain, fill: #fill })
    });
    let bias = weight.bias.map(|bias| {
        let dtype = variant(bias.dtype);
        let order = bias.order.map_or_else(
            || quote!(BiasOrder::AsRows),
            |order| {
                let order = variant(order);
                quote!(BiasOrder::#order)
            },
        );
        quote!(Bias { dtype: BiasType::#dtype, order: #order })
    });
    let down = weight.down.as_ref().map(|order| {
        let order = order_ident(&order.name);
        quote!(&layouts::#order)
    });
    let said = vec![
        some("requantize_from", weight.requantize_from.as_deref().map(format)),
        some("scale", weight.scale.as_ref().map(weight_scale)),
        (!weight.gate_up.is_empty()).then(|| ("gate_up", quote!(GATE_UP))),
        some("down", down),
        some("pad", pad),
        some("bias", bias),
    ];
    partial("WeightContract", said, quote!(WeightContract::of(#own_format, #payload)))
}

fn weight_scale(scale: &model::WeightScale) -> TokenStream {
    let layout = known(&scale.layout, |known| layout(known));
    let encoding = known(&scale.encoding, |encoding| {
        let encoding = variant(*encoding);
        quote!(Encoding::#encoding)
    });
    let fill = count(scale.fill.into());
    let repeat_rows = count(scale.repeat_rows);
    let base = match (&scale.layout, &scale.encoding) {
        (Known::Vendor(why), Known::Vendor(same)) if why == same => quote!(WeightScale::vendor(#why, #fill)),
        _ => quote!(WeightScale::of(#layout, #encoding, #fill)),
    };
    let said = vec![
        (scale.repeat_rows != 1).then(|| ("repeat_rows", quote!(#repeat_rows))),
        some("global", scale.global.map(global)),
    ];
    partial("WeightScale", said, base)
}

fn global(global: GlobalScale) -> TokenStream {
    let (convention, scope) = (variant(global.convention), variant(global.scope));
    quote!(GlobalScale { convention: Convention::#convention, scope: GlobalScope::#scope })
}

fn input(input: &Input) -> TokenStream {
    let formats = input.formats.iter().map(|one| format(one));
    let scales = match &input.layout {
        Known::Is(Scales::Unscaled) => None,
        Known::Is(Scales::At { prepared, kernel }) => {
            let one = prepared == kernel;
            let (prepared, kernel) = (layout(prepared), layout(kernel));
            let layout = if one {
                quote!(InputLayout::same(#prepared))
            } else {
                quote!(InputLayout { prepared: #prepared, kernel: #kernel })
            };
            Some(quote!(Known::Is(#layout)))
        }
        Known::Vendor(why) => Some(quote!(Known::Vendor(#why))),
    };
    let multiple = count(input.multiple);
    let said = vec![
        word("rounding", "Rounding", input.rounding),
        word("quantize", "QuantizeAt", input.quantize),
        scales.map(|scales| ("layout", scales)),
        some("prepared_format", input.prepared_format.as_deref().map(format)),
        some("grouping", input.grouping.map(grouping)),
        (input.multiple != 1).then(|| ("multiple", quote!(#multiple))),
        word("source", "ScaleSource", input.source),
        some("global", input.global.map(global)),
        word("alpha", "EpilogueFactor", input.alpha),
    ];
    partial("InputContract", said, quote!(InputContract::unscaled(&[#(#formats),*])))
}

/// `key: Some(Type::Word)`.
fn word<W: Word>(key: &'static str, ty: &str, word: Option<W>) -> Said {
    some(
        key,
        word.map(|word| {
            let (ty, word) = (ident(ty), variant(word));
            quote!(#ty::#word)
        }),
    )
}

fn grouping(grouping: Grouping) -> TokenStream {
    match grouping {
        Grouping::Tokens => quote!(Grouping::Tokens),
        Grouping::Slots => quote!(Grouping::Slots),
        Grouping::Ranges(multiple) => {
            let multiple = count(multiple);
            quote!(Grouping::Ranges { start_multiple: #multiple })
        }
        Grouping::SpreadRanges(multiple) => {
            let multiple = count(multiple);
            quote!(Grouping::SpreadRanges { start_multiple: #multiple })
        }
    }
}
