//! Classes, settings and situations as const data.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Module, count, ident, static_ident, variant};
use crate::model::Table;
use crate::model::select::{Experts, ExpertsList, Range, Refusal, Requires, When};
use crate::model::words::{Activation, Device, DeviceReason, Need, Switch, Word};

/// What modules that hold such data import.
pub(super) const NAMES: [&str; 22] = [
    "ActivationFormat",
    "Aiter",
    "All2all",
    "Checkpoint",
    "Choice",
    "ClassKind",
    "Device",
    "ExpertsClass",
    "Feature",
    "GemmType",
    "Need",
    "Range",
    "Refusal",
    "Requires",
    "RoutingMethod",
    "Setting",
    "Stated",
    "Switch",
    "TokenType",
    "When",
    "Change",
    "InputRule",
];

pub(super) fn settings(table: &Table) -> Module {
    let settings = table.settings.iter().map(|setting| {
        let (name, variable) = (&setting.name, &setting.variable);
        let (ty, default) = (static_ident(name), variant(setting.default));
        let doc = format!(" `[setting.{name}]`");
        quote! {
            #[doc = #doc]
            pub static #ty: Setting = Setting { name: #name, variable: #variable, default: Switch::#default };
        }
    });
    let statics = table.settings.iter().map(|setting| static_ident(&setting.name));
    let items = quote! {
        use ::scalewright::oracle::{Setting, Switch};

        #(#settings)*

        /// Every setting of the table, sorted by name.
        pub static SETTINGS: &[&Setting] = &[#(&#statics),*];
    };
    let items = if table.settings.is_empty() {
        quote! {
            /// Every setting of the table, sorted by name.
            pub static SETTINGS: &[&::scalewright::oracle::Setting] = &[];
        }
    } else {
        items
    };
    Module {
        name: "settings".to_owned(),
        doc: "Settings of engines.".to_owned(),
        items,
        children: Vec::new(),
    }
}

pub(super) fn device_groups(table: &Table) -> Module {
    let groups = table.devices.iter().map(|(name, devices)| {
        let (doc, ty) = (format!(" `{name}`"), static_ident(name));
        let devices = words("Device", devices);
        quote! {
            #[doc = #doc]
            pub static #ty: &[Device] = #devices;
        }
    });
    let items = quote!(#(#groups)*);
    let device = super::imports(quote!(::scalewright::oracle), &["Device"], &items);
    Module {
        name: "device_groups".to_owned(),
        doc: "Groups of devices: `[devices]`.".to_owned(),
        items: quote!(#device #items),
        children: Vec::new(),
    }
}

pub(super) fn experts(table: &Table) -> Module {
    let lists = table.experts.iter().filter_map(|list| {
        let name = list.name.as_ref()?;
        let (ty, classes) = (static_ident(name), list.classes.iter().map(|one| class(one, table)));
        let doc = format!(" `[[experts.{name}]]`");
        Some(quote! {
            #[doc = #doc]
            pub static #ty: &[ExpertsClass] = &[#(#classes),*];
        })
    });
    let items = quote!(#(#lists)*);
    let function = super::imports(quote!(::scalewright::row), &["functions"], &items);
    let names = super::imports(quote!(::scalewright::oracle), &NAMES, &items);
    let siblings = super::imports(quote!(super), &["device_groups", "settings"], &items);
    let items = quote!(#function #names #siblings #items);
    Module {
        name: "kernel_classes".to_owned(),
        doc: "Kernel classes of engines.".to_owned(),
        items,
        children: Vec::new(),
    }
}

/// The classes of a row: shared, or its own.
pub(super) fn classes(list: &ExpertsList, table: &Table) -> TokenStream {
    match &list.name {
        Some(name) => {
            let name = static_ident(name);
            quote!(kernel_classes::#name)
        }
        None => {
            let classes = list.classes.iter().map(|one| class(one, table));
            quote!(&[#(#classes),*])
        }
    }
}

/// A field and its value; `None` for one that is left out.
type Said = Option<(&'static str, TokenStream)>;

/// `BASE.field(value)…` for what is said.
fn narrowed(base: TokenStream, said: Vec<Said>) -> TokenStream {
    let said = said.into_iter().flatten().map(|(key, value)| {
        let key = ident(key);
        quote!(.#key(#value))
    });
    quote!(#base #(#said)*)
}

fn words<W: Word>(ty: &str, words: &[W]) -> TokenStream {
    let ty = ident(ty);
    let words = words.iter().map(|word| variant(*word));
    quote!(&[#(#ty::#words),*])
}

fn listed<W: Word>(key: &'static str, ty: &str, list: &[W]) -> Said {
    (!list.is_empty()).then(|| (key, words(ty, list)))
}

fn some_listed<W: Word>(key: &'static str, ty: &str, list: Option<&Vec<W>>) -> Said {
    list.map(|list| (key, words(ty, list)))
}

fn strings(key: &'static str, list: &[impl AsRef<str>]) -> Said {
    let list: Vec<_> = list.iter().map(AsRef::as_ref).collect();
    (!list.is_empty()).then(|| (key, quote!(&[#(#list),*])))
}

fn functions(list: Option<&Vec<Activation>>) -> Said {
    list.map(|list| {
        let list = list.iter().map(|function| variant(*function));
        ("activations", quote!(functions![#(#list),*]))
    })
}

fn some_strings(key: &'static str, list: Option<&Vec<String>>) -> Said {
    list.map(|list| (key, quote!(&[#(#list),*])))
}

fn names<W: Word>(list: &[W]) -> Vec<&'static str> {
    list.iter().map(|word| word.name()).collect()
}

fn one<W: Word>(key: &'static str, ty: &str, value: Option<W>) -> Said {
    value.map(|value| {
        let (ty, value) = (ident(ty), variant(value));
        (key, quote!(#ty::#value))
    })
}

fn switched(key: &'static str, list: &[(String, Switch)]) -> Said {
    let list = list.iter().map(|(name, value)| {
        let (name, value) = (static_ident(name), variant(*value));
        quote!((&settings::#name, Switch::#value))
    });
    let list: Vec<_> = list.collect();
    (!list.is_empty()).then(|| (key, quote!(&[#(#list),*])))
}

fn number(key: &'static str, number: Option<usize>) -> Said {
    number.map(|number| {
        let number = count(number);
        (key, quote!(#number))
    })
}

fn range(key: &'static str, range: Range) -> Said {
    (range != Range::default()).then(|| {
        let said = vec![
            number("min", range.min),
            number("max", range.max),
            number("not_multiple", range.not_multiple),
        ];
        (key, narrowed(quote!(Range::ALL), said))
    })
}

/// Devices as the table has them: a group by its name, others one by one.
fn device_list(devices: &[Device], table: &Table) -> TokenStream {
    match table.devices.iter().find(|(_, group)| group == devices) {
        Some((name, _)) => {
            let name = static_ident(name);
            quote!(device_groups::#name)
        }
        None => words("Device", devices),
    }
}

/// `Some` list of devices, or `None`.
pub(super) fn devices(devices: Option<&Vec<Device>>, table: &Table) -> TokenStream {
    super::option(devices.map(|devices| device_list(devices, table)))
}

pub(super) fn when(when: &When, table: &Table) -> TokenStream {
    let group = when.group.as_ref().map(|groups| {
        let groups = groups.iter().map(|group| count(*group));
        quote!(&[#(#groups),*])
    });
    let said = vec![
        when.devices.as_ref().map(|list| ("devices", device_list(list, table))),
        functions(when.activations.as_ref()),
        some_strings("schemes", when.schemes.as_ref()),
        some_listed("routing", "RoutingMethod", when.routing.as_ref()),
        some_listed("all2all", "All2all", when.all2all.as_ref()),
        one("activation_format", "ActivationFormat", when.activation_format),
        some_listed("token_dtype", "TokenType", when.token_dtype.as_ref()),
        some_listed("checkpoint", "Checkpoint", when.checkpoint.as_ref()),
        group.map(|group| ("group", group)),
        one("choice", "Choice", when.choice),
        some_strings("names", when.names.as_ref()),
        some_strings("model_types", when.model_types.as_ref()),
        listed("has", "Feature", &when.has),
        listed("lacks", "Feature", &when.lacks),
        strings("library", &names(&when.library)),
        strings("library_missing", &names(&when.library_missing)),
        switched("settings", &when.settings),
        strings("set", &when.set),
        strings("unset", &when.unset),
        range("hidden", when.hidden),
        range("intermediate", when.intermediate),
        range("experts", when.experts),
        range("data_parallel", when.data_parallel),
        range("expert_parallel", when.expert_parallel),
    ];
    narrowed(quote!(When::ALWAYS), said)
}

pub(super) fn refusals(refusals: &[Refusal], table: &Table) -> TokenStream {
    let refusals = refusals.iter().map(|refusal| {
        let (when, reason) = (when(&refusal.when, table), variant(refusal.reason));
        quote!(Refusal::new(#when, Stated::#reason))
    });
    quote!(&[#(#refusals),*])
}

fn need(key: &'static str, need: Option<Need>) -> Said {
    one(key, "Need", need)
}

fn requires(requires: &Requires, table: &Table) -> TokenStream {
    let said = vec![
        requires.devices.as_ref().map(|list| ("devices", device_list(list, table))),
        requires.device_reason.map(|DeviceReason::AiterOff| ("needs_aiter", quote!(Aiter::Off))),
        strings("libraries", &names(&requires.libraries)),
        switched("settings", &requires.settings),
        functions(requires.activations.as_ref()),
        some_listed("routing", "RoutingMethod", requires.routing.as_ref()),
        some_listed("router_dtype", "TokenType", requires.router_dtype.as_ref()),
        one("activation_format", "ActivationFormat", requires.activation_format),
        some_listed("all2all", "All2all", requires.all2all.as_ref()),
        listed("all2all_refused", "All2all", &requires.all2all_refused),
        need("all2all_use", requires.all2all_use),
        number("data_parallel_max", requires.data_parallel_max),
        need("expert_parallel", requires.expert_parallel),
        need("sequence_parallel", requires.sequence_parallel),
        one("gemm_type", "GemmType", requires.gemm_type),
        number("hidden_multiple", requires.hidden_multiple),
    ];
    narrowed(quote!(Requires::NOTHING), said)
}

fn class(class: &Experts, table: &Table) -> TokenStream {
    let (name, kind) = (&class.class, variant(class.kind));
    let requires = requires(&class.requires, table);
    let said = vec![
        Some(("name", quote!(#name))),
        (class.kind != crate::model::words::ClassKind::Modular).then(|| ("kind", quote!(ClassKind::#kind))),
        (class.when != When::default()).then(|| ("when", when(&class.when, table))),
        listed("offers", "Feature", &class.offers),
        (class.requires != Requires::default()).then_some(("requires", requires)),
        (!class.refuses_first.is_empty()).then(|| ("refuses_first", refusals(&class.refuses_first, table))),
        (!class.refuses.is_empty()).then(|| ("refuses", refusals(&class.refuses, table))),
    ];
    narrowed(quote!(ExpertsClass::MODULAR), said)
}
