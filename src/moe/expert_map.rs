//! Which of a layer's experts a rank holds.
//!
//! Global and local indices are types of their own, so that a vector of all experts is not indexed
//! with a rank's own numbering.

use super::routing::Routing;

/// An expert of the whole layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalExpert(pub u32);

/// An expert of one rank, in the order of the weights that the rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalExpert(pub u32);

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
    /// A routing of a layer with another number of experts.
    #[error("the map is of a layer with {map} experts, the routing of one with {routing}")]
    Routing {
        /// Experts of the map's layer.
        map: usize,
        /// Experts of the routing's layer.
        routing: usize,
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
    /// [`ExpertMapError::Routing`] if the routing is of another layer.
    pub fn localize(&self, routing: &Routing) -> Result<Routing, ExpertMapError> {
        let (map, experts) = (self.experts(), routing.experts());
        if map != experts {
            return Err(ExpertMapError::Routing { map, routing: experts });
        }
        let local = |id| self.local(GlobalExpert(id)).map(|local| local.0);
        Ok(routing.localized(self.global.len(), local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(refused, Err(ExpertMapError::Routing { map: 4, routing: 5 }));
    }
}
