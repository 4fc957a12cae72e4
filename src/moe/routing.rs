//! Which experts each token goes to, with which weights, and the same sorted by expert.

mod choose;
mod error;
mod method;
mod permutation;

pub use choose::route;
pub use error::RoutingError;
pub use method::{Groups, Method, Score, WeightOn, Weights};
pub use permutation::{Pair, Permutation};

use crate::tensor::{Real, Tokens};

/// The experts and weights of each token, `tokens` × `top_k`, row-major.
///
/// Indices are those of the layer's own experts. Behind an
/// [`ExpertMap`](crate::moe::expert_map::ExpertMap), these are the experts of one rank, and an entry
/// whose expert lives elsewhere is `None`: it contributes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    tokens: usize,
    top_k: usize,
    experts: usize,
    ids: Vec<Option<u32>>,
    weights: Vec<f32>,
    weighing: Weighing,
}

/// What becomes of the router's weights.
#[derive(Debug, Clone, PartialEq)]
enum Weighing {
    /// They are `weights`.
    Output,
    /// They are these, and multiply the tokens, which has not been done; `weights` are ones.
    InputDue(Vec<f32>),
    /// They multiplied the tokens; `weights` are ones.
    InputDone,
}

impl Routing {
    /// Takes ids and weights as a router gave them, `tokens` × `top_k`, of a layer with `experts`
    /// experts. The weights multiply the output of an expert.
    ///
    /// # Errors
    /// [`RoutingError`] if a buffer has another size, an id is not below `experts`, a weight is not
    /// finite, or `top_k` is 0.
    pub fn new(
        tokens: usize,
        top_k: usize,
        experts: usize,
        ids: Vec<u32>,
        weights: Vec<f32>,
    ) -> Result<Self, RoutingError> {
        if top_k == 0 {
            return Err(RoutingError::TopK { top_k, experts });
        }
        let expected = tokens.saturating_mul(top_k);
        for (what, got) in [("ids", ids.len()), ("weights", weights.len())] {
            if got != expected {
                return Err(RoutingError::Size { what, rows: tokens, expected, got });
            }
        }
        if let Some(at) = ids.iter().position(|id| *id as usize >= experts) {
            return Err(RoutingError::Expert { token: at / top_k, expert: ids[at], experts });
        }
        if let Some(at) = weights.iter().position(|weight| !weight.is_finite()) {
            return Err(RoutingError::Weight { token: at / top_k, weight: weights[at] });
        }
        let ids = ids.into_iter().map(Some).collect();
        Ok(Self { tokens, top_k, experts, ids, weights, weighing: Weighing::Output })
    }

    /// The same experts; the router's weights multiply the tokens, as Llama 4 has it.
    /// [`weigh`](Self::weigh) does that, and a layer refuses a routing for which it has not been done.
    ///
    /// # Errors
    /// [`RoutingError::InputWeights`] if a token has several experts: one row of GEMM1 serves them all.
    pub fn on_input(self) -> Result<Self, RoutingError> {
        let Self { top_k, .. } = self;
        match self.weighing {
            Weighing::Output if top_k == 1 => {
                let ones = vec![1.0; self.weights.len()];
                Ok(Self { weighing: Weighing::InputDue(self.weights), weights: ones, ..self })
            }
            Weighing::Output => Err(RoutingError::InputWeights { top_k }),
            Weighing::InputDue(_) | Weighing::InputDone => Ok(self),
        }
    }

    /// The routing of a rank: each entry goes through `local`, and stays without an expert where that
    /// gives none.
    pub(crate) fn localized(&self, experts: usize, local: impl Fn(u32) -> Option<u32>) -> Self {
        let ids = self.ids.iter().map(|id| id.and_then(&local)).collect();
        Self { experts, ids, ..self.clone() }
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Experts of a token.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Experts of the layer.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// The experts of each token, `tokens` × `top_k`; `None` where the expert lives on another rank.
    pub fn ids(&self) -> &[Option<u32>] {
        &self.ids
    }

    /// What the output of each entry is multiplied by, `tokens` × `top_k`; ones where the router's
    /// weights multiply the input.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// What the router's weights multiply.
    pub fn weight_on(&self) -> WeightOn {
        match self.weighing {
            Weighing::Output => WeightOn::Output,
            Weighing::InputDue(_) | Weighing::InputDone => WeightOn::Input,
        }
    }

    /// Refuses a routing whose weights are still to multiply the tokens.
    pub(crate) fn check_weighed(&self) -> Result<(), RoutingError> {
        match self.weighing {
            Weighing::InputDue(_) => Err(RoutingError::Unweighed),
            Weighing::Output | Weighing::InputDone => Ok(()),
        }
    }

    /// The tokens as they are to be quantised, and the routing for them: where the router's weights
    /// multiply the input, that is done here, once. Weights and products are rounded to the tokens'
    /// type, as vLLM and transformers do.
    ///
    /// # Errors
    /// [`RoutingError::Size`] if there are more or fewer tokens than in the routing.
    pub fn weigh<T: Real>(self, tokens: Tokens<'_, T>) -> Result<(Vec<T>, Self), RoutingError> {
        let rows = tokens.rows();
        if rows != self.tokens {
            let what = "tokens";
            return Err(RoutingError::Size { what, rows: self.tokens, expected: self.tokens, got: rows });
        }
        let values = (0..rows).flat_map(|row| tokens.row(row).iter().map(move |value| (row, *value)));
        match &self.weighing {
            Weighing::Output | Weighing::InputDone => Ok((values.map(|(_, value)| value).collect(), self)),
            Weighing::InputDue(weights) => {
                let weight = |row: usize| T::from_f32(weights[row]).to_f32();
                let weighed = values.map(|(row, value)| T::from_f32(value.to_f32() * weight(row)));
                Ok((weighed.collect(), Self { weighing: Weighing::InputDone, ..self }))
            }
        }
    }

    /// The routed rows sorted by expert.
    pub fn by_expert(&self) -> Permutation {
        Permutation::new(self.tokens, self.top_k, self.experts, &self.ids)
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn bad_routing_is_refused() {
        let error = |ids, weights| Routing::new(1, 2, 4, ids, weights).unwrap_err();
        assert_eq!(error(vec![0, 4], vec![1.0; 2]), RoutingError::Expert { token: 0, expert: 4, experts: 4 });
        assert!(matches!(error(vec![0, 1], vec![1.0, f32::NAN]), RoutingError::Weight { token: 0, .. }));
        assert!(matches!(error(vec![0], vec![1.0; 2]), RoutingError::Size { what: "ids", .. }));
        assert!(Routing::new(1 << 63, 2, 4, Vec::new(), Vec::new()).is_err());
        assert!(Routing::new(1, 0, 4, Vec::new(), Vec::new()).is_err());
    }

    #[test]
    fn weights_multiply_the_input_or_the_output_and_never_both() {
        let routing = Routing::new(2, 1, 4, vec![3, 1], vec![0.5, 0.25]).unwrap();
        let values = [1.0, 2.0, 4.0, 8.0].map(bf16::from_f32);
        let tokens = Tokens::new(&values, 2, 2).unwrap();
        let (same, on_output) = routing.clone().weigh(tokens).unwrap();
        assert_eq!((same, on_output.weights()), (values.to_vec(), &[0.5, 0.25][..]));

        let due = routing.clone().on_input().unwrap();
        assert_eq!((due.weight_on(), due.weights()), (WeightOn::Input, &[1.0, 1.0][..]));
        assert_eq!(due.check_weighed(), Err(RoutingError::Unweighed));
        let (weighed, done) = due.weigh(tokens).unwrap();
        assert_eq!(weighed, [0.5, 1.0, 1.0, 2.0].map(bf16::from_f32));
        assert_eq!(done.check_weighed(), Ok(()));
        // Once more changes nothing.
        let again = done.clone().weigh(Tokens::new(&weighed, 2, 2).unwrap()).unwrap();
        assert_eq!(again, (weighed, done));

        let two = Routing::new(1, 2, 4, vec![3, 1], vec![0.5, 0.25]).unwrap();
        assert_eq!(two.on_input(), Err(RoutingError::InputWeights { top_k: 2 }));
        assert!(matches!(routing.weigh(Tokens::new(&values, 1, 4).unwrap()), Err(RoutingError::Size { .. })));
    }
}
