//! What a table means: from the schema to the model, or every finding.

mod entries;
mod oracles;
mod reach;
mod rivals;
mod rows;
mod select;
mod transports;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::model;
use crate::model::words::{Device, Word};
use crate::read::{Named, Read};
use crate::schema;
use crate::source::{At, Span};

/// The version of the schema that this generator reads.
pub(crate) const SCHEMA: usize = 1;

/// The model of `table`, or what is in the way. Findings are added to `findings`; a model is
/// returned if none of them is an error.
pub(crate) fn check(table: &schema::Table, findings: &mut Vec<Diagnostic>) -> Option<model::Table> {
    match &table.schema {
        // Optional for the reader only, so that its absence does not hide every other finding.
        None => {
            <At<usize> as Read>::absent("schema", &table.span, findings);
        }
        Some(schema) if schema.value == SCHEMA => {}
        Some(schema) => {
            let message = format!("this generator reads schema {SCHEMA}, not {}", schema.value);
            findings.push(
                Diagnostic::new(Code::E0108, schema.span.clone(), message)
                    .help("use the generator that the table was written for, or bring the table up to date"),
            );
        }
    }
    let mut checker = Checker { findings, entries: Entries::default() };
    checker.names(table);
    checker.entries(table);
    checker.selection(table);
    let backends: Vec<_> = checker.rows(&table.backend).into_iter().map(Arc::new).collect();
    let transports = checker.transports(&table.transport);
    let oracles = checker.oracles(table, &backends);
    checker.unreachable_rows(table);
    let Checker { findings, entries } = checker;
    let stops = findings.iter().any(|finding| finding.severity() == crate::diagnostic::Severity::Error);
    (!stops).then(|| model::Table {
        layouts: entries.layouts.into_values().collect(),
        payloads: entries.payloads.into_values().collect(),
        orders: entries.orders.into_values().collect(),
        devices: entries.devices.into_iter().collect(),
        formats: entries.formats.into_values().collect(),
        backends,
        transports,
        schemes: entries.schemes,
        settings: entries.settings,
        experts: entries.experts.into_values().collect(),
        oracles,
        dropped: table.dropped.iter().flatten().map(select::dropped).collect(),
    })
}

/// Collects findings while it goes.
struct Checker<'a> {
    findings: &'a mut Vec<Diagnostic>,
    entries: Entries,
}

/// The entries that rows refer to, those without findings.
#[derive(Default)]
struct Entries {
    layouts: BTreeMap<String, Arc<model::Layout>>,
    payloads: BTreeMap<String, Arc<model::Payload>>,
    orders: BTreeMap<String, Arc<model::Order>>,
    formats: BTreeMap<String, Arc<model::Format>>,
    devices: BTreeMap<String, Vec<Device>>,
    schemes: Vec<model::select::Scheme>,
    settings: Vec<model::select::Setting>,
    experts: BTreeMap<String, Arc<model::select::ExpertsList>>,
    /// Names that stand in the table, entries with findings included: a row that refers to a broken
    /// entry is not told that there is none.
    written: BTreeMap<&'static str, Vec<String>>,
}

impl Checker<'_> {
    fn error(&mut self, code: Code, span: &Span, message: impl Into<String>) {
        self.push(Diagnostic::new(code, span.clone(), message));
    }

    fn error_with(&mut self, code: Code, span: &Span, message: String, help: &str) {
        self.push(Diagnostic::new(code, span.clone(), message).help(help));
    }

    fn push(&mut self, finding: Diagnostic) {
        self.findings.push(finding);
    }

    /// The entry called `name`, or the finding that there is none.
    fn lookup<T: Clone>(
        &mut self,
        kind: &'static str,
        name: &schema::Name,
        map: fn(&Entries) -> &BTreeMap<String, T>,
    ) -> Option<T> {
        if let Some(entry) = map(&self.entries).get(&name.value) {
            return Some(entry.clone());
        }
        let written = self.entries.written.get(kind).cloned().unwrap_or_default();
        if !written.contains(&name.value) {
            let message = format!("there is no {kind} `{}`", name.value);
            let help = suggest(&name.value, written.iter().map(String::as_str));
            self.push(Diagnostic::new(Code::E0301, name.span.clone(), message).help(help));
        }
        None
    }

    fn layout(&mut self, name: &schema::Name) -> Option<Arc<model::Layout>> {
        self.lookup("layout", name, |entries| &entries.layouts)
    }

    fn format(&mut self, name: &schema::Name) -> Option<Arc<model::Format>> {
        self.lookup("format", name, |entries| &entries.formats)
    }

    fn devices(&mut self, devices: &schema::Devices) -> Option<Vec<Device>> {
        match devices {
            schema::Devices::List(list) => Some(list.iter().map(|device| device.value).collect()),
            schema::Devices::Group(name) if Device::ALL.iter().any(|device| device.name() == name.value) => {
                let message = format!("`{}` is a device, and a word here names a group of them", name.value);
                let help = format!("write `[\"{}\"]`", name.value);
                self.error_with(Code::E0301, &name.span, message, &help);
                None
            }
            schema::Devices::Group(name) => self.lookup("devices group", name, |entries| &entries.devices),
        }
    }

    /// Every name can be a Rust module, and no two are one type.
    fn names(&mut self, table: &schema::Table) {
        // Layouts, formats and rows become types of one module tree; the rest only statics.
        self.names_of("layout", &table.layout);
        self.names_of("payload", &table.payload);
        self.names_of("order", &table.order);
        self.names_of("devices group", &table.devices);
        self.names_of("format", &table.format);
        self.names_of("backend", &table.backend);
        self.names_of("transport", &table.transport);
        self.names_of("oracle", &table.oracle);
        self.names_of("scheme", &table.scheme);
        self.names_of("setting", &table.setting);
        self.names_of("experts", &table.experts);
        self.kernel_names("quantize", &table.format.entries, &table.layout.entries);
        self.kernel_names("relayout", &table.layout.entries, &table.layout.entries);
    }

    /// A kernel is named by what it goes from and to, so no two pairs may read as one: where `a` and
    /// `a_b` are sources, `b_c` and `c` are not both targets.
    fn kernel_names<A, B>(&mut self, verb: &str, from: &[(At<String>, A)], to: &[(At<String>, B)]) {
        let sources: BTreeMap<&str, &At<String>> =
            from.iter().map(|(name, _)| (name.value.as_str(), name)).collect();
        let targets: BTreeSet<&str> = to.iter().map(|(name, _)| name.value.as_str()).collect();
        for (long, _) in from {
            for (end, _) in long.value.match_indices('_') {
                let (start, rest) = (&long.value[..end], &long.value[end + 1..]);
                let Some(short) = sources.get(start) else { continue };
                let ambiguous = |target: &&str| targets.contains(format!("{rest}_{target}").as_str());
                if let Some(target) = targets.iter().copied().find(|target| ambiguous(target)) {
                    let message =
                        format!("two different kernels would be called `{verb}_{}_{target}`", long.value);
                    self.push(
                        Diagnostic::new(Code::E0107, long.span.clone(), message)
                            .and(short.span.clone(), "one begins with this")
                            .help("rename one of them, so that neither name begins with the other and `_`"),
                    );
                }
            }
        }
    }

    fn names_of<T>(&mut self, kind: &'static str, entries: &Named<T>) {
        let mut types: BTreeMap<String, &At<String>> = BTreeMap::new();
        for (name, _) in &entries.entries {
            let has_type = ["layout", "format", "backend"].contains(&kind);
            let has_static = ["layout", "format"].contains(&kind);
            if has_type && model::names::is_taken_type(&name.value)
                || has_static && model::names::is_taken_static(&name.value)
            {
                let message = format!("`{}` is a word of the generated code", name.value);
                self.push(
                    Diagnostic::new(Code::E0107, name.span.clone(), message).help("choose another name"),
                );
                continue;
            }
            if !model::names::is_name(&name.value) {
                self.push(
                    Diagnostic::new(
                        Code::E0107,
                        name.span.clone(),
                        format!("`{}` cannot name a {kind}", name.value),
                    )
                    .help(
                        "names become Rust modules and types: lower case letters, digits and single `_`, \
                               a letter first, no keyword",
                    ),
                );
            } else if let Some(other) = types.insert(model::names::type_name(&name.value), name) {
                let message = format!("`{}` and `{}` would be one type", name.value, other.value);
                self.push(
                    Diagnostic::new(Code::E0107, name.span.clone(), message)
                        .and(other.span.clone(), "the other")
                        .help("rename one of them"),
                );
            }
        }
        self.entries.written.insert(kind, entries.names().map(str::to_owned).collect());
    }
}

/// Facts as the model has them.
fn facts(facts: Option<&Vec<schema::Fact>>) -> Vec<model::Fact> {
    let facts = facts.map(Vec::as_slice).unwrap_or_default();
    facts
        .iter()
        .map(|fact| model::Fact { from: fact.from.clone(), at: fact.at.clone(), how: fact.how })
        .collect()
}
