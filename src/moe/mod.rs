//! The mixture-of-experts layer, but for its engines: routing, where routed rows go, the activation
//! between the GEMMs, and the typed layer.

pub mod activation;
pub mod executable;
pub mod grouping;
pub mod layer;
pub mod routing;
