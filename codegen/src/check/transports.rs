//! Transports.

use std::sync::Arc;

use super::{Checker, facts};
use crate::diagnostic::{Code, Diagnostic};
use crate::model::Format;
use crate::model::transport::{Carries, Payload, Transport, Wire};
use crate::model::words::QuantizeWhen;
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
        let devices = transport.devices.as_ref().map(|devices| self.devices(devices));
        Some(Transport {
            name: name.value.clone(),
            all2all: transport.all2all.clone().unwrap_or_default(),
            grouping: transport.grouping,
            devices: devices.flatten(),
            hidden_sizes: transport.hidden_sizes.clone().unwrap_or_default(),
            facts: facts(transport.facts.as_ref()),
            carries,
        })
    }

    fn payloads(&mut self, payloads: &[schema::TransportPayload]) -> Vec<Payload> {
        let mut found = Vec::new();
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

    fn payload(&mut self, payload: &schema::TransportPayload) -> Option<Payload> {
        let format = self.format(&payload.format)?;
        let wire = match (&payload.quantize, &payload.refuse) {
            (Some(quantize), None) => self.wire(payload, quantize, &format)?,
            (None, Some(why)) => Wire::Refused(why.value.clone()),
            (None, None) | (Some(_), Some(_)) => {
                let message = format!("it is not said whether `{}` travels", format.name);
                self.push(Diagnostic::new(Code::E0503, payload.format.span.clone(), message).help(
                    "write `quantize`, when it is quantised, or `refuse`, why it does not travel, and not both",
                ));
                return None;
            }
        };
        let hidden_multiple = payload.hidden_multiple.unwrap_or(1);
        Some(Payload { format, wire, hidden_multiple })
    }

    fn wire(
        &mut self,
        payload: &schema::TransportPayload,
        quantize: &At<QuantizeWhen>,
        format: &Arc<Format>,
    ) -> Option<Wire> {
        let layout = payload.wire.as_ref().map(|wire| self.layout(wire));
        match (quantize.value, format.block, &payload.wire) {
            (QuantizeWhen::After, None, None) => Some(Wire::Plain),
            (QuantizeWhen::Never, None, None) => Some(Wire::Unquantized),
            (QuantizeWhen::Before | QuantizeWhen::Dispatch, Some(block), Some(wire)) => {
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
                Some(Wire::Quantized(layout))
            }
            (QuantizeWhen::Before | QuantizeWhen::Dispatch, Some(_), None) => {
                let message =
                    format!("`{}` travels with its scales, and nothing says in which layout", format.name);
                self.push(
                    Diagnostic::new(Code::E0503, quantize.span.clone(), message)
                        .and(payload.format.span.clone(), "has block scales")
                        .help("add `wire = \"…\"`, the layout of the scales on the wire"),
                );
                None
            }
            (QuantizeWhen::Before | QuantizeWhen::Dispatch, None, _) => {
                let message = format!("`{}` has no block scales, so nothing quantises to it", format.name);
                self.push(
                    Diagnostic::new(Code::E0503, quantize.span.clone(), message)
                        .and(payload.format.span.clone(), "the format")
                        .help("write `quantize = \"after\"`, without `wire`"),
                );
                None
            }
            (QuantizeWhen::After | QuantizeWhen::Never, Some(_), _) => {
                let message =
                    format!("`{}` is quantised, so it is not what travels before quantising", format.name);
                self.push(
                    Diagnostic::new(Code::E0503, payload.format.span.clone(), message)
                        .and(quantize.span.clone(), "quantised after dispatch")
                        .help("name the 16-bit format that travels, or write `quantize = \"before\"` with a `wire` layout"),
                );
                None
            }
            (QuantizeWhen::After | QuantizeWhen::Never, None, Some(wire)) => {
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
