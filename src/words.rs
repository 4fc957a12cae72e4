//! Closed vocabularies: the words that a table may use, as enums.

/// Declares a closed vocabulary of the table: an enum with `ALL`, `name`, `Display` and `FromStr`.
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
    };
}
pub(crate) use vocabulary;

/// A word that a closed vocabulary does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not known; known are {}", known.join(", "))]
pub struct UnknownWord {
    /// The word.
    pub word: String,
    /// What is known.
    pub known: Vec<&'static str>,
}
