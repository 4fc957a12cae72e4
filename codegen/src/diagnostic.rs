//! Findings: what is wrong with a table, where, and what to do.

pub mod catalog;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

pub use catalog::Code;

use crate::source::{Source, Span};

/// One finding.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic {
    /// Its kind.
    pub code: Code,
    /// What is wrong, in one line.
    pub message: String,
    /// The place, and what to say there.
    pub primary: Label,
    /// Other places that have to do with it.
    pub secondary: Vec<Label>,
    /// What to do.
    pub help: Option<String>,
}

/// A place in the table and what to say there.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// The text; may be empty.
    pub text: String,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is generated.
    Error,
    /// Worth a look.
    Warning,
}

impl Diagnostic {
    /// A finding at `span`.
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        let primary = Label { span, text: String::new() };
        Self { code, message: message.into(), primary, secondary: Vec::new(), help: None }
    }

    /// Says `text` at the place itself.
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    /// Points to another place.
    pub fn and(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Says what to do.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Whether it stops generation.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// The report, with the lines of the table it speaks of.
    pub fn render(&self, source: &Source) -> String {
        let level = match self.severity() {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut snippet = Snippet::source(source.text.as_str()).path(source.name.as_str());
        snippet = snippet.annotation(annotate(AnnotationKind::Primary, &self.primary, source));
        for label in &self.secondary {
            snippet = snippet.annotation(annotate(AnnotationKind::Context, label, source));
        }
        let mut group: Group<'_> =
            level.primary_title(self.message.as_str()).id(self.code.name()).element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        Renderer::plain().decor_style(DecorStyle::Ascii).render(&[group])
    }
}

fn annotate<'a>(
    kind: AnnotationKind,
    label: &'a Label,
    source: &Source,
) -> annotate_snippets::Annotation<'a> {
    // A finding about a whole table, a missing key say, points at its first line only.
    let text = &source.text;
    let start = label.span.start.min(text.len());
    let end = label.span.end.clamp(start, text.len());
    let line_end = text[start..end].find('\n').map_or(end, |newline| start + newline);
    kind.span(start..line_end).label(label.text.as_str())
}

/// The findings of one table, in the order of their places.
#[derive(Debug, Clone)]
pub struct Report {
    source: Source,
    findings: Vec<Diagnostic>,
}

impl Report {
    pub(crate) fn new(source: Source, mut findings: Vec<Diagnostic>) -> Self {
        findings.sort_by(|a, b| {
            (a.primary.span.start, a.code.name(), &a.message).cmp(&(
                b.primary.span.start,
                b.code.name(),
                &b.message,
            ))
        });
        findings.dedup();
        Self { source, findings }
    }

    /// The findings.
    pub fn findings(&self) -> &[Diagnostic] {
        &self.findings
    }

    /// The findings of one severity, rendered.
    pub fn render(&self, severity: Severity) -> Vec<String> {
        let of_severity = self.findings.iter().filter(|finding| finding.severity() == severity);
        of_severity.map(|finding| finding.render(&self.source)).collect()
    }

    /// Whether nothing is generated.
    pub fn stops(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity() == Severity::Error)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rendered: Vec<_> = self.findings.iter().map(|finding| finding.render(&self.source)).collect();
        f.write_str(&rendered.join("\n\n"))
    }
}

impl std::error::Error for Report {}

/// The member of `known` that `word` was probably meant to be.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|candidate| (strsim::jaro_winkler(word, candidate), candidate));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}

/// "did you mean …? known are …": the help of every finding about an unknown word.
pub(crate) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let all: Vec<_> = known.clone().into_iter().map(|known| format!("`{known}`")).collect();
    let all = if all.is_empty() {
        "nothing is known here".to_owned()
    } else {
        format!("known: {}", all.join(", "))
    };
    match nearest(word, known) {
        Some(nearest) => format!("did you mean `{nearest}`? {all}"),
        None => all,
    }
}
