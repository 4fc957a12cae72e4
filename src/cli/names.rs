//! Formats and layouts of the table, by the names that people give them.

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

fn unknown(what: &str, name: &str, names: &[&str], aliases: &[&str]) -> Trouble {
    let nearest = names.iter().chain(aliases).map(|known| (distance(name, known), known)).min();
    let meant = match nearest {
        // Farther than this, a word is another word.
        Some((distance, known)) if distance <= name.len() / 2 => format!("did you mean `{known}`? The"),
        _ => "the".to_owned(),
    };
    question(format!("there is no {what} `{name}`; {meant} table has {}", names.join(", ")))
}

/// The letters to add, drop or replace to come from one word to the other, case apart.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.to_lowercase().chars().enumerate() {
        let mut next = vec![row + 1];
        for (col, other) in to.iter().enumerate() {
            let replaced = last[col] + usize::from(letter != *other);
            next.push(replaced.min(last[col + 1] + 1).min(next[col] + 1));
        }
        last = next;
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        let cases = [
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("R128C4", "r128c4", 0),
            ("ab", "ba", 2),
        ];
        for (from, to, expected) in cases {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn a_name_of_the_table_goes_before_an_alias() {
        for known in LAYOUTS {
            assert!(layout(known.name).is_ok_and(|found| std::ptr::eq(found, *known)), "{}", known.name);
        }
        assert!(layout("R128c4").is_ok_and(|found| found.name == "swizzled_128x4"));
    }
}
