//! Mixed-radix numbers: parse, check, evaluate, invert, print.

use std::fmt;

/// What a digit is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// A token or an output channel.
    Row,
    /// A block along K, or an element of a payload.
    Col,
    /// The half of a gated weight.
    Half,
}

impl Axis {
    /// The word in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Col => "col",
            Self::Half => "half",
        }
    }
}

/// `axis ["/" n] ["%" r]`, read as `(axis / n) % r`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digit {
    /// The axis.
    pub axis: Axis,
    /// n; 1 if not written.
    pub divisor: usize,
    /// r; `None` if not written: the axis' last digit.
    pub radix: Option<usize>,
}

impl fmt::Display for Digit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.axis.name())?;
        if self.divisor != 1 {
            write!(f, "/{}", self.divisor)?;
        }
        match self.radix {
            Some(radix) => write!(f, "%{radix}"),
            None => Ok(()),
        }
    }
}

/// Numbers of a digit are at most this, so that products of a few of them fit a `usize`.
const MAX: usize = 1 << 20;

impl Digit {
    /// The digit that `text` stands for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        // A digit of one value would say nothing.
        let (rest, radix) = split(text, '%', 2)?;
        let (axis, divisor) = split(rest, '/', 1)?;
        let axis = match axis {
            "row" => Axis::Row,
            "col" => Axis::Col,
            "half" => Axis::Half,
            other => {
                return Err(format!("`{other}` is no axis; axes are `row`, `col` and, in an order, `half`"));
            }
        };
        Ok(Self { axis, divisor: divisor.unwrap_or(1), radix })
    }
}

fn split(text: &str, mark: char, least: usize) -> Result<(&str, Option<usize>), String> {
    let Some((left, right)) = text.split_once(mark) else { return Ok((text, None)) };
    let plain = !right.is_empty() && right.bytes().all(|byte| byte.is_ascii_digit());
    match right.parse::<usize>() {
        Ok(number) if plain && (least..=MAX).contains(&number) => Ok((left, Some(number))),
        _ => Err(format!("`{right}` after `{mark}` has to be a number from {least} to {MAX}")),
    }
}

/// Why a list of digits is no number. Indices point into the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// An axis that this kind of entry has not.
    Foreign(usize),
    /// An axis without a digit.
    Missing(Axis),
    /// The axis' smallest divisor is not 1.
    Start(usize),
    /// This digit does not go on where the one before it ended.
    Chain {
        /// The digit.
        digit: usize,
        /// The one with the next smaller divisor.
        after: usize,
        /// The divisor it should have; `None` if `after` has no `%` and so is the axis' last.
        wanted: Option<usize>,
    },
    /// The digit with the axis' largest divisor has a `%`.
    Closed(usize),
    /// A part of `half`, which has one value or two and so is one digit.
    Part(usize),
}

/// A list of digits that is a number on every shape that its multiples divide: each axis is covered
/// exactly once, so the map from indices to numbers is a bijection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Number {
    digits: Vec<Digit>,
}

impl Number {
    /// Checks that `digits` covers each of `axes` exactly once, and nothing else.
    ///
    /// # Errors
    /// Every [`Flaw`] of the list.
    pub fn new(digits: Vec<Digit>, axes: &[Axis]) -> Result<Self, Vec<Flaw>> {
        let mut flaws = Vec::new();
        for (index, digit) in digits.iter().enumerate() {
            if !axes.contains(&digit.axis) {
                flaws.push(Flaw::Foreign(index));
            }
        }
        for axis in axes {
            flaws.extend(flaws_of_axis(&digits, *axis));
        }
        if flaws.is_empty() { Ok(Self { digits }) } else { Err(flaws) }
    }

    /// The digits, outermost first.
    pub fn digits(&self) -> &[Digit] {
        &self.digits
    }

    /// The divisor of the axis' last digit: what has to divide its padded extent. 1 for an axis
    /// that the number has not.
    pub fn multiple(&self, axis: Axis) -> usize {
        let of_axis = self.digits.iter().filter(|digit| digit.axis == axis);
        of_axis.map(|digit| digit.divisor).max().unwrap_or(1)
    }
}

fn flaws_of_axis(digits: &[Digit], axis: Axis) -> Vec<Flaw> {
    let mut of_axis: Vec<usize> = (0..digits.len()).filter(|index| digits[*index].axis == axis).collect();
    of_axis.sort_by_key(|index| digits[*index].divisor);
    let (Some(first), Some(last)) = (of_axis.first(), of_axis.last()) else {
        return vec![Flaw::Missing(axis)];
    };
    if axis == Axis::Half {
        let parts =
            of_axis.iter().filter(|index| digits[**index].divisor != 1 || digits[**index].radix.is_some());
        let parts: Vec<_> = parts.map(|index| Flaw::Part(*index)).collect();
        if !parts.is_empty() {
            return parts;
        }
    }
    let mut flaws = Vec::new();
    if digits[*first].divisor != 1 {
        flaws.push(Flaw::Start(*first));
    }
    for pair in of_axis.windows(2) {
        let (after, digit) = (pair[0], pair[1]);
        let wanted = digits[after].radix.map(|radix| radix.saturating_mul(digits[after].divisor));
        if wanted != Some(digits[digit].divisor) {
            flaws.push(Flaw::Chain { digit, after, wanted });
        }
    }
    if digits[*last].radix.is_some() {
        flaws.push(Flaw::Closed(*last));
    }
    flaws
}

impl Number {
    /// The number of `index` in a box of `extent`, both (row, col, half).
    pub fn encode(&self, index: [usize; 3], extent: [usize; 3]) -> usize {
        self.digits.iter().fold(0, |number, digit| {
            let radix = radix(digit, extent);
            number * radix + index[digit.axis as usize] / digit.divisor % radix
        })
    }

    /// The index of `number` in a box of `extent`: the inverse of [`encode`](Self::encode).
    pub fn decode(&self, mut number: usize, extent: [usize; 3]) -> [usize; 3] {
        let mut index = [0; 3];
        for digit in self.digits.iter().rev() {
            let radix = radix(digit, extent);
            index[digit.axis as usize] += number % radix * digit.divisor;
            number /= radix;
        }
        index
    }
}

fn radix(digit: &Digit, extent: [usize; 3]) -> usize {
    digit.radix.unwrap_or(extent[digit.axis as usize] / digit.divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(digits: &[&str]) -> Number {
        let digits = digits.iter().map(|digit| Digit::parse(digit).unwrap()).collect();
        Number::new(digits, &[Axis::Row, Axis::Col]).unwrap()
    }

    #[test]
    fn a_digit_prints_as_it_is_written() {
        for text in ["row", "row/128", "row%32", "row/32%4"] {
            assert_eq!(Digit::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "rows", "row/0", "row%", "row%1", "row/+1", "row%4/2", "row/ 2", "row/99999999999999999999"]
        {
            assert!(Digit::parse(text).is_err(), "{text}");
        }
    }

    /// The worked example of a 130 × 5 scale matrix, padded to 256 × 8.
    #[test]
    fn the_128x4_swizzle_has_its_known_offsets() {
        let swizzle = number(&["row/128", "col/4", "row%32", "row/32%4", "col%4"]);
        let known = [(0, 0, 0), (0, 3, 3), (0, 4, 512), (1, 0, 16), (31, 0, 496), (32, 0, 4), (96, 2, 14)];
        for (row, col, offset) in known.into_iter().chain([(127, 3, 511), (128, 0, 1024), (129, 4, 1552)]) {
            assert_eq!(swizzle.encode([row, col, 0], [256, 8, 1]), offset);
            assert_eq!(swizzle.decode(offset, [256, 8, 1]), [row, col, 0]);
        }
    }

    #[test]
    fn flaws_are_all_found() {
        let parse =
            |digits: &[&str]| digits.iter().map(|digit| Digit::parse(digit).unwrap()).collect::<Vec<_>>();
        let axes = [Axis::Row, Axis::Col];
        assert_eq!(Number::new(parse(&["row"]), &axes), Err(vec![Flaw::Missing(Axis::Col)]));
        assert_eq!(Number::new(parse(&["row/2", "col"]), &axes), Err(vec![Flaw::Start(0)]));
        assert_eq!(
            Number::new(parse(&["row/8", "row%4", "col%4", "half"]), &axes),
            Err(vec![Flaw::Foreign(3), Flaw::Chain { digit: 0, after: 1, wanted: Some(4) }, Flaw::Closed(2)])
        );
        assert_eq!(
            Number::new(parse(&["row", "row", "col"]), &axes),
            Err(vec![Flaw::Chain { digit: 1, after: 0, wanted: None }])
        );
    }
}
