//! Transports as values, and what each does for a row. Made from `[transport.x]`.

use crate::layout::Layout;
use crate::oracle::{All2all, Device};

/// A way for tokens from rank to rank.
#[derive(Debug)]
pub struct Transport {
    /// Its name in the table.
    pub name: &'static str,
    /// The engine's all-to-alls that are this one; empty where there is none.
    pub all2all: &'static [All2all],
    /// How it hands tokens to experts.
    pub hands_over: Grouped,
    /// Where it runs; `None` for everywhere.
    pub devices: Option<&'static [Device]>,
    /// The only hidden sizes that it takes; empty for all.
    pub hidden_sizes: &'static [usize],
}

/// How tokens are handed to experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouped {
    /// One row a token.
    Tokens,
    /// A buffer of equal size for each expert.
    Slots,
}

/// A transport on its way to a row.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The transport.
    pub transport: &'static Transport,
    /// What it does for the row.
    pub delivery: Delivery,
    /// What the hidden size has to be a multiple of; 1 for nothing.
    pub hidden_multiple: usize,
}

impl Route {
    const fn new(transport: &'static Transport, delivery: Delivery) -> Self {
        Self { transport, delivery, hidden_multiple: 1 }
    }

    /// [`Delivery::Local`]
    pub const fn local(transport: &'static Transport) -> Self {
        Self::new(transport, Delivery::Local)
    }

    /// [`Delivery::Direct`]
    pub const fn direct(transport: &'static Transport, wire: &'static Layout) -> Self {
        Self::new(transport, Delivery::Direct(wire))
    }

    /// [`Delivery::Convert`]
    pub const fn convert(
        transport: &'static Transport,
        wire: &'static Layout,
        prepared: &'static Layout,
    ) -> Self {
        Self::new(transport, Delivery::Convert { wire, prepared })
    }

    /// [`Delivery::QuantizeAfter`]
    pub const fn quantize_after(transport: &'static Transport) -> Self {
        Self::new(transport, Delivery::QuantizeAfter)
    }

    /// [`Delivery::Refused`]
    pub const fn refused(transport: &'static Transport, reason: &'static str) -> Self {
        Self::new(transport, Delivery::Refused(reason))
    }

    /// The same, for multiples only.
    #[must_use]
    pub const fn hidden_multiple(mut self, multiple: usize) -> Self {
        self.hidden_multiple = multiple;
        self
    }

    /// The smallest hidden size from `least` on that can travel; `None` if none can.
    pub fn hidden_from(&self, least: usize) -> Option<usize> {
        match self.transport.hidden_sizes {
            [] => Some(least.next_multiple_of(self.hidden_multiple)),
            sizes => {
                let taken = |size: &usize| *size >= least && size.is_multiple_of(self.hidden_multiple);
                sizes.iter().copied().filter(taken).min()
            }
        }
    }
}

/// What a transport does for a row: how a token gets from the rank that holds it into the layout
/// that the backend is handed.
#[derive(Debug, Clone, Copy)]
pub enum Delivery {
    /// Nothing travels: prepare writes the prepared layout.
    Local,
    /// Quantised before dispatch; what arrives, in this layout with one row a token, is what the backend
    /// is handed.
    Direct(&'static Layout),
    /// Quantised before dispatch; converted once after it.
    Convert {
        /// The layout on the wire, one row a token.
        wire: &'static Layout,
        /// The layout that the backend is handed.
        prepared: &'static Layout,
    },
    /// Travels in 16 bits; quantised after dispatch.
    QuantizeAfter,
    /// Not possible. What the transport does instead, as what follows "it".
    Refused(&'static str),
}
