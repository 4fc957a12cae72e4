//! Transports, and what each does for each row: decided here, once for every pair of the table.

use std::sync::Arc;

use super::words::{ActivationFormat, All2all, Device, GroupingWord, QuantizeAt, ScaleSource};
use super::{Backend, Fact, Format, Grouping, Input, Known, Layout, Scales};

/// A way for tokens from rank to rank.
#[derive(Debug)]
pub struct Transport {
    /// Its name.
    pub name: String,
    /// The engine's all-to-alls that are this one.
    pub all2all: Vec<All2all>,
    /// How it hands tokens to experts.
    pub grouping: GroupingWord,
    /// Where it runs; `None` for everywhere.
    pub devices: Option<Vec<Device>>,
    /// The only hidden sizes that it takes; empty for all.
    pub hidden_sizes: Vec<usize>,
    /// Where facts were seen.
    pub facts: Vec<Fact>,
    /// What travels.
    pub carries: Carries,
}

/// What a transport carries.
#[derive(Debug)]
pub enum Carries {
    /// Nothing: tokens stay on their rank.
    Nothing,
    /// The first that a row can take wins.
    Payloads(Vec<Payload>),
}

/// How a format travels.
#[derive(Debug)]
pub struct Payload {
    /// The format.
    pub format: Arc<Format>,
    /// Its way.
    pub wire: Wire,
    /// What the hidden size has to be a multiple of; 1 for nothing.
    pub hidden_multiple: usize,
}

/// What happens to a format on the way.
#[derive(Debug)]
pub enum Wire {
    /// It is quantised before or within dispatch; its scales travel in a layout that has a row a token.
    Quantized(Arc<Layout>),
    /// It travels without scales; quantised, where a row asks for it, after dispatch.
    Plain,
    /// It travels without scales, and nobody quantises after dispatch.
    Unquantized,
    /// It does not travel; the text says why.
    Refused(String),
}

/// What a transport does for a row.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Prepare writes the prepared layout.
    Local,
    /// What arrives is prepared already; `None` for formats without scales.
    Direct(Option<Arc<Layout>>),
    /// What arrives is converted once.
    Convert {
        /// On the wire.
        wire: Arc<Layout>,
        /// What the backend is handed.
        prepared: Arc<Layout>,
    },
    /// 16 bits travel; what arrives is quantised.
    QuantizeAfter,
    /// Not possible. What the transport does instead, as what follows "it".
    Refused(String),
}

impl Transport {
    /// How it gets tokens to `row`, and the multiple that it asks of the hidden size.
    pub fn delivery(&self, row: &Backend) -> (Delivery, usize) {
        let refused = |why: String| (Delivery::Refused(why), 1);
        if row.reads_grouped_as() != self.grouping {
            return refused(match self.grouping {
                GroupingWord::Tokens => "hands over one row a token".to_owned(),
                GroupingWord::Slots => "hands over a buffer an expert".to_owned(),
            });
        }
        let Carries::Payloads(payloads) = &self.carries else { return (Delivery::Local, 1) };
        let input = &row.gemm1;
        let taken = payloads.iter().find_map(|payload| Some((payload.delivery(input)?, payload)));
        match taken {
            Some((delivery, payload)) => (delivery, payload.hidden_multiple),
            None => refused(self.carries_not(payloads, input)),
        }
    }

    /// Why none of `payloads` is what `input` reads.
    fn carries_not(&self, payloads: &[Payload], input: &Input) -> String {
        let names: Vec<_> = input.handed().iter().map(|format| format.name.as_str()).collect();
        let names = names.join(" nor ");
        let quantizes_after = payloads.iter().any(|payload| matches!(payload.wire, Wire::Plain));
        match input.source {
            _ if quantizes_after => format!("carries neither {names} nor 16-bit tokens"),
            Some(ScaleSource::Dynamic) => "would let each rank choose a scale".to_owned(),
            _ => format!("never quantises to {names}"),
        }
    }
}

impl Payload {
    fn delivery(&self, input: &Input) -> Option<Delivery> {
        let reads = input.handed().contains(&self.format);
        let by_experts = input.quantize == Some(QuantizeAt::Expert);
        // Ranks that each choose the one scale of their tokens cannot be put together.
        let differs_by_rank = input.source == Some(ScaleSource::Dynamic);
        match (&self.wire, &input.layout) {
            (Wire::Refused(why), _) => reads.then(|| Delivery::Refused(why.clone())),
            (Wire::Plain | Wire::Unquantized, _) if reads || by_experts => Some(Delivery::Direct(None)),
            (Wire::Plain, Known::Is(Scales::At { .. })) => Some(Delivery::QuantizeAfter),
            (Wire::Unquantized, _) => None,
            (Wire::Quantized(_), _) if !reads || by_experts || differs_by_rank => None,
            (Wire::Quantized(wire), Known::Is(Scales::At { prepared, .. })) => Some(if wire == prepared {
                Delivery::Direct(Some(wire.clone()))
            } else {
                Delivery::Convert { wire: wire.clone(), prepared: prepared.clone() }
            }),
            (_, Known::Vendor(_)) => Some(Delivery::Refused("does not know the vendor's layout".to_owned())),
            (_, Known::Is(Scales::Unscaled)) => None,
        }
    }
}

impl Backend {
    /// How the row is handed tokens: as its `grouping` says; where it says nothing, as its classes do.
    pub fn reads_grouped_as(&self) -> GroupingWord {
        let batched = |class: &super::select::Experts| {
            class.requires.activation_format == Some(ActivationFormat::Batched)
        };
        let classes = &self.experts.classes;
        match self.gemm1.grouping {
            Some(Grouping::Slots) => GroupingWord::Slots,
            None if !classes.is_empty() && classes.iter().all(batched) => GroupingWord::Slots,
            _ => GroupingWord::Tokens,
        }
    }
}
