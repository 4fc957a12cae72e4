//! Closed vocabularies: the words that a table may use, as enums.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Visitor};

/// Declares a closed vocabulary of the table: an enum with `ALL`, `name`, `Display`, `FromStr` and serde's
/// `Deserialize`.
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every member, in the order of the table's documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in the table.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, $crate::words::UnknownWord> {
                Self::ALL.iter().copied().find(|member| member.name() == word).ok_or_else(|| $crate::words::UnknownWord {
                    word: word.to_owned(),
                    known: Self::ALL.iter().map(|member| member.name()).collect(),
                })
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                input.deserialize_str($crate::words::Word(std::marker::PhantomData))
            }
        }
    };
}
pub(crate) use vocabulary;

/// Reads a word of the vocabulary `T`.
pub(crate) struct Word<T>(pub(crate) PhantomData<T>);

impl<T: FromStr<Err = UnknownWord>> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
        word.parse().map_err(E::custom)
    }
}

/// A word that a closed vocabulary does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not known{}; known are {}", self.meant(), known.join(", "))]
pub struct UnknownWord {
    /// The word.
    pub word: String,
    /// What is known.
    pub known: Vec<&'static str>,
}

impl UnknownWord {
    /// The known word that was probably meant.
    pub fn nearest(&self) -> Option<&'static str> {
        let (distance, nearest) =
            self.known.iter().map(|known| (distance(&self.word, known), *known)).min()?;
        // Farther than this, a word is another word.
        (distance <= self.word.len() / 2).then_some(nearest)
    }

    pub(crate) fn meant(&self) -> String {
        self.nearest().map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"))
    }
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
    fn only_a_near_word_is_meant() {
        let known = vec!["sm_80", "sm_90", "gfx942"];
        let error = |word: &str| UnknownWord { word: word.to_owned(), known: known.clone() };
        assert_eq!(error("sm90").nearest(), Some("sm_90"));
        assert_eq!(error("tpu").nearest(), None);
        assert_eq!(
            error("gfx943").to_string(),
            "`gfx943` is not known (did you mean `gfx942`?); known are sm_80, sm_90, gfx942"
        );
    }
}
