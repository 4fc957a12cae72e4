//! Reads a parsed table into the schema's types.
//!
//! Where serde stops at the first thing that does not fit, this goes on: every unknown key, missing
//! key and unknown word of a table is a finding of its own, with its place.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::model::words::Word;
use crate::source::{At, Span};

pub(crate) type Node<'i> = Spanned<DeValue<'i>>;

/// A type that a table holds.
pub(crate) trait Read: Sized {
    /// The value at `node`, or findings.
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self>;

    /// What it means that `key` is absent from the table at `table`: a finding, unless the type is
    /// optional.
    fn absent(key: &str, table: &Span, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let message = format!("the key `{key}` is missing");
        findings
            .push(Diagnostic::new(Code::E0103, table.clone(), message).label(format!("needs `{key} = …`")));
        None
    }
}

/// A record of the schema: a struct whose fields are the keys of a table, all others refused.
macro_rules! record {
    ($(#[$doc:meta])* struct $name:ident { $($(#[$key_doc:meta])* $key:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            $($(#[$key_doc])* pub(crate) $key: $type,)*
            #[allow(dead_code, reason = "every record knows its place; some are never blamed")]
            pub(crate) span: $crate::source::Span,
        }

        impl $crate::read::Read for $name {
            fn read(
                node: &$crate::read::Node<'_>,
                findings: &mut Vec<$crate::diagnostic::Diagnostic>,
            ) -> Option<Self> {
                let keys = [$(stringify!($key).trim_start_matches("r#")),*];
                let table = $crate::read::table(node, &keys, findings)?;
                $(let $key = $crate::read::field(
                    table, &node.span(), stringify!($key).trim_start_matches("r#"), findings,
                );)*
                Some(Self { $($key: $key?,)* span: node.span() })
            }
        }
    };
}
pub(crate) use record;

/// The table at `node`, its unknown keys reported.
pub(crate) fn table<'a, 'i>(
    node: &'a Node<'i>,
    keys: &[&'static str],
    findings: &mut Vec<Diagnostic>,
) -> Option<&'a DeTable<'i>> {
    let Some(table) = node.get_ref().as_table() else {
        wrong_type(node, "a table", findings);
        return None;
    };
    for key in table.keys().filter(|key| !keys.contains(&key.get_ref().as_ref())) {
        let word: &str = key.get_ref();
        findings.push(
            Diagnostic::new(Code::E0102, key.span(), format!("the key `{word}` is not known here"))
                .help(suggest(word, keys.iter().copied())),
        );
    }
    Some(table)
}

/// The value of `key` in the table at `span`.
pub(crate) fn field<T: Read>(
    table: &DeTable<'_>,
    span: &Span,
    key: &str,
    findings: &mut Vec<Diagnostic>,
) -> Option<T> {
    match table.iter().find(|(name, _)| name.get_ref() == key) {
        Some((_, node)) => T::read(node, findings),
        None => T::absent(key, span, findings),
    }
}

pub(crate) fn wrong_type(node: &Node<'_>, wanted: &str, findings: &mut Vec<Diagnostic>) {
    let message = format!("this has to be {wanted}, not {}", article(node.get_ref().type_str()));
    findings.push(Diagnostic::new(Code::E0104, node.span(), message).label(format!("not {wanted}")));
}

fn article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

impl<T: Read> Read for Option<T> {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        T::read(node, findings).map(Some)
    }

    fn absent(_: &str, _: &Span, _: &mut Vec<Diagnostic>) -> Option<Self> {
        Some(None)
    }
}

impl<T: Read> Read for At<T> {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        Some(Self { value: T::read(node, findings)?, span: node.span() })
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let Some(array) = node.get_ref().as_array() else {
            wrong_type(node, "an array", findings);
            return None;
        };
        let items: Vec<_> = array.iter().map(|item| T::read(item, findings)).collect();
        items.into_iter().collect()
    }
}

/// Named entries, `[kind.name]`; absent means none.
#[derive(Debug, Clone)]
pub(crate) struct Named<T> {
    pub(crate) entries: Vec<(At<String>, T)>,
    /// The names of those that cannot be read, whose findings are recorded.
    unreadable: Vec<String>,
}

impl<T> Named<T> {
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.entries.iter().find(|(key, _)| key.value == name).map(|(_, value)| value)
    }

    /// Whether each entry could be read.
    pub(crate) fn is_complete(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Every name that is written, unreadable entries included.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let readable = self.entries.iter().map(|(key, _)| key.value.as_str());
        readable.chain(self.unreadable.iter().map(String::as_str))
    }
}

impl<T: Read> Read for Named<T> {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let Some(table) = node.get_ref().as_table() else {
            wrong_type(node, "a table of named entries", findings);
            return None;
        };
        let mut named = Self { entries: Vec::new(), unreadable: Vec::new() };
        for (key, node) in table {
            let key = At { value: key.get_ref().to_string(), span: key.span() };
            match T::read(node, findings) {
                Some(value) => named.entries.push((key, value)),
                None => named.unreadable.push(key.value),
            }
        }
        Some(named)
    }

    fn absent(_: &str, _: &Span, _: &mut Vec<Diagnostic>) -> Option<Self> {
        Some(Self { entries: Vec::new(), unreadable: Vec::new() })
    }
}

/// A table whose keys are words of a vocabulary.
#[derive(Debug, Clone)]
pub(crate) struct ByWord<W, T>(pub(crate) Vec<(At<W>, T)>);

impl<W: Word, T> ByWord<W, T> {
    pub(crate) fn get(&self, word: W) -> Option<&(At<W>, T)> {
        self.0.iter().find(|(key, _)| key.value == word)
    }
}

impl<W: Word, T: Read> Read for ByWord<W, T> {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let Some(table) = node.get_ref().as_table() else {
            wrong_type(node, "a table", findings);
            return None;
        };
        let read = |(key, node): (&Spanned<DeString<'_>>, &Node<'_>)| {
            let word = word(key.get_ref(), &key.span(), findings);
            let value = T::read(node, findings);
            Some((At { value: word?, span: key.span() }, value?))
        };
        let entries: Vec<_> = table.iter().map(read).collect();
        entries.into_iter().collect::<Option<_>>().map(Self)
    }
}

/// A part whose findings keep nobody from looking at the parts beside it: `None` if it cannot be
/// read, or is missing.
#[derive(Debug, Clone)]
pub(crate) struct Part<T>(pub(crate) Option<T>);

impl<T: Read> Read for Part<T> {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        Some(Self(T::read(node, findings)))
    }

    fn absent(key: &str, table: &Span, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        Some(Self(T::absent(key, table, findings)))
    }
}

impl Read for String {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let text = node.get_ref().as_str();
        if text.is_none() {
            wrong_type(node, "a string", findings);
        }
        text.map(str::to_owned)
    }
}

/// A count or a multiple: a whole number from 1.
impl Read for usize {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        number(node, 1, 1 << 24, findings)
    }
}

/// A byte, in decimal or `0x..`.
impl Read for u8 {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        number(node, 0, 255, findings).and_then(|number| number.try_into().ok())
    }
}

fn number(node: &Node<'_>, from: usize, to: usize, findings: &mut Vec<Diagnostic>) -> Option<usize> {
    let Some(integer) = node.get_ref().as_integer() else {
        wrong_type(node, "an integer", findings);
        return None;
    };
    let digits = integer.as_str().trim_start_matches('+');
    let value = usize::from_str_radix(digits, integer.radix()).ok();
    let value = value.filter(|value| (from..=to).contains(value));
    if value.is_none() {
        let message = format!("`{}` is out of range", integer.as_str());
        let range = format!("has to be from {from} to {to}");
        findings.push(Diagnostic::new(Code::E0106, node.span(), message).label(range));
    }
    value
}

impl<W: Word> Read for W {
    fn read(node: &Node<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let text = String::read(node, findings)?;
        word(&text, &node.span(), findings)
    }
}

fn word<W: Word>(text: &str, span: &Span, findings: &mut Vec<Diagnostic>) -> Option<W> {
    let found = W::ALL.iter().copied().find(|known| known.name() == text);
    if found.is_none() {
        findings.push(
            Diagnostic::new(Code::E0105, span.clone(), format!("`{text}` is not {}", W::WHAT))
                .help(suggest(text, W::ALL.iter().map(|known| known.name()))),
        );
    }
    found
}
