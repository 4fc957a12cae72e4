//! Mixed-radix numbers: the one form in which every layout, order and payload is written.
//!
//! A digit `axis/n%r` is `(axis / n) % r`; a list of digits, outermost first, is a number in mixed
//! radix. This module evaluates such a list at run time, one digit after the other. Generated code
//! holds the same map as straight-line arithmetic; tests hold the two against each other.

/// What a digit is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// A token or an output channel.
    Row,
    /// A block along K (scales) or an element along K (payloads).
    Col,
    /// The half of a fused gate/up weight; only in an [`Order`](crate::layout::Order).
    Half,
}

/// One digit, `(axis / divisor) % radix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digit {
    /// The axis that the digit is taken from.
    pub axis: Axis,
    /// What the axis is divided by.
    pub divisor: usize,
    /// What the quotient is taken modulo; `None` for the last digit of its axis, whose radix is the
    /// axis' padded extent over `divisor`.
    pub radix: Option<usize>,
}

impl Digit {
    /// `(axis / divisor) % radix`, or `axis / divisor` without a radix.
    pub const fn new(axis: Axis, divisor: usize, radix: Option<usize>) -> Self {
        Self { axis, divisor, radix }
    }
}

/// A value per axis: indices, or padded extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PerAxis {
    /// Along [`Axis::Row`].
    pub row: usize,
    /// Along [`Axis::Col`].
    pub col: usize,
    /// Along [`Axis::Half`].
    pub half: usize,
}

impl PerAxis {
    fn get(self, axis: Axis) -> usize {
        match axis {
            Axis::Row => self.row,
            Axis::Col => self.col,
            Axis::Half => self.half,
        }
    }

    fn add(&mut self, axis: Axis, value: usize) {
        match axis {
            Axis::Row => self.row += value,
            Axis::Col => self.col += value,
            Axis::Half => self.half += value,
        }
    }
}

fn radix(digit: &Digit, extent: PerAxis) -> usize {
    digit.radix.unwrap_or(extent.get(digit.axis) / digit.divisor)
}

/// The number that `index` has in a box of `extent`.
pub fn encode(digits: &[Digit], index: PerAxis, extent: PerAxis) -> usize {
    digits.iter().fold(0, |number, digit| {
        let radix = radix(digit, extent);
        number * radix + index.get(digit.axis) / digit.divisor % radix
    })
}

/// The index that has `number` in a box of `extent`: the inverse of [`encode`].
pub fn decode(digits: &[Digit], mut number: usize, extent: PerAxis) -> PerAxis {
    let mut index = PerAxis::default();
    for digit in digits.iter().rev() {
        let radix = radix(digit, extent);
        index.add(digit.axis, number % radix * digit.divisor);
        number /= radix;
    }
    index
}
