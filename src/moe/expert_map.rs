//! Which of a layer's experts a rank holds.
//!
//! Global and local indices are types of their own, so that a vector of all experts is not indexed
//! with a rank's own numbering.

use std::marker::PhantomData;
use std::ops::Index;

use super::routing::Routing;

/// An expert of the whole layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalExpert(pub u32);

/// An expert of one rank, in the order of the weights that the rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalExpert(pub u32);

/// An index of experts: [`GlobalExpert`] or [`LocalExpert`].
pub trait Expert: Copy + crate::__private::Sealed {
    /// The number.
    fn get(self) -> u32;
}

impl crate::__private::Sealed for GlobalExpert {}
impl crate::__private::Sealed for LocalExpert {}

impl Expert for GlobalExpert {
    fn get(self) -> u32 {
        self.0
    }
}

impl Expert for LocalExpert {
    fn get(self) -> u32 {
        self.0
    }
}

/// One value for each expert, of the layer or of a rank; `I` says which, and nothing else indexes it.
///
/// ```compile_fail,E0277
/// use scalewright::moe::expert_map::{GlobalExpert, LocalExpert, PerExpert};
/// let scales: PerExpert<GlobalExpert, f32> = PerExpert::new(vec![1.0; 288]);
/// let first_of_the_rank = scales[LocalExpert(0)];
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerExpert<I, T> {
    values: Vec<T>,
    index: PhantomData<I>,
}

impl<I: Expert, T> PerExpert<I, T> {
    /// A value for each expert, ascending.
    pub fn new(values: Vec<T>) -> Self {
        Self { values, index: PhantomData }
    }

    /// The values, experts ascending.
    pub fn values(&self) -> &[T] {
        &self.values
    }
}

impl<I: Expert, T> Index<I> for PerExpert<I, T> {
    type Output = T;

    /// Panics where a slice would.
    fn index(&self, expert: I) -> &T {
        &self.values[expert.get() as usize]
    }
}

/// The experts of one rank: global to local, and back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertMap {
    /// For each expert of the layer, the rank's own index.
    local: Vec<Option<LocalExpert>>,
    /// For each expert of the rank, the layer's.
    global: Vec<GlobalExpert>,
}

/// Experts that no rank can hold, or a routing of another layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpertMapError {
    /// A rank that does not exist.
    #[error("there is no rank {rank} of {ranks}")]
    Rank {
        /// The rank.
        rank: usize,
        /// Ranks.
        ranks: usize,
    },
    /// An expert that the layer does not have.
    #[error("a rank cannot hold expert {}: the layer has {experts}", expert.0)]
    Beyond {
        /// The expert.
        expert: GlobalExpert,
        /// Experts of the layer.
        experts: usize,
    },
    /// An expert that is held twice.
    #[error("a rank cannot hold expert {} twice", expert.0)]
    Twice {
        /// The expert.
        expert: GlobalExpert,
    },
    /// Something of a layer with another number of experts.
    #[error("the map is of a layer with {map} experts, the {what} of one with {got}")]
    Layer {
        /// `routing` or `values`.
        what: &'static str,
        /// Experts of the map's layer.
        map: usize,
        /// Experts of the other layer.
        got: usize,
    },
}

impl ExpertMap {
    /// The map of rank `rank` of `ranks`, which hold contiguous ranges of `experts` experts; where they
    /// do not divide, the first ranks hold one more (vLLM's linear placement).
    ///
    /// # Errors
    /// [`ExpertMapError::Rank`] if there is no such rank.
    pub fn of_rank(experts: usize, ranks: usize, rank: usize) -> Result<Self, ExpertMapError> {
        if rank >= ranks {
            return Err(ExpertMapError::Rank { rank, ranks });
        }
        let (each, rest) = (experts / ranks, experts % ranks);
        let first = rank * each + rank.min(rest);
        let held = each + usize::from(rank < rest);
        let held: Vec<_> = (first..first + held).map(|expert| GlobalExpert(expert as u32)).collect();
        Self::holding(experts, &held)
    }

    /// The map of a rank that holds the experts `held` of a layer of `experts`, in this order.
    ///
    /// # Errors
    /// [`ExpertMapError`] if the layer has no such expert, or one is held twice.
    pub fn holding(experts: usize, held: &[GlobalExpert]) -> Result<Self, ExpertMapError> {
        let mut local = vec![None; experts];
        for (index, expert) in held.iter().enumerate() {
            let beyond = ExpertMapError::Beyond { expert: *expert, experts };
            let entry = local.get_mut(expert.0 as usize).ok_or(beyond)?;
            if entry.replace(LocalExpert(index as u32)).is_some() {
                return Err(ExpertMapError::Twice { expert: *expert });
            }
        }
        Ok(Self { local, global: held.to_vec() })
    }

    /// Experts of the layer.
    pub fn experts(&self) -> usize {
        self.local.len()
    }

    /// The experts that the rank holds, in its own order.
    pub fn held(&self) -> &[GlobalExpert] {
        &self.global
    }

    /// The rank's index of an expert of the layer; `None` if it lives elsewhere.
    pub fn local(&self, expert: GlobalExpert) -> Option<LocalExpert> {
        self.local.get(expert.0 as usize).copied().flatten()
    }

    /// The layer's index of an expert of the rank; `None` if the rank holds fewer.
    pub fn global(&self, expert: LocalExpert) -> Option<GlobalExpert> {
        self.global.get(expert.0 as usize).copied()
    }

    /// What the rank does of `routing`, which is in the layer's indices: entries of absent experts stay
    /// without one.
    ///
    /// # Errors
    /// [`ExpertMapError::Layer`] if the routing is of another layer.
    pub fn localize(&self, routing: &Routing) -> Result<Routing, ExpertMapError> {
        self.check("routing", routing.experts())?;
        let local = |id| self.local(GlobalExpert(id)).map(|local| local.0);
        Ok(routing.localized(self.global.len(), local))
    }

    /// The rank's part of `all`, in its own order.
    ///
    /// # Errors
    /// [`ExpertMapError::Layer`] if the values are of another layer.
    pub fn select<T: Clone>(
        &self,
        all: &PerExpert<GlobalExpert, T>,
    ) -> Result<PerExpert<LocalExpert, T>, ExpertMapError> {
        self.check("values", all.values.len())?;
        Ok(PerExpert::new(self.global.iter().map(|expert| all[*expert].clone()).collect()))
    }

    fn check(&self, what: &'static str, got: usize) -> Result<(), ExpertMapError> {
        let map = self.experts();
        if map == got { Ok(()) } else { Err(ExpertMapError::Layer { what, map, got }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::config::{ActivationFunction, LayerConfig};
    use crate::conformance::{Case, TOLERANCE, measure};
    use crate::generated::backends::TritonUnquantized;
    use crate::generated::formats::BF16;
    use crate::tensor::Tokens;
    use crate::weights::canonical::{Canonical, Stack};
    use crate::weights::synthetic::{self, Shape};

    #[test]
    fn t19_ranks_hold_contiguous_ranges() {
        for (experts, ranks, rank, range) in
            [(288, 2, 1, 144..288), (256, 8, 3, 96..128), (10, 4, 1, 3..6), (10, 4, 3, 8..10)]
        {
            let map = ExpertMap::of_rank(experts, ranks, rank).unwrap();
            let expected: Vec<_> = range.clone().map(GlobalExpert).collect();
            assert_eq!(map.held(), expected, "{experts} experts, rank {rank} of {ranks}");
            assert_eq!(map.local(GlobalExpert(range.start)), Some(LocalExpert(0)));
            assert_eq!(map.local(GlobalExpert(range.start - 1)), None);
            assert_eq!(map.global(LocalExpert(1)), Some(GlobalExpert(range.start + 1)));
            assert_eq!(map.global(LocalExpert(range.len() as u32)), None);
            let all = PerExpert::new((0..experts as u32).collect());
            let own = map.select(&all).unwrap();
            assert_eq!((own[LocalExpert(0)], own.values().len()), (range.start, range.len()));
            assert!(map.select(&PerExpert::new(vec![0; experts - 1])).is_err());
        }
    }

    #[test]
    fn ranks_share_a_routing() {
        let ids = vec![0, 5, 3, 3, 7, 2];
        let routing = Routing::new(3, 2, 8, ids.clone(), vec![0.5; 6]).unwrap();
        let mut seen = vec![0; ids.len()];
        for rank in 0..3 {
            let map = ExpertMap::of_rank(8, 3, rank).unwrap();
            let local = map.localize(&routing).unwrap();
            assert_eq!(local.experts(), map.held().len());
            for (at, id) in local.ids().iter().enumerate() {
                let global = id.and_then(|id| map.global(LocalExpert(id)));
                assert!(global.is_none_or(|global| global.0 == ids[at]));
                seen[at] += usize::from(global.is_some());
            }
            let rows = local.by_expert();
            assert_eq!(rows.pairs().len(), local.ids().iter().flatten().count());
        }
        assert_eq!(seen, [1; 6]);
    }

    /// The experts of a rank, cut out of a layer whose weights have no scales.
    fn held(map: &ExpertMap, layer: &Canonical) -> Canonical {
        let cut = |stack: &Stack| {
            let size = stack.payload.len() / layer.experts;
            let payload =
                map.held().iter().flat_map(|expert| &stack.payload[expert.0 as usize * size..][..size]);
            Stack::new(stack.rows, stack.cols, payload.copied().collect(), Vec::new())
        };
        let (gate, up, down) = (layer.gate.as_ref().map(cut), cut(&layer.up), cut(&layer.down));
        Canonical { experts: map.held().len(), gate, up, down, ..layer.clone() }
    }

    /// What the ranks make of a layer adds up to the layer, by the reference and on the engine; no rank
    /// makes nothing of it.
    #[test]
    fn ranks_add_up_to_the_layer() {
        let shape = Shape { experts: 5, hidden: 64, intermediate: 32, top_k: 2 };
        let layer = Canonical { biases: None, ..synthetic::weights(shape, 1, &BF16).unwrap() };
        let values = synthetic::tokens(shape, 6, 2);
        let tokens = Tokens::new(&values, 6, 64).unwrap();
        // Nothing goes to expert 2.
        let ids = vec![0, 1, 1, 3, 4, 0, 3, 4, 0, 3, 1, 4];
        let routing =
            Routing::new(6, 2, 5, ids, (1..=12).map(|weight| weight as f32 / 8.0).collect()).unwrap();
        let config = LayerConfig::dynamic(ActivationFunction::SILU);
        let run = |weights: &Canonical, routing: &Routing| {
            let measured =
                measure(TritonUnquantized::CONTRACT, &Case { weights, tokens, routing, config }).unwrap();
            assert!(measured.error_quantised <= TOLERANCE, "{}", measured.error_quantised);
            measured.output.into_iter().map(|value| value.to_f64()).collect::<Vec<f64>>()
        };
        let whole = run(&layer, &routing);
        let mut sum = vec![0.0; whole.len()];
        for rank in 0..2 {
            let map = ExpertMap::of_rank(5, 2, rank).unwrap();
            let part = run(&held(&map, &layer), &map.localize(&routing).unwrap());
            assert!(part.iter().any(|value| *value != 0.0), "rank {rank} adds nothing");
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let largest = whole.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        assert!(sum.iter().zip(&whole).all(|(sum, whole)| (sum - whole).abs() <= 1e-2 * largest));
    }

    #[test]
    fn maps_that_make_no_sense_are_refused() {
        let held = |experts: &[u32]| {
            let held: Vec<_> = experts.iter().copied().map(GlobalExpert).collect();
            ExpertMap::holding(4, &held)
        };
        assert!(held(&[3, 1]).is_ok());
        assert_eq!(held(&[4]), Err(ExpertMapError::Beyond { expert: GlobalExpert(4), experts: 4 }));
        assert_eq!(held(&[1, 1]), Err(ExpertMapError::Twice { expert: GlobalExpert(1) }));
        assert_eq!(ExpertMap::of_rank(4, 2, 2), Err(ExpertMapError::Rank { rank: 2, ranks: 2 }));
        let other = Routing::new(1, 1, 5, vec![0], vec![1.0]).unwrap();
        let refused = held(&[0]).unwrap().localize(&other);
        assert_eq!(refused, Err(ExpertMapError::Layer { what: "routing", map: 4, got: 5 }));
    }
}
