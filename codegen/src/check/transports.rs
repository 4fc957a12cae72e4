//! Transports.

use std::sync::Arc;

use super::{Checker, facts};
use crate::diagnostic::{Code, Diagnostic};
use crate::model::words::{QuantizeWhen, Word};
use crate::model::{Carries, Format, Transport, Wire};
use crate::read::Named;
use crate::schema;
use crate::source::At;

impl Checker<'_> {
    pub(super) fn transports(&mut self, table: &Named<schema::Transport>) -> Vec<Transport> {
        table.0.iter().filter_map(|(name, transport)| self.transport(name, transport)).collect()
    }

    fn transport(&mut self, name: &At<String>, transport: &schema::Transport) -> Option<Transport> {
        let carries = match (&transport.scope, &transport.payload) {
            (Some(_), None) => Carries::Nothing,
            (None, Some(payloads)) => Carries::Payloads(self.payloads(&payloads.value)),
            (Some(scope), Some(payload)) => {
                self.push(
                    Diagnostic::new(
                        Code::E0504,
                        payload.span.clone(),
                        "a local transport carries no payload",
                    )
                    .and(scope.span.clone(), "local"),
                );
                return None;
            }
            (None, None) => {
                self.push(
                    Diagnostic::new(Code::E0504, name.span.clone(), format!("the transport `{}` carries nothing", name.value))
                        .help("add a `[[transport.….payload]]`, or `scope = \"local\"` if tokens stay on their rank"),
                );
                return None;
            }
        };
        let facts = facts(transport.facts.as_ref());
        Some(Transport { name: name.value.clone(), all2all: transport.all2all, facts, carries })
    }

    fn payloads(&mut self, payloads: &[schema::TransportPayload]) -> Vec<(Arc<Format>, Wire)> {
        let mut found: Vec<(Arc<Format>, Wire)> = Vec::new();
        for payload in payloads {
            if let Some(earlier) = payloads.iter().find(|other| other.format.value == payload.format.value)
                && earlier.format.span != payload.format.span
            {
                let message = format!("`{}` is carried by an earlier payload already", payload.format.value);
                self.push(
                    Diagnostic::new(Code::E0501, payload.format.span.clone(), message)
                        .and(earlier.format.span.clone(), "the first match wins")
                        .help("remove one of the two"),
                );
            }
            if let Some(entry) = self.payload(payload) {
                found.push(entry);
            }
        }
        found
    }

    fn payload(&mut self, payload: &schema::TransportPayload) -> Option<(Arc<Format>, Wire)> {
        let format = self.format(&payload.format);
        let layout = payload.wire.as_ref().map(|wire| self.layout(wire));
        let format = format?;
        match (payload.quantize.value, format.block, &payload.wire) {
            (QuantizeWhen::After, None, None) => Some((format, Wire::Plain)),
            (QuantizeWhen::Before, Some(block), Some(wire)) => {
                let layout = layout??;
                self.holds(&layout, block.scale, wire, &payload.format);
                if !layout.is_per_token() {
                    let message = format!(
                        "`{}` cannot travel: rows of several ranks do not follow each other in it",
                        layout.name
                    );
                    self.push(Diagnostic::new(Code::E0502, wire.span.clone(), message).help(
                        "a wire layout keeps the scales of each token together and pads no rows: its \
                         outermost digit is `row`",
                    ));
                    return None;
                }
                Some((format, Wire::Quantized(layout)))
            }
            (when, _, _) => {
                let scaled = if format.block.is_some() { "has" } else { "has no" };
                let message = format!(
                    "`{}` {scaled} block scales, which does not go with `quantize = \"{}\"` {} a wire layout",
                    format.name,
                    when.name(),
                    if payload.wire.is_some() { "and" } else { "without" },
                );
                self.push(Diagnostic::new(Code::E0503, payload.quantize.span.clone(), message).help(
                    "what is quantised before dispatch has scales and a `wire` layout for them; what is \
                     quantised after travels in 16 bits and has none",
                ));
                None
            }
        }
    }
}
