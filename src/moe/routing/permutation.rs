//! Routed rows sorted by expert.

/// One routed row: a token and which of its experts it goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The token.
    pub token: usize,
    /// The place in the token's list of experts.
    pub slot: usize,
}

/// Routed rows sorted by expert, then token, then slot. What goes to no expert of the layer has no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutation {
    tokens: usize,
    top_k: usize,
    counts: Vec<usize>,
    offsets: Vec<usize>,
    pairs: Vec<Pair>,
}

impl Permutation {
    /// `ids` are `tokens` × `top_k` experts, all below `experts`.
    pub(super) fn new(tokens: usize, top_k: usize, experts: usize, ids: &[Option<u32>]) -> Self {
        let mut counts = vec![0; experts];
        for id in ids.iter().flatten() {
            counts[*id as usize] += 1;
        }
        let mut offsets = vec![0; experts + 1];
        for (expert, count) in counts.iter().enumerate() {
            offsets[expert + 1] = offsets[expert] + count;
        }
        let mut next = offsets.clone();
        let mut pairs = vec![Pair { token: 0, slot: 0 }; offsets[experts]];
        for (at, id) in ids.iter().enumerate() {
            let Some(id) = id else { continue };
            let place = &mut next[*id as usize];
            pairs[*place] = Pair { token: at / top_k, slot: at % top_k };
            *place += 1;
        }
        Self { tokens, top_k, counts, offsets, pairs }
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Experts of a token.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Routed rows of each expert.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The first routed row of each expert, and their total at the end.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// All routed rows, experts ascending.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sorted_by_expert() {
        let ids = [3, 0, 0, 3, 3, 1].map(Some);
        let permutation = Permutation::new(3, 2, 4, &ids);
        assert_eq!(permutation.counts(), [2, 1, 0, 3]);
        assert_eq!(permutation.offsets(), [0, 2, 3, 3, 6]);
        let pairs: Vec<_> = permutation.pairs().iter().map(|pair| (pair.token, pair.slot)).collect();
        assert_eq!(pairs, [(0, 1), (1, 0), (2, 1), (0, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn absent_experts_have_no_rows() {
        let permutation = Permutation::new(2, 2, 3, &[None, Some(2), Some(0), None]);
        assert_eq!(permutation.counts(), [1, 0, 1]);
        assert_eq!(permutation.pairs(), [Pair { token: 1, slot: 0 }, Pair { token: 0, slot: 1 }]);
        let nobody = Permutation::new(2, 2, 3, &[None; 4]);
        assert_eq!((nobody.counts(), nobody.offsets()), (&[0; 3][..], &[0; 4][..]));
        assert!(nobody.pairs().is_empty());
    }

    fn routed() -> impl Strategy<Value = (usize, usize, Vec<Option<u32>>)> {
        (1usize..9, 1usize..5, 0usize..20).prop_flat_map(|(experts, top_k, tokens)| {
            let id = prop::option::weighted(0.8, 0..experts as u32);
            (Just(experts), Just(top_k), prop::collection::vec(id, tokens * top_k))
        })
    }

    proptest! {
        /// Every entry with an expert has exactly one row, and it is in that expert's range.
        #[test]
        fn permutations_are_bijections((experts, top_k, ids) in routed()) {
            let permutation = Permutation::new(ids.len() / top_k, top_k, experts, &ids);
            let pairs = permutation.pairs();
            prop_assert_eq!(pairs.iter().collect::<HashSet<_>>().len(), pairs.len());
            prop_assert_eq!(pairs.len(), ids.iter().flatten().count());
            for expert in 0..experts {
                let range = permutation.offsets()[expert]..permutation.offsets()[expert + 1];
                prop_assert_eq!(range.len(), permutation.counts()[expert]);
                for pair in &pairs[range] {
                    prop_assert_eq!(ids[pair.token * top_k + pair.slot], Some(expert as u32));
                }
            }
        }
    }
}
