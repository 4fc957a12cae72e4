//! Rows: the type, the contract, what it accepts, the config constructor and the tests.

use proc_macro2::TokenStream;
use quote::quote;

use super::layouts::{order_ident, payload_ident};
use super::{Module, count, ident, imports, option, select, static_ident, type_ident, variant};
use crate::model::words::{Activation, Convention, Parameter, QuantizeAt, Word};
use crate::model::{
    Backend, Delivery, Format, Grouping, Input, Kernel, Known, Layout, Scales, Table, Weight,
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
    let doc = format!("The row `[backend.{}]`: {}.", row.name, summary(row));
    let type_doc = super::doc(&doc);
    let contract = contract(row, table);
    let reads = reads(row, table);
    let config = config(row);
    let tests = tests(row);
    let items = quote! {
        #type_doc
        #[derive(Debug, Clone, Copy)]
        pub enum #ty {}

        #[diagnostic::do_not_recommend]
        impl ::scalewright::__private::Sealed for #ty {}

        impl Backend for #ty {
            const CONTRACT: &'static Contract = &CONTRACT;
        }

        #reads
        #config
        #contract
        #tests
    };
    let names = [
        "Accepts",
        "Activation as Function",
        "EpilogueFactor",
        "Backend",
        "Bias",
        "BiasOrder",
        "BiasType",
        "Contract",
        "Convention",
        "Delivery",
        "Encoding",
        "Evidence",
        "Fact",
        "GlobalScale",
        "GlobalScope",
        "Grouping",
        "Honoured",
        "InputContract",
        "InputLayout",
        "Kernel",
        "Known",
        "Parameter",
        "QuantizeAt",
        "Reads",
        "ScaleSource",
        "VllmNames",
        "WeightContract",
        "WeightPad",
        "WeightScale",
    ];
    let backend_names = imports(quote!(::scalewright::backend), &names, &items);
    let config_names =
        imports(quote!(::scalewright::config), &["ActivationFunction", "LayerConfig", "QuantConfig"], &items);
    let oracle_names = imports(quote!(::scalewright::oracle), &select::NAMES, &items);
    let scale_names = imports(quote!(::scalewright::scale), &["Calibrated"], &items);
    let siblings = imports(quote!(super::super), &["formats", "kernel_classes", "layouts"], &items);
    let items = quote!(#backend_names #config_names #oracle_names #scale_names #siblings #items);
    Module { name: row.name.clone(), doc, items, children: Vec::new() }
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

/// `Reads` and `Accepts`, for each format that the row is handed in a known layout; where its experts
/// quantise, these are the table's formats without scales.
fn reads(row: &Backend, table: &Table) -> TokenStream {
    let input = &row.gemm1;
    let unscaled = quote!(::scalewright::layout::Unscaled);
    let (formats, layout) = match &input.layout {
        _ if input.quantize == Some(QuantizeAt::Expert) => {
            let plain = table.formats.iter().filter(|format| format.block.is_none());
            (plain.collect::<Vec<_>>(), unscaled)
        }
        Known::Vendor(_) => return TokenStream::new(),
        Known::Is(Scales::Unscaled) => (input.formats.iter().collect(), unscaled),
        Known::Is(Scales::At { prepared, .. }) => {
            let layout = type_ident(&prepared.name);
            (input.handed().iter().collect(), quote!(layouts::#layout))
        }
    };
    let ty = type_ident(&row.name);
    let impls = formats.into_iter().map(|format| {
        let format = type_ident(&format.name);
        quote! {
            impl Reads<formats::#format> for #ty {
                type Prepared = #layout;
            }

            impl Accepts<::scalewright::tensor::Quantized<formats::#format, #layout>> for #ty {}
        }
    });
    impls.collect()
}

/// The counterpart of vLLM's `*_moe_quant_config`: takes what the row honours and nothing else.
fn config(row: &Backend) -> TokenStream {
    if row.honours.is_empty() {
        return TokenStream::new();
    }
    let ty = type_ident(&row.name);
    let variants = row.honours.iter().map(|(function, parameters)| {
        let name = variant(*function);
        if parameters.is_empty() {
            return quote!(#name);
        }
        let fields = parameters.iter().map(|parameter| ident(parameter.name()));
        quote!(#name { #(#fields: f32),* })
    });
    let arms = row.honours.iter().map(|(function, parameters)| {
        let name = variant(*function);
        let taken: Vec<_> = parameters.iter().map(|parameter| ident(parameter.name())).collect();
        let pattern = if taken.is_empty() {
            quote!(Activation::#name)
        } else {
            quote!(Activation::#name { #(#taken),* })
        };
        let all = function.parameters().iter().map(|parameter| {
            let field = ident(parameter.name());
            if parameters.contains(parameter) {
                quote!(#field)
            } else {
                let neutral = neutral(*function, *parameter);
                quote!(#field: #neutral)
            }
        });
        let value = if function.parameters().is_empty() {
            quote!(ActivationFunction::#name)
        } else {
            quote!(ActivationFunction::#name { #(#all),* })
        };
        quote!(#pattern => #value)
    });
    let gemms = [("gemm1_input", Some(&row.gemm1)), ("gemm2_input", row.gemm2.as_ref())];
    let given = gemms.map(|(name, input)| Some((ident(name), input?, input?.calibrated()?)));
    let parameters = given.iter().flatten().map(|(name, _, convention)| {
        let ty = variant(*convention);
        quote!(#name: ::scalewright::scale::#ty)
    });
    let parameters: Vec<_> = parameters.collect();
    let given_doc = (!parameters.is_empty()).then(|| {
        let doc = " The scales are those of the GEMMs' inputs, from the model's calibration; where a \
                   checkpoint has one an expert, the largest of them.";
        quote!(#[doc = ""] #[doc = #doc])
    });
    let [gemm1, gemm2] = given.map(|given| {
        option(given.map(|(name, input, convention)| match (input.global, convention) {
            (None, _) => quote!(Calibrated::Static(#name)),
            (Some(_), Convention::Divisor) => quote!(Calibrated::Global(#name)),
            (Some(_), Convention::Multiplier) => quote!(Calibrated::Global(#name.to_divisor())),
        }))
    });
    quote! {
        /// The activation functions that the row honours, with the parameters that it honours.
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[allow(missing_docs, reason = "the words of the table, which `backend::Activation` explains")]
        pub enum Activation {
            #(#variants,)*
        }

        impl #ty {
            /// The quant config of a layer on this row.
            #given_doc
            pub fn config(activation: Activation, #(#parameters),*) -> QuantConfig<Self> {
                let activation = match activation {
                    #(#arms,)*
                };
                QuantConfig::from_row(LayerConfig { activation, gemm1: #gemm1, gemm2: #gemm2 })
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
    let honours = row.honours.iter().map(|(function, parameters)| {
        let (function, parameters) =
            (variant(*function), parameters.iter().map(|parameter| variant(*parameter)));
        quote!(Honoured::new(Function::#function, &[#(Parameter::#parameters),*]))
    });
    let experts = select::classes(&row.experts);
    let (serves, classes) = (&row.serves, &row.classes);
    let devices = select::devices(row.devices.as_ref());
    let deliveries = table.transports.iter().map(|transport| {
        let (name, delivery) = (&transport.name, delivery(&transport.delivery(row)));
        quote!((#name, #delivery))
    });
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
            activations: &[#(#honours),*],
            serves: &[#(#serves),*],
            devices: #devices,
            experts: #experts,
            classes: &[#(#classes),*],
            deliveries: &[#(#deliveries),*],
        };
    }
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

fn weight(weight: &Weight) -> TokenStream {
    let own_format = format(&weight.format);
    let requantize_from = option(weight.requantize_from.as_deref().map(format));
    let payload = known(&weight.payload, |payload| {
        let name = payload_ident(&payload.name);
        quote!(&layouts::#name)
    });
    let scale = option(weight.scale.as_ref().map(|scale| {
        let layout = known(&scale.layout, |known| layout(known));
        let encoding = known(&scale.encoding, |encoding| {
            let encoding = variant(*encoding);
            quote!(Encoding::#encoding)
        });
        let (repeat_rows, fill) = (count(scale.repeat_rows), count(scale.fill.into()));
        let global = global(scale.global);
        quote! {
            WeightScale {
                layout: #layout,
                encoding: #encoding,
                repeat_rows: #repeat_rows,
                fill: #fill,
                global: #global,
            }
        }
    }));
    let gate_up = weight.gate_up.iter().map(|(function, order)| {
        let (function, order) = (variant(*function), order_ident(&order.name));
        quote!((Function::#function, &layouts::#order))
    });
    let down = option(weight.down.as_ref().map(|order| {
        let order = order_ident(&order.name);
        quote!(&layouts::#order)
    }));
    let pad = option(weight.pad.map(|pad| {
        let (hidden, gated, plain) = (count(pad.hidden), count(pad.gated), count(pad.plain));
        let fill = count(pad.fill.into());
        quote!(WeightPad { hidden: #hidden, gated: #gated, plain: #plain, fill: #fill })
    }));
    let bias = option(weight.bias.map(|bias| {
        let dtype = variant(bias.dtype);
        let order = bias.order.map_or_else(
            || quote!(BiasOrder::AsRows),
            |order| {
                let order = variant(order);
                quote!(BiasOrder::#order)
            },
        );
        quote!(Bias { dtype: BiasType::#dtype, order: #order })
    }));
    quote! {
        WeightContract {
            format: #own_format,
            requantize_from: #requantize_from,
            payload: #payload,
            scale: #scale,
            gate_up: &[#(#gate_up),*],
            down: #down,
            pad: #pad,
            bias: #bias,
        }
    }
}

fn global(global: Option<crate::model::GlobalScale>) -> TokenStream {
    option(global.map(|global| {
        let (convention, scope) = (variant(global.convention), variant(global.scope));
        quote!(GlobalScale { convention: Convention::#convention, scope: GlobalScope::#scope })
    }))
}

fn input(input: &Input) -> TokenStream {
    let formats = input.formats.iter().map(|one| format(one));
    let formats = quote!(&[#(#formats),*]);
    let grouping = option(input.grouping.map(|grouping| match grouping {
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
    }));
    let multiple = count(input.multiple);
    let scales = match &input.layout {
        Known::Is(Scales::Unscaled) => {
            return quote!(InputContract::unscaled(#formats, #grouping, #multiple));
        }
        Known::Is(Scales::At { prepared, kernel }) => {
            let (prepared, kernel) = (layout(prepared), layout(kernel));
            quote!(Known::Is(InputLayout { prepared: #prepared, kernel: #kernel }))
        }
        Known::Vendor(why) => quote!(Known::Vendor(#why)),
    };
    let rounding = option(input.rounding.map(|rounding| {
        let rounding = variant(rounding);
        quote!(::scalewright::format::Rounding::#rounding)
    }));
    let quantize = option(input.quantize.map(|quantize| {
        let quantize = variant(quantize);
        quote!(QuantizeAt::#quantize)
    }));
    let prepared_format = option(input.prepared_format.as_deref().map(format));
    let source = option(input.source.map(|source| {
        let source = variant(source);
        quote!(ScaleSource::#source)
    }));
    let global = global(input.global);
    let alpha = option(input.alpha.map(|alpha| {
        let alpha = variant(alpha);
        quote!(EpilogueFactor::#alpha)
    }));
    quote! {
        InputContract {
            formats: #formats,
            rounding: #rounding,
            quantize: #quantize,
            layout: #scales,
            prepared_format: #prepared_format,
            grouping: #grouping,
            multiple: #multiple,
            source: #source,
            global: #global,
            alpha: #alpha,
        }
    }
}

fn delivery(delivery: &Delivery) -> TokenStream {
    match delivery {
        Delivery::Local => quote!(Delivery::Local),
        Delivery::Direct(None) => quote!(Delivery::Direct { wire: &::scalewright::layout::UNSCALED }),
        Delivery::Direct(Some(wire)) => {
            let wire = layout(wire);
            quote!(Delivery::Direct { wire: #wire })
        }
        Delivery::Convert { wire, prepared } => {
            let (wire, prepared) = (layout(wire), layout(prepared));
            quote!(Delivery::Convert { wire: #wire, prepared: #prepared })
        }
        Delivery::QuantizeAfter => quote!(Delivery::QuantizeAfter),
        Delivery::Refused(reason) => quote!(Delivery::Refused { reason: #reason }),
    }
}
