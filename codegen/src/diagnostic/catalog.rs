//! Every kind of finding: its code, its title and what is behind it.
//!
//! The smallest bad table of each kind is `tests/reject/<code>.toml`; `explain` prints it.

use super::Severity;

macro_rules! catalog {
    ($($code:ident, $title:literal, $explanation:literal;)*) => {
        /// A kind of finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "`title` and `explanation` say what each is")]
        pub enum Code { $($code,)* }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// `E0101`, say.
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => stringify!($code),)* }
            }

            /// What kind of thing it is, in a few words.
            pub fn title(self) -> &'static str {
                match self { $(Self::$code => $title,)* }
            }

            /// Why it is wrong.
            pub fn explanation(self) -> &'static str {
                match self { $(Self::$code => $explanation,)* }
            }

            /// A small table with just this finding.
            pub fn example(self) -> &'static str {
                match self {
                    $(Self::$code => include_str!(concat!("../../tests/reject/", stringify!($code), ".toml")),)*
                }
            }
        }
    };
}

catalog! {
    E0101, "not TOML",
        "The text is not TOML 1.0, so nothing of it can be read.";
    E0102, "unknown key",
        "A key that nothing reads would be a fact that nothing honours. Every table of the schema has a closed list of keys.";
    E0103, "missing key",
        "Nothing that decides a layout has a default, so what is not written is not known.";
    E0104, "wrong type of value",
        "The key takes another type of TOML value.";
    E0105, "unknown word",
        "Words of the table come from closed vocabularies, so that a misspelt one is found here and not on a GPU.";
    E0106, "number out of range",
        "Counts and multiples start at 1; a fill is a byte.";
    E0107, "not a name",
        "Names of entries become Rust modules, types and statics, and no two may become the same.";
    E0108, "another schema",
        "The table was written for another version of the schema than this generator reads.";
    E0201, "not a digit",
        "A layout is a list of digits `axis`, `axis/n`, `axis%r` or `axis/n%r`, read as (axis / n) % r, outermost first.";
    E0202, "digits do not chain",
        "The digits of an axis, sorted by divisor, start at 1, and each goes on where the one before it ended. Otherwise two places would be one, or a place would have no number.";
    E0203, "no open digit",
        "The digit of an axis with the largest divisor has no `%`: it counts what is left of the padded size. With a `%`, everything beyond it would wrap around onto what is there.";
    E0204, "wrong axes",
        "A scale layout and a payload have digits of `row` and `col`, an order of `row` and, for gated weights, `half`; each of them at least one.";
    E0205, "tiles are torn",
        "The largest divisor of an axis has to divide its padded size: `pad` rounds up to it, `divides` refuses what does not divide.";
    E0206, "padded and refused",
        "A size that the tiles do not divide is either rounded up or refused.";
    E0207, "one entry under two names",
        "Two layouts with the same digits and padding are one, and so are two formats with the same elements and scales. Under two names they would be two types that nothing converts between.";
    E0208, "which half is first",
        "An order with a `half` digit says which half is half 0.";
    E0301, "no such entry",
        "The entry that is referred to does not stand in the table.";
    E0302, "a layout for other scales",
        "A layout lists the scale types it may hold; the byte offsets of another type would be those of another layout.";
    E0303, "elements and scales do not fit",
        "Elements of 4 and 8 bits have one first-level scale (by block, row or tensor), those of 16 and 32 bits have none; a block of 4-bit elements is whole bytes, and zero points belong to unsigned elements.";
    E0304, "scales without a place",
        "Where a format has block scales a row says where they are, and where it has none there is nothing to place.";
    E0305, "how scales are chosen",
        "Power-of-two scales are chosen by a rule on which libraries differ, so a row names it. Other scales are not rounded.";
    E0306, "formats that are no choice",
        "Several formats in one row are for 16-bit tokens, where the caller's type decides. Formats with scales are contracts of their own, and a format listed twice is no choice.";
    E0307, "who quantises",
        "Tokens in a scaled format are quantised either by prepare or inside the experts kernel; tokens without scales by nobody. The one scale of a tensor is either static or dynamic.";
    E0401, "activation functions and orders disagree",
        "A gated weight is stored in an order per activation function, and each function that is honoured has one.";
    E0402, "no such parameter",
        "The activation function has no such parameter, so it can be neither honoured nor refused.";
    E0403, "an order for other weights",
        "The weights of gated functions have two halves, so their order has a `half` digit; those of plain functions and the down weight have none.";
    E0404, "generated from prose",
        "`{ vendor = … }` is prose for people. Where only the vendor's library knows, the row is external; only what GEMM2 reads, which never leaves the kernel, may stay the vendor's.";
    E0405, "padding that is NaN",
        "Padding of elements and scales multiplies zeros, and zero times NaN is NaN: it would spread over real values.";
    E0406, "padding too small",
        "The sizes that weights are padded to have to be multiples of what their order, payload, scale layout and blocks divide.";
    E0501, "unreachable payload",
        "The first payload of a transport that matches wins, so a second one of the same format is never used.";
    E0502, "a wire layout that cannot travel",
        "Tokens travel one by one: the scales of a token lie together and rows are not padded. Shards in a swizzled layout cannot be put one after the other.";
    E0503, "payload and wire disagree",
        "What is quantised before dispatch has block scales and a wire layout for them. What is quantised after has neither.";
    E0504, "a transport that carries nothing",
        "A transport lists what it carries, or says that it is local.";
    E0601, "a row twice in an order",
        "The second place would never be reached.";
    E0602, "a row that is not executed here",
        "The native order holds only rows that this crate runs.";
    E0603, "a rule without one verb",
        "A rule moves a row before, after, or to an end; drops rows; or keeps only some.";
    E0604, "a rule about another order",
        "A rule changes the order it stands in, so it names rows of that order.";
    E0605, "nothing decides between two rows",
        "Rows of one member of the engine's enum are tried as one, and the oracle takes the one whose classes, devices and schemes fit the request. Where two fit, which one is taken would be an accident of the table.";
    E0606, "classes that are not tried",
        "Rows of one member of the engine's enum share its classes. Those of the first row are tried, so others would be ignored.";
    W0701, "described, not executed",
        "The row says that its kernel is generated, but leaves something open that running it takes.";
    W0702, "never chosen",
        "The row is in no order of any oracle, so it can be named but is never selected; or it has vLLM's names and is in no order of vLLM's.";
    W0703, "never reached",
        "The row stands in an order that never comes to it: a row before it accepts every request that it accepts, or its classes run on none of its devices.";
}

impl Code {
    /// The code called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name().eq_ignore_ascii_case(name))
    }

    /// Whether findings of this kind stop generation.
    pub fn severity(self) -> Severity {
        if self.name().starts_with('W') { Severity::Warning } else { Severity::Error }
    }
}
