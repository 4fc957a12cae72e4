//! Where a kernel reads each routed row.

use crate::backend::Grouping;

use super::routing::Permutation;

/// A row of a kernel's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The box; each has its own scales. Only [`Grouping::Slots`] has more than one.
    pub slab: usize,
    /// The row in the box.
    pub row: usize,
}

/// The rows of a kernel's buffer: `slabs` boxes of `rows` rows each, and the place of every routed
/// row in the order of [`Permutation::pairs`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Boxes.
    pub slabs: usize,
    /// Rows of one box, gaps included.
    pub rows: usize,
    /// The place of each routed row, experts ascending.
    pub places: Vec<Place>,
}

/// What a row of [`Grouping::Tokens`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A token: the input of GEMM1, one row for all its experts.
    Token,
    /// A token and one of its experts: the input of GEMM2.
    Pair,
}

/// Where `grouping` puts the rows of `permutation`.
pub fn place(grouping: Grouping, permutation: &Permutation, unit: Unit) -> Placement {
    let counts = permutation.counts();
    let single = |rows, places| Placement { slabs: 1, rows, places };
    match grouping {
        Grouping::Tokens => {
            let (tokens, top_k) = (permutation.tokens(), permutation.top_k());
            let row = |pair: &super::routing::Pair| match unit {
                Unit::Token => pair.token,
                Unit::Pair => pair.token * top_k + pair.slot,
            };
            let rows = if unit == Unit::Token { tokens } else { tokens * top_k };
            single(rows, permutation.pairs().iter().map(|pair| Place { slab: 0, row: row(pair) }).collect())
        }
        Grouping::Ranges { .. } | Grouping::SpreadRanges { .. } => {
            let (starts, rows) = starts(grouping, counts);
            let places = std::iter::zip(starts, counts)
                .flat_map(|(start, count)| (start..start + count).map(|row| Place { slab: 0, row }));
            single(rows, places.collect())
        }
        Grouping::Slots => Placement {
            slabs: counts.len(),
            rows: counts.iter().copied().max().unwrap_or(0),
            places: (counts.iter().enumerate())
                .flat_map(|(slab, count)| (0..*count).map(move |row| Place { slab, row }))
                .collect(),
        },
    }
}

/// The first row of each expert in one buffer, and the rows of the buffer.
fn starts(grouping: Grouping, counts: &[usize]) -> (Vec<usize>, usize) {
    let mut starts = Vec::with_capacity(counts.len());
    // The rows before the expert when packed, and when each begins at a multiple.
    let (mut packed, mut ranged) = (0, 0);
    let start = |expert: usize, packed: usize, ranged: usize| match grouping {
        Grouping::Ranges { start_multiple } => ranged.next_multiple_of(start_multiple.max(1)),
        Grouping::SpreadRanges { start_multiple } => {
            let multiple = start_multiple.max(1);
            (packed + expert * (multiple - 1)).next_multiple_of(multiple)
        }
        Grouping::Tokens | Grouping::Slots => packed,
    };
    for (expert, count) in counts.iter().enumerate() {
        let first = start(expert, packed, ranged);
        starts.push(first);
        packed += count;
        ranged = first + count;
    }
    let rows = start(counts.len(), packed, ranged);
    (starts, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::routing::Routing;

    #[test]
    fn starts_of_ranges() {
        let counts = [5, 0, 130];
        let ranges = Grouping::Ranges { start_multiple: 128 };
        assert_eq!(starts(ranges, &counts), (vec![0, 128, 128], 384));
        // FlashInfer's CUTLASS kernel: round_up(first + 127 * expert, 128).
        let spread = Grouping::SpreadRanges { start_multiple: 128 };
        assert_eq!(starts(spread, &counts), (vec![0, 256, 384], 640));
    }

    #[test]
    fn places_of_each_grouping() {
        // Token 0 goes to experts 2 and 0, token 1 to experts 2 and 1.
        let routing = Routing::new(2, 2, 3, vec![2, 0, 2, 1], vec![0.5; 4]).unwrap();
        let permutation = routing.by_expert();
        let rows = |grouping, unit| {
            let placement = place(grouping, &permutation, unit);
            let places: Vec<_> = placement.places.iter().map(|place| (place.slab, place.row)).collect();
            (placement.slabs, placement.rows, places)
        };
        assert_eq!(rows(Grouping::Tokens, Unit::Token), (1, 2, vec![(0, 0), (0, 1), (0, 0), (0, 1)]));
        assert_eq!(rows(Grouping::Tokens, Unit::Pair), (1, 4, vec![(0, 1), (0, 3), (0, 0), (0, 2)]));
        let ranges = Grouping::Ranges { start_multiple: 4 };
        assert_eq!(rows(ranges, Unit::Pair), (1, 12, vec![(0, 0), (0, 4), (0, 8), (0, 9)]));
        assert_eq!(rows(Grouping::Slots, Unit::Pair), (3, 2, vec![(0, 0), (1, 0), (2, 0), (2, 1)]));
    }
}
