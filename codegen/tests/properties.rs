//! What holds for every table, good or bad.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use scalewright_codegen::emit::{self, MARKER};
use scalewright_codegen::model::digits::{Axis, Digit, Number};
use scalewright_codegen::{Source, check};

/// A table that uses every part of the schema.
const TABLE: &str = concat!(
    include_str!("contracts.toml"),
    r#"
[[backend.marlin_mxfp4.experts]]
class = "MarlinExperts"
requires = { devices = ["sm_90"], hidden_multiple = 64 }

[transport.no_dp_ep]
grouping = "tokens"
scope = "local"
facts = [{ from = "vllm 0.33", at = "prepare_finalize/no_dp_ep.py:27-36", how = "read" }]

[oracle.mxfp4.vllm]
order = ["flashinfer_trtllm_mxfp4_mxfp8", "marlin_mxfp4", "humming_mxfp4"]
[[oracle.mxfp4.vllm.reorder]]
when = { device = "sm100_family", activation = ["swigluoai"] }
move = "humming_mxfp4"
before = "marlin_mxfp4"
[[oracle.mxfp4.vllm.reorder]]
when = { device = ["sm_90"] }
move = "marlin_mxfp4"
to = "first"
[[oracle.mxfp4.vllm.reorder]]
when = { activation = ["silu"] }
drop = ["humming_mxfp4"]
[oracle.mxfp4.native]
order = ["flashinfer_trtllm_mxfp4_mxfp8"]
[oracle.fp8.native]
order = ["deepgemm_fp8_block_sm90"]
[[oracle.fp8.native.reorder]]
when = { device = ["sm_90"] }
only = ["deepgemm_fp8_block_sm90"]
"#
);

/// The tables to change: that one, and the project's own where it is there.
fn tables() -> &'static [String] {
    static TABLES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let own = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../backends.toml"));
        let tables: Vec<_> = own.into_iter().chain([TABLE.to_owned()]).collect();
        assert!(tables.iter().all(|table| survives(table)));
        tables
    });
    &TABLES
}

/// Checks a table, and if it is one emits it, which cannot fail.
fn survives(text: &str) -> bool {
    let checked = match check(&Source::new("table.toml", text)) {
        Ok(checked) => checked,
        Err(report) => {
            assert!(report.stops() && !report.to_string().is_empty());
            return false;
        }
    };
    for (path, text) in emit::files(&checked.table) {
        assert!(text.starts_with(MARKER), "{path}");
        if path.ends_with(".rs")
            && let Err(error) = syn::parse_file(&text)
        {
            panic!("{path}: {error}\n{text}");
        }
    }
    true
}

/// One change to a text.
#[derive(Debug, Clone)]
enum Change {
    DeleteLine(Index),
    DuplicateLine(Index),
    SwapLines(Index, Index),
    /// A quoted word becomes another of the table's.
    SwapWords(Index, Index),
    Number(Index, &'static str),
    Character(Index, char),
    Text(Index, String),
}

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "127",
    "255",
    "256",
    "1048576",
    "1048577",
    "16777216",
    "-1",
    "99999999999999999999",
];

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        2 => index().prop_map(Change::DeleteLine),
        2 => index().prop_map(Change::DuplicateLine),
        1 => (index(), index()).prop_map(|(a, b)| Change::SwapLines(a, b)),
        4 => (index(), index()).prop_map(|(a, b)| Change::SwapWords(a, b)),
        4 => (index(), select(&NUMBERS)).prop_map(|(at, number)| Change::Number(at, number)),
        1 => (index(), any::<char>()).prop_map(|(at, char)| Change::Character(at, char)),
        1 => (index(), "[\\[\\]{}=\",. a-z0-9/%\n]{1,4}").prop_map(|(at, text)| Change::Text(at, text)),
    ]
}

/// Byte ranges of the quoted words or of the runs of digits in `text`.
fn ranges(text: &str, belongs: fn(char) -> bool) -> Vec<std::ops::Range<usize>> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in text.char_indices().filter(|(_, c)| belongs(*c)) {
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

fn apply(text: &str, change: &Change) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/' || c == '%';
    let place = |at: &Index| {
        let places: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        places[at.index(places.len())]
    };
    match change {
        Change::DeleteLine(_) | Change::DuplicateLine(_) | Change::SwapLines(..) if lines.is_empty() => {}
        Change::DeleteLine(at) => {
            lines.remove(at.index(lines.len()));
        }
        Change::DuplicateLine(at) => {
            let at = at.index(lines.len());
            lines.insert(at, lines[at]);
        }
        Change::SwapLines(a, b) => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
        }
        Change::SwapWords(a, b) => {
            let words = ranges(text, is_word);
            let (Some(a), Some(b)) =
                (words.get(a.index(words.len().max(1))), words.get(b.index(words.len().max(1))))
            else {
                return text.to_owned();
            };
            return format!("{}{}{}", &text[..a.start], &text[b.clone()], &text[a.end..]);
        }
        Change::Number(at, number) => {
            let numbers = ranges(text, |c| c.is_ascii_digit());
            let Some(range) = numbers.get(at.index(numbers.len().max(1))) else { return text.to_owned() };
            return format!("{}{number}{}", &text[..range.start], &text[range.end..]);
        }
        Change::Character(at, char) => {
            let at = place(at);
            return format!("{}{char}{}", &text[..at], &text[at..]);
        }
        Change::Text(at, more) => {
            let at = place(at);
            return format!("{}{more}{}", &text[..at], &text[at..]);
        }
    }
    lines.join("\n") + "\n"
}

/// The digits of one axis, chained over `radices`.
fn chain(axis: Axis, radices: &[usize]) -> Vec<Digit> {
    let mut divisor = 1;
    let mut digits = Vec::new();
    for radix in radices {
        digits.push(Digit { axis, divisor, radix: Some(*radix) });
        divisor *= radix;
    }
    digits.push(Digit { axis, divisor, radix: None });
    digits
}

const AXES: [Axis; 2] = [Axis::Row, Axis::Col];

fn chained() -> impl Strategy<Value = Vec<Digit>> {
    let radices = || prop::collection::vec(2usize..6, 0..4);
    (radices(), radices())
        .prop_map(|(rows, cols)| [chain(Axis::Row, &rows), chain(Axis::Col, &cols)].concat())
        .prop_shuffle()
}

/// Digits that read bits, so that no two radices without a common factor make a number by accident.
fn any_digits() -> impl Strategy<Value = Vec<Digit>> {
    let digit = (select(&AXES), select(&[1, 2, 4]), select(&[None, Some(2), Some(4)]));
    let loose =
        prop::collection::vec(digit.prop_map(|(axis, divisor, radix)| Digit { axis, divisor, radix }), 0..5);
    let few = || prop::collection::vec(select(&[2usize, 4]), 0..2);
    let chained = (few(), few())
        .prop_map(|(rows, cols)| [chain(Axis::Row, &rows), chain(Axis::Col, &cols)].concat())
        .prop_shuffle();
    prop_oneof![loose, chained]
}

/// Whether each place of a box gets a number of its own, below the number of places: asked of every
/// place, by the grammar's own words.
fn is_bijective(digits: &[Digit], [rows, cols]: [usize; 2]) -> bool {
    let extent = |axis| if axis == Axis::Row { rows } else { cols };
    let mut numbers = BTreeSet::new();
    for place in 0..rows * cols {
        let mut number = 0;
        for digit in digits {
            let index = if digit.axis == Axis::Row { place / cols } else { place % cols };
            let radix = digit.radix.unwrap_or(extent(digit.axis) / digit.divisor);
            number = number * radix + index / digit.divisor % radix;
        }
        numbers.insert(number);
    }
    numbers.len() == rows * cols && numbers.last() == Some(&(rows * cols - 1))
}

/// A box larger than what closed digits can count to.
fn large_box(digits: &[Digit]) -> [usize; 2] {
    AXES.map(|axis| {
        let of_axis = digits.iter().filter(|digit| digit.axis == axis);
        let closed: usize = of_axis.clone().filter_map(|digit| digit.radix).product();
        let multiple = of_axis.map(|digit| digit.divisor).max().unwrap_or(1);
        2 * multiple * closed.min(64)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_table_or_a_report(text in any::<String>()) {
        survives(&text);
    }

    #[test]
    fn any_bytes_are_a_table_or_a_report(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn chained_digits_number_every_place_once(digits in chained(), tiles in (1usize..4, 1usize..4)) {
        let number = Number::new(digits.clone(), &AXES).unwrap();
        let (rows, cols) = (number.multiple(Axis::Row) * tiles.0, number.multiple(Axis::Col) * tiles.1);
        let extent = [rows, cols, 1];
        let mut seen = vec![false; rows * cols];
        for row in 0..rows {
            for col in 0..cols {
                let at = number.encode([row, col, 0], extent);
                prop_assert!(!std::mem::replace(&mut seen[at], true), "{at} twice");
                prop_assert_eq!(number.decode(at, extent), [row, col, 0]);
            }
        }
    }

    #[test]
    fn digits_are_refused_exactly_when_two_places_or_none_have_a_number(digits in any_digits()) {
        let size = large_box(&digits);
        let accepted = Number::new(digits.clone(), &AXES);
        prop_assert_eq!(accepted.is_ok(), is_bijective(&digits, size), "{:?} on {:?}: {:?}", digits, size, accepted);
    }

    #[test]
    fn a_digit_prints_as_it_parses(axis in select(&["row", "col", "half"]), divisor in 1usize..=1 << 20, radix in prop::option::of(2usize..=1 << 20)) {
        let radix = radix.map(|radix| format!("%{radix}")).unwrap_or_default();
        let text = if divisor == 1 { format!("{axis}{radix}") } else { format!("{axis}/{divisor}{radix}") };
        let digit = Digit::parse(&text).unwrap();
        prop_assert_eq!(digit.to_string(), text);
        prop_assert_eq!(Digit::parse(&digit.to_string()), Ok(digit));
    }

    #[test]
    fn any_text_is_a_digit_or_a_reason(text in "(row|col|half|[a-z]{0,3})(/[0-9+ ]{0,9})?(%[0-9]{0,9})?.{0,2}") {
        if let Ok(digit) = Digit::parse(&text) {
            prop_assert_eq!(Digit::parse(&digit.to_string()), Ok(digit));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_table_is_emitted_or_reported(table in any::<Index>(), changes in prop::collection::vec(change(), 1..4)) {
        let table = &tables()[table.index(tables().len())];
        survives(&changes.iter().fold(table.clone(), |text, change| apply(&text, change)));
    }
}

#[test]
fn emission_is_deterministic() {
    let emitted = || emit::files(&check(&Source::new("table.toml", TABLE)).unwrap().table);
    assert_eq!(emitted(), emitted());
    // The order of the table's sections is for its readers.
    let mut sections: Vec<_> = TABLE.split("\n[").collect();
    sections[1..]
        .sort_by_key(|section| (section.starts_with('['), std::cmp::Reverse(section.starts_with("format"))));
    let sorted = sections.join("\n[");
    assert_ne!(sorted, TABLE);
    assert_eq!(emit::files(&check(&Source::new("other.toml", sorted)).unwrap().table), emitted());
}

/// Numbers at their limits neither overflow nor take long.
#[test]
fn the_largest_numbers_are_only_large() {
    const DIGIT: usize = 1 << 20;
    const MULTIPLE: usize = 1 << 24;
    let table = format!(
        r#"
schema = 1
[layout.torn_far]
digits = ["row/{DIGIT}", "col/{DIGIT}", "row%{DIGIT}", "col%{DIGIT}"]
scale = ["f32"]
pad = {{ row = {MULTIPLE}, col = {MULTIPLE} }}
[layout.refuses]
digits = ["col", "row"]
scale = ["f32"]
divides = {{ row = {MULTIPLE}, col = {MULTIPLE} }}
[payload.large]
digits = ["row/{DIGIT}", "col", "row%{DIGIT}"]
divides = {{ row = {MULTIPLE} }}
[order.far]
digits = ["row/{DIGIT}", "half", "row%{DIGIT}"]
first = "up"
divides = {{ row = {MULTIPLE} }}
[format.large]
element = "e4m3"
scale.block = {{ dtype = "f32", rows = {MULTIPLE}, cols = {MULTIPLE} }}
[format.tokens]
element = "e4m3"
scale.block = {{ dtype = "f32", rows = 1, cols = {MULTIPLE} }}
[backend.largest]
kernel = "generated"
[backend.largest.weight]
format = "large"
payload = "large"
scale = {{ layout = "torn_far", encoding = "as_stored", fill = 127 }}
repeat = {{ row = {MULTIPLE} }}
rows = {{ gate_up = {{ silu = "far" }} }}
pad = {{ hidden = {MULTIPLE}, intermediate = {{ gated = {MULTIPLE}, plain = {MULTIPLE} }}, fill = 126 }}
[backend.largest.gemm1_input]
format = ["tokens"]
quantize = "prepare"
layout = {{ prepared = "torn_far", kernel = "refuses" }}
grouping = {{ spread_ranges = {{ start_multiple = {MULTIPLE} }} }}
multiple = {{ hidden = {MULTIPLE} }}
[backend.largest.gemm2_input]
format = ["tokens"]
layout = {{ kernel = "refuses" }}
[backend.largest.activation_function]
honours = {{ silu = [] }}
"#
    );
    assert!(survives(&table), "{}", check(&Source::new("table.toml", table)).unwrap_err());
    // A chain whose product no number holds is no chain.
    let product = format!(
        "schema = 1\n[layout.x]\ndigits = [\"row/{DIGIT}%{DIGIT}\", \"row%{DIGIT}\", \"col\"]\nscale = [\"f32\"]\n"
    );
    assert!(!survives(&product));
}

#[test]
fn deep_and_strange_tables_are_reported() {
    let deep = 50_000;
    for text in [
        "[".repeat(deep),
        format!("x = {}", "[".repeat(deep)),
        format!("x = {}", "{a=".repeat(deep)),
        format!("{}a = 1", "a.".repeat(deep)),
        format!("[{}a]", "a.".repeat(deep)),
        "\u{feff}schema = 1".to_owned(),
        "schema = 1\r\n[layout.x]\r\ndigits = [\"é\"]\r\n".to_owned(),
        "schema = 1\n[layout.x]\ndigits = \"\"\"\nrow\n\"\"\"\n".to_owned(),
        "schema = 1979-05-27".to_owned(),
        "schema = nan".to_owned(),
        "layout = [1]\npayload = 1\norder = \"\"\nschema = 0x1".to_owned(),
    ] {
        survives(&text);
    }
}

/// Prose of the table reaches generated text only as prose.
#[test]
fn prose_cannot_break_generated_text() {
    for prose in [
        "*/ fn x() {}",
        "\\u000d",
        "\\n///\\n}",
        "```\\n# [x](y)",
        "\\\" , \\\"",
        "\\u202e",
        "{{ x }}{% x %}",
    ] {
        let table = TABLE
            .replace("humming schema repack", prose)
            .replace("8x4 or 128x4 by tile", prose)
            .replace("TrtLlmMxfp4ExpertsModular", prose)
            .replace("oracle/mxfp4.py:2139", prose)
            .replace(
                "pad = { row = 128, col = 4 }\n",
                &format!("pad = {{ row = 128, col = 4 }}\naliases = [\"{prose}\"]\n"),
            );
        assert!(survives(&table), "{prose}");
    }
}
