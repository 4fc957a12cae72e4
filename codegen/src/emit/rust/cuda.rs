//! The kernels' sources.

use quote::quote;

use super::{Door, Module};
use crate::emit::cuda::Kernel;

pub(super) fn module(kernels: &[Kernel], door: Door) -> Module {
    let entries = kernels.iter().map(|kernel| {
        let name = &kernel.name;
        let text = match door {
            Door::Files => {
                let path = format!("cuda/{name}.cu");
                quote!(include_str!(#path))
            }
            Door::Macro => {
                let text = &kernel.text;
                quote!(#text)
            }
        };
        quote!((#name, #text))
    });
    let items = quote! {
        /// Name and self-contained CUDA source of each kernel, sorted by name.
        pub static KERNELS: &[(&str, &str)] = &[#(#entries),*];
    };
    Module {
        name: "cuda".to_owned(),
        doc: "CUDA kernels, as sources for NVRTC.".to_owned(),
        items,
        children: Vec::new(),
    }
}
