//! Where things are stored: scale layouts, weight-row orders and payload element orders.
//!
//! A layout is a value ([`Layout`]) and, for the compiler, a marker type ([`ScaleLayout`]). Both
//! come from one `[layout.x]` line of a table. Engines take the type at their boundary and go on
//! with the value.

use crate::digits::{self, Digit, PerAxis};
use crate::format::ScaleType;

/// Rows and columns, in stored units (scales, elements or weight rows).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Tokens or output channels.
    pub rows: usize,
    /// Blocks (scales) or elements (payloads) along K.
    pub cols: usize,
}

impl Extent {
    /// Values in the box; `usize::MAX` if they are more.
    pub fn count(self) -> usize {
        self.rows.saturating_mul(self.cols)
    }
}

/// How a layout meets a size that its tiles do not divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fit {
    /// Rounds up to these multiples and fills what is new.
    Pad(Extent),
    /// Refuses what these do not divide.
    Divide(Extent),
}

/// A size that a layout refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("layout `{layout}` takes no {axis} count of {size}: it must be a multiple of {multiple}")]
pub struct Indivisible {
    /// The layout, order or payload.
    pub layout: &'static str,
    /// `row` or `column`.
    pub axis: &'static str,
    /// The size asked for.
    pub size: usize,
    /// What has to divide it.
    pub multiple: usize,
}

impl Fit {
    /// The allocated size for a logical one.
    ///
    /// # Errors
    /// [`Indivisible`] if this is [`Fit::Divide`] and a multiple does not divide, or if the padded size
    /// is beyond `usize`.
    pub fn physical(self, layout: &'static str, logical: Extent) -> Result<Extent, Indivisible> {
        let refuse = |axis, size, multiple| Indivisible { layout, axis, size, multiple };
        match self {
            Fit::Pad(multiple) => {
                let rows = logical.rows.checked_next_multiple_of(multiple.rows);
                let cols = logical.cols.checked_next_multiple_of(multiple.cols);
                Ok(Extent {
                    rows: rows.ok_or_else(|| refuse("row", logical.rows, multiple.rows))?,
                    cols: cols.ok_or_else(|| refuse("column", logical.cols, multiple.cols))?,
                })
            }
            Fit::Divide(multiple) => {
                if !logical.rows.is_multiple_of(multiple.rows) {
                    return Err(refuse("row", logical.rows, multiple.rows));
                }
                if !logical.cols.is_multiple_of(multiple.cols) {
                    return Err(refuse("column", logical.cols, multiple.cols));
                }
                Ok(logical)
            }
        }
    }
}

/// Where the scale of (row, col) is stored. `row` is a token or an output channel, `col` a block
/// along K; offsets count scales, so a byte offset is offset × size of the scale type.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The name in the table.
    pub name: &'static str,
    /// The digits, outermost first.
    pub digits: &'static [Digit],
    /// Padding or refusal; part of the layout's identity.
    pub fit: Fit,
    /// Scale types it may hold.
    pub scales: &'static [ScaleType],
    /// Other people's names for it.
    pub aliases: &'static [&'static str],
    /// The emitted map from (row, col) to offset, without a digit loop. The extent is physical.
    pub offset: fn(row: usize, col: usize, physical: Extent) -> usize,
    /// The emitted inverse of `offset`.
    pub locate: fn(offset: usize, physical: Extent) -> (usize, usize),
}

impl Layout {
    /// The allocated size for `logical` rows and columns of scales. Its
    /// [`count`](Extent::count) is the number of scales to allocate, and the stride from one expert
    /// to the next where experts are allocated apart.
    ///
    /// # Errors
    /// [`Indivisible`] if the layout does not pad and its tiles do not divide the size.
    pub fn physical(&self, logical: Extent) -> Result<Extent, Indivisible> {
        self.fit.physical(self.name, logical)
    }

    /// [`offset`](Self::offset), evaluated digit by digit.
    pub fn offset_by_digits(&self, row: usize, col: usize, physical: Extent) -> usize {
        digits::encode(self.digits, PerAxis { row, col, half: 0 }, per_axis(physical))
    }

    /// [`locate`](Self::locate), evaluated digit by digit.
    pub fn locate_by_digits(&self, offset: usize, physical: Extent) -> (usize, usize) {
        let index = digits::decode(self.digits, offset, per_axis(physical));
        (index.row, index.col)
    }
}

/// Two layouts are one if they put every scale in the same place and allocate the same.
impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.digits == other.digits && self.fit == other.fit
    }
}

impl Eq for Layout {}

fn per_axis(extent: Extent) -> PerAxis {
    PerAxis { row: extent.rows, col: extent.cols, half: 1 }
}

/// A [`Layout`] as a type. Only generated code makes these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a scale layout of any table",
    note = "scale layouts are types made from `[layout.x]` in backends.toml; add one there"
)]
pub trait ScaleLayout: crate::__private::Sealed + Copy + std::fmt::Debug + Send + Sync + 'static {
    /// The layout as a value.
    const LAYOUT: &'static Layout;

    /// Where the scale of (`row`, `col`) is stored, in scales, in a box of `physical` size.
    fn offset(row: usize, col: usize, physical: Extent) -> usize;

    /// The (row, col) stored at `offset`: the inverse of [`offset`](Self::offset).
    fn locate(offset: usize, physical: Extent) -> (usize, usize);
}

/// A layout that keeps the scales of each row together and pads no rows, so that rows of several
/// ranks can be put one after the other. Only generated code implements this.
#[diagnostic::on_unimplemented(
    message = "scales in layout `{Self}` cannot travel: rows of several ranks do not follow each other in it",
    note = "dispatch in a layout whose outermost digit is `row`, and convert after dispatch"
)]
pub trait PerToken: ScaleLayout {}

/// The layout of formats that have no block scales: no scale, no byte.
pub static UNSCALED: Layout = Layout {
    name: "unscaled",
    digits: &[],
    fit: Fit::Pad(Extent { rows: 1, cols: 1 }),
    scales: &[],
    aliases: &[],
    offset: |_, _, _| 0,
    locate: |_, _| (0, 0),
};

// The compiler lists no layouts when a type is not one: what is in the table changes, messages do not.

/// [`UNSCALED`] as a type.
#[derive(Debug, Clone, Copy)]
pub struct Unscaled;

#[diagnostic::do_not_recommend]
impl crate::__private::Sealed for Unscaled {}

#[diagnostic::do_not_recommend]
impl ScaleLayout for Unscaled {
    const LAYOUT: &'static Layout = &UNSCALED;

    fn offset(_: usize, _: usize, _: Extent) -> usize {
        0
    }

    fn locate(_: usize, _: Extent) -> (usize, usize) {
        (0, 0)
    }
}

#[diagnostic::do_not_recommend]
impl PerToken for Unscaled {}

/// The halves of a gated weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// The half that the activation function is applied to (w1).
    Gate,
    /// The half that is multiplied with (w3).
    Up,
}

/// The sequence of weight rows. Padding is applied to each half before the order.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// The name in the table.
    pub name: &'static str,
    /// The digits, outermost first.
    pub digits: &'static [Digit],
    /// Which half is half 0; `None` for an order of plain (not gated) weights.
    pub first: Option<Half>,
    /// What must divide the rows of one half.
    pub multiple: usize,
}

impl Order {
    /// Where row `row` of half `half` is stored, `rows` being the padded rows of one half.
    /// Plain weights have half 0 only.
    pub fn position(&self, half: usize, row: usize, rows: usize) -> usize {
        digits::encode(self.digits, PerAxis { row, col: 0, half }, self.extent(rows))
    }

    /// The (half, row) stored at `position`: the inverse of [`position`](Self::position).
    pub fn source(&self, position: usize, rows: usize) -> (usize, usize) {
        let index = digits::decode(self.digits, position, self.extent(rows));
        (index.half, index.row)
    }

    /// The number of `half` in this order: 0 or 1.
    pub fn half_index(&self, half: Half) -> usize {
        usize::from(self.first.is_some_and(|first| first != half))
    }

    fn extent(&self, rows: usize) -> PerAxis {
        PerAxis { row: rows, col: 1, half: if self.first.is_some() { 2 } else { 1 } }
    }
}

/// Where element (row, col) of a weight is stored, in elements (FP4: nibbles, low one first).
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    /// The name in the table.
    pub name: &'static str,
    /// The digits, outermost first.
    pub digits: &'static [Digit],
    /// Padding or refusal.
    pub fit: Fit,
    /// What no digits can say: a step over the stored 32-bit words.
    pub word: Option<PayloadWord>,
}

/// A step over the stored 32-bit words of a payload, after its digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadWord {
    /// The eight FP4 elements of a word, their bits spread as triton_kernels' Hopper kernel unpacks
    /// them.
    Fp4HopperTwiddle,
}

impl Payload {
    /// The allocated size for `logical` rows and columns of elements.
    ///
    /// # Errors
    /// [`Indivisible`] if the payload does not pad and its tiles do not divide the size.
    pub fn physical(&self, logical: Extent) -> Result<Extent, Indivisible> {
        self.fit.physical(self.name, logical)
    }

    /// Where element (`row`, `col`) is stored, in elements, in a box of `physical` size.
    pub fn offset(&self, row: usize, col: usize, physical: Extent) -> usize {
        digits::encode(self.digits, PerAxis { row, col, half: 0 }, per_axis(physical))
    }
}
