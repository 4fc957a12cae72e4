//! Where quantisers of one format and one rule still differ: ties, edges, order of operations.
//!
//! Every type here is a closed choice that some producer of checkpoints or of vLLM's inputs makes;
//! [`producers`](super::producers) says who chooses what.

/// All choices of one producer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conventions {
    /// What a NaN does to the largest magnitude of its block.
    pub maximum: Maximum,
    /// Power-of-two scales.
    pub power_of_two: PowerOfTwo,
    /// Scales of any size.
    pub quotient: Quotient,
    /// Block scales under a second-level scale.
    pub two_level: TwoLevel,
    /// Elements, once they are scaled.
    pub elements: Elements,
}

/// What a NaN does to the largest magnitude of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maximum {
    /// It becomes NaN.
    WithNan,
    /// It is that of the numbers, NaN if there are none. Triton's `tl.max`.
    OfNumbers,
}

/// The type that a step is computed in: each result is rounded to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// f32.
    Single,
    /// bfloat16, because the input is; rounds twice on the way to a narrow element.
    Bfloat16,
}

/// What keeps the largest magnitude of a block of zeros from zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Floor {
    /// Nothing.
    None,
    /// It counts as at least this.
    AtLeast(f32),
    /// The scale of whatever is not above zero, NaN included, is 1.
    One,
}

/// Conventions of e8m0 scales.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerOfTwo {
    /// How `rceil` finds the exponent of the quotient of largest magnitude and largest element.
    pub exponent: Exponent,
    /// The mantissa bits that `even` rounds the largest magnitude to.
    pub even: EvenTo,
    /// What keeps the largest magnitude from zero.
    pub floor: Floor,
    /// A block that holds a NaN.
    pub nan: NanBlock,
    /// A block that holds an infinity.
    pub infinity: InfinityBlock,
    /// What the elements of a block with scale byte 0 are divided by.
    pub smallest: Smallest,
}

/// How an exponent is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exponent {
    /// By the bits: one more where the mantissa is not zero. 2^-127 is exact.
    Bits,
    /// By the bits, in normal numbers only: whatever is subnormal counts as 2^-126.
    NormalBits,
    /// `ceil(log2(x))` in f32, which does not see the last bits.
    Logarithm,
}

/// The mantissa bits that `even` rounds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvenTo {
    /// Those of the element.
    Element,
    /// One, as FP4 has, whatever the element.
    Fp4,
}

/// A block that holds a NaN: its scale byte and its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanBlock {
    /// Byte 255, all elements NaN.
    Lost,
    /// Byte 255, read as infinity: finite elements become zero.
    Infinite,
    /// Byte 0, all elements NaN.
    LostAtZero,
    /// Byte 0; elements as in a block of subnormals.
    Smallest,
}

/// A block whose largest magnitude is infinite: its scale byte and its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InfinityBlock {
    /// The largest, 254.
    Largest,
    /// The largest, 254, also where `even` rounds a finite magnitude up to infinity.
    LargestOnceRounded,
    /// What the rule makes of the bits.
    Rule,
    /// 255, which reads as infinity: finite elements become zero.
    Infinite,
    /// 127 is stored, but finite elements become zero; also where `even` rounds up to infinity.
    One,
    /// 0; elements as in a block of subnormals.
    Smallest,
    /// 0; finite elements become zero.
    Zeroed,
}

/// What the elements of a block with scale byte 0 are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Smallest {
    /// Infinity: they become zeros that keep their sign.
    Zeros,
    /// What the byte is worth, 2^-127.
    Exact,
    /// The smallest normal f32, 2^-126.
    SmallestNormal,
    /// 1.
    One,
}

/// Conventions of f32, bf16 and f16 scales.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quotient {
    /// How the scale follows from the largest magnitude.
    pub scale: QuotientOf,
    /// The largest element that the scale allows for.
    pub range: Range,
    /// What keeps the largest magnitude from zero.
    pub floor: Floor,
    /// What keeps the scale from zero.
    pub smallest: SmallestScale,
    /// What an infinite largest magnitude is.
    pub infinity: Infinity,
    /// What scales the elements.
    pub elements: ElementsBy,
    /// What the scale is computed in.
    pub arithmetic: Arithmetic,
}

/// How a scale follows from the largest magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotientOf {
    /// `amax / largest`.
    Division,
    /// `amax * (1 / largest)`.
    Multiplication,
    /// `1 / (largest * (1 / amax))`, torch's way to divide a number by a tensor and back.
    Inverse,
}

/// The largest element that a scale allows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// The element type's.
    Largest,
    /// Half the distance of smallest and largest code: 127.5 for int8.
    HalfOfCodes,
}

/// What keeps a scale from zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SmallestScale {
    /// Nothing.
    Any,
    /// It is at least this.
    AtLeast(f32),
    /// Zero becomes this; others stay.
    ZeroBecomes(f32),
}

/// What an infinite largest magnitude is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Infinity {
    /// The largest f32.
    Saturated,
    /// Infinite, and so is the scale.
    Kept,
}

/// What scales the elements of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementsBy {
    /// Division by the scale.
    Division,
    /// Multiplication with `1 / scale`.
    Reciprocal,
    /// Multiplication with the quotient of largest element and largest magnitude, as
    /// [`QuotientOf::Inverse`] computes it where that chooses the scale.
    Inverse,
}

/// Conventions of block scales `s` under a second-level scale: `g` is the factor that quantising
/// multiplies by, `d = 1 / g`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoLevel {
    /// How the block scale follows from the largest magnitude.
    pub scale: BlockShare,
    /// What the quotient of largest magnitude and largest element is computed in.
    pub arithmetic: Arithmetic,
    /// The smallest block scale.
    pub floor: BlockFloor,
    /// What the elements are multiplied with or divided by.
    pub elements: ElementsUnder,
}

/// How a block scale follows from the largest magnitude, the largest element being `largest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockShare {
    /// `g * (amax * (1 / largest))`.
    OfProduct,
    /// `g * (amax / largest)`.
    OfQuotient,
    /// `amax * (g * (1 / largest))`.
    ByFactor,
    /// `(amax / largest) / d`.
    ByDivision,
    /// `amax / (largest * d)`.
    ByDivisor,
}

/// The smallest block scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFloor {
    /// Zero.
    None,
    /// The smallest normal e4m3, 2^-6.
    SmallestNormal,
    /// The smallest e4m3, 2^-9; but 1 for a block of zeros.
    SmallestOrOne,
    /// Zero becomes an eighth, 2^-3, once it is e4m3.
    Eighth,
}

/// What the elements are multiplied with or divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementsUnder {
    /// Times `1 / (s * d)`; zero where the scale is.
    Reciprocal,
    /// Times `1 / (s * d)`; 1e-8 where the scale is zero.
    ReciprocalOrTiny,
    /// Times `1 / (s * d)`; the largest f32 where the scale is zero.
    ReciprocalOrLargest,
    /// Times `g / s`, with `g` as `1 / d`.
    Quotient,
    /// Divided by `s * d`.
    DivisionByProduct,
    /// Divided by `s / g`.
    DivisionByQuotient,
}

/// Conventions of elements, once they are scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elements {
    /// Between two codes.
    pub rounding: ElementRounding,
    /// The sign of zero.
    pub zero: ZeroSign,
    /// Beyond the largest.
    pub overflow: Overflow,
    /// The smallest integer.
    pub smallest: SmallestInteger,
    /// What an element is scaled in.
    pub arithmetic: Arithmetic,
}

/// How an element between two codes is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementRounding {
    /// To the nearest, a tie to the even code.
    NearestEven,
    /// To the nearest, a tie away from zero.
    NearestAway,
    /// To the nearest, a tie toward zero.
    NearestDown,
    /// Toward zero.
    TowardZero,
}

/// The sign of a float element whose code is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroSign {
    /// That of the number, zero included.
    Kept,
    /// Minus for numbers below zero; zero has none.
    OfNegative,
    /// Plus.
    Dropped,
    /// Minus for all but numbers above zero; zero is negative.
    UnlessPositive,
}

/// What lies beyond the largest number of an element type by half a step or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Becomes the largest number.
    Saturates,
    /// Becomes infinity, or NaN if there is none; saturates if there is neither.
    Exceptional,
}

/// The smallest integer of a signed type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallestInteger {
    /// The type's, -128 for int8.
    TwosComplement,
    /// The largest's opposite, -127 for int8.
    Symmetric,
}

impl Default for Conventions {
    fn default() -> Self {
        Self::OURS
    }
}
