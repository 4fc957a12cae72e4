//! Formats and layouts of the table, by the names that people give them.

use scalewright::UnknownWord;
use scalewright::format::FormatSpec;
use scalewright::generated::formats::FORMATS;
use scalewright::generated::layouts::LAYOUTS;
use scalewright::layout::Layout;

use super::{Trouble, question};

/// The layout of the table that is called `name` there, or by somebody else.
pub(super) fn layout(name: &str) -> Result<&'static Layout, Trouble> {
    let by_name = LAYOUTS.iter().find(|layout| layout.name == name);
    let found = by_name.or_else(|| LAYOUTS.iter().find(|layout| layout.aliases.contains(&name)));
    found.copied().ok_or_else(|| {
        let names: Vec<_> = LAYOUTS.iter().map(|layout| layout.name).collect();
        let aliases: Vec<_> = LAYOUTS.iter().flat_map(|layout| layout.aliases).copied().collect();
        unknown("layout", name, &names, &aliases)
    })
}

/// The format of the table that is called `name`.
pub(super) fn format(name: &str) -> Result<&'static FormatSpec, Trouble> {
    let found = FORMATS.iter().find(|format| format.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        unknown("format", name, &names, &[])
    })
}

fn unknown(what: &str, name: &str, names: &[&'static str], aliases: &[&'static str]) -> Trouble {
    let unknown = UnknownWord { word: name.to_owned(), known: [names, aliases].concat() };
    let meant = match unknown.nearest() {
        Some(known) => format!("did you mean `{known}`? The"),
        None => "the".to_owned(),
    };
    question(format!("there is no {what} `{name}`; {meant} table has {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_table_goes_before_an_alias() {
        for known in LAYOUTS {
            assert!(layout(known.name).is_ok_and(|found| std::ptr::eq(found, *known)), "{}", known.name);
        }
        assert!(layout("R128c4").is_ok_and(|found| found.name == "swizzled_128x4"));
    }
}
