//! Transports.

use std::sync::Arc;

use super::{Checker, facts};
use crate::diagnostic::{Code, Diagnostic};
use crate::model::words::QuantizeWhen;
use crate::model::{Carries, Format, Transport, Wire};
use crate::read::Named;
use crate::schema;
use crate::source::At;

impl Checker<'_> {
    pub(super) fn transports(&mut self, table: &Named<schema::Transport>) -> Vec<Transport> {
        table.entries.iter().filter_map(|(name, transport)| self.transport(name, transport)).collect()
    }

    fn transport(&mut self, name: &At<String>, transport: &schema::Transport) -> Option<Transport> {
        let carries = match (&transport.scope, &transport.payload) {
            (Some(_), None) => Carries::Nothing,
            (None, Some(payloads)) if !payloads.value.is_empty() => {
                Carries::Payloads(self.payloads(&payloads.value))
            }
            (Some(scope), Some(payload)) => {
                self.push(
                    Diagnostic::new(
                        Code::E0504,
                        payload.span.clone(),
                        "a local transport carries no payload",
                    )
                    .and(scope.span.clone(), "tokens stay on their rank")
                    .help("remove the payloads or the scope"),
                );
                return None;
            }
            (None, _) => {
                let message = format!("the transport `{}` carries nothing", name.value);
                self.push(Diagnostic::new(Code::E0504, name.span.clone(), message).help(format!(
                    "add a `[[transport.{}.payload]]`, or `scope = \"local\"` if tokens stay on their rank",
                    name.value
                )));
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
            (QuantizeWhen::Before, Some(_), None) => {
                let message =
                    format!("`{}` travels with its scales, and nothing says in which layout", format.name);
                self.push(
                    Diagnostic::new(Code::E0503, payload.quantize.span.clone(), message)
                        .and(payload.format.span.clone(), "has block scales")
                        .help("add `wire = \"…\"`, the layout of the scales on the wire"),
                );
                None
            }
            (QuantizeWhen::Before, None, _) => {
                let message = format!("`{}` has no block scales, so nothing quantises to it", format.name);
                self.push(
                    Diagnostic::new(Code::E0503, payload.quantize.span.clone(), message)
                        .and(payload.format.span.clone(), "the format")
                        .help("write `quantize = \"after\"`, without `wire`"),
                );
                None
            }
            (QuantizeWhen::After, Some(_), _) => {
                let message =
                    format!("`{}` is quantised, so it is not what travels before quantising", format.name);
                self.push(
                    Diagnostic::new(Code::E0503, payload.format.span.clone(), message)
                        .and(payload.quantize.span.clone(), "quantised after dispatch")
                        .help("name the 16-bit format that travels, or write `quantize = \"before\"` with a `wire` layout"),
                );
                None
            }
            (QuantizeWhen::After, None, Some(wire)) => {
                let message = format!("`{}` has no block scales to lay out", format.name);
                self.push(
                    Diagnostic::new(Code::E0503, wire.span.clone(), message)
                        .and(payload.format.span.clone(), "the format")
                        .help("remove `wire`"),
                );
                None
            }
        }
    }
}
