//! The mixture-of-experts layer, but for its engines: routing, which experts a rank holds, where routed
//! rows go, the activation between the GEMMs, the shared expert, and the typed layer.

pub mod activation;
pub mod executable;
pub mod expert_map;
pub mod grouping;
pub mod layer;
pub mod routing;
pub mod shared;
