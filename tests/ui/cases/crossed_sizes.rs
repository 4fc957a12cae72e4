//! The padded size of a weight where the model's own is asked for.

use scalewright::weights::prepared::{Logical, RawPrepared};

fn logical(weights: &RawPrepared) -> Logical {
    weights.physical
}

fn main() {}
