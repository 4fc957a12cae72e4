//! Blocks of a matrix: what their scales are chosen from, and their elements.

use rayon::prelude::*;

use crate::format::{BlockScale, ElementType, Rounding};
use crate::layout::Extent;
use crate::tensor::{Real, Tokens};
use crate::weights::canonical::Stack;

use super::super::buffer::sized;
use super::choose::{Scheme, power_of_two};
use super::vector::{Instructions, VectorUnit, for_vector_units};

/// Where the numbers of a block lie. Schemes without zero points ask for the largest magnitude only,
/// which is then `greatest`. A block that holds a NaN has NaN for both.
#[derive(Debug, Clone, Copy)]
struct Spread {
    least: f32,
    greatest: f32,
}

impl Spread {
    const EMPTY: Self = Self { least: 0.0, greatest: 0.0 };

    fn join(self, other: Self) -> Self {
        // Comparisons that are false of a NaN, so that it is kept.
        let least = if self.least <= other.least || self.least.is_nan() { self.least } else { other.least };
        let greatest = if self.greatest >= other.greatest || self.greatest.is_nan() {
            self.greatest
        } else {
            other.greatest
        };
        Self { least, greatest }
    }

    /// The spread of `values`; both ends include 0.
    #[inline(always)]
    fn of(scheme: &Scheme, values: &[f32]) -> Self {
        if scheme.is_affine() {
            return values
                .iter()
                .fold(Self::EMPTY, |spread, value| spread.join(Self { least: *value, greatest: *value }));
        }
        Self { least: 0.0, greatest: scheme.magnitude(values) }
    }

    #[inline(always)]
    fn choose(self, scheme: &Scheme, scale: &mut [u8], zero_point: &mut u8) -> f32 {
        if scheme.is_affine() {
            scheme.choose_affine(self.least, self.greatest, scale, zero_point)
        } else {
            scheme.choose(self.greatest, scale)
        }
    }
}

/// The matrix to quantise, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a, T: Real> {
    pub(super) unit: VectorUnit,
    pub(super) scheme: &'a Scheme,
    pub(super) element: ElementType,
    pub(super) block: BlockScale,
    pub(super) tokens: Tokens<'a, T>,
    /// Elements of a row; those beyond the tokens' are zero.
    pub(super) cols: usize,
}

/// The quantised matrix, scales and zero points linear. `payload` is used for the elements; what it
/// holds is overwritten.
pub(super) fn quantize_blocks<T: Real>(job: Job<'_, T>, payload: Vec<u8>) -> Stack {
    let extent = Extent { rows: job.tokens.rows(), cols: job.cols };
    let blocks = job.block.scales(extent);
    let mut stack = Stack::new(
        extent.rows,
        extent.cols,
        sized(payload, extent.rows * job.element.bytes(extent.cols)),
        vec![0; blocks.count() * job.block.scale.bytes()],
    );
    let mut zero_points = vec![0; blocks.count()];
    if extent.count() > 0 {
        if job.block.size(extent).rows == 1 {
            blocks_of_rows(job, &mut stack, &mut zero_points);
        } else {
            tiles(job, &mut stack, &mut zero_points);
        }
    }
    if job.scheme.is_affine() {
        stack.zero_points = zero_points;
    }
    stack
}

/// Blocks of one row each: a row is read once.
fn blocks_of_rows<T: Real>(job: Job<'_, T>, stack: &mut Stack, zero_points: &mut [u8]) {
    let Job { unit, scheme, element, block, tokens, cols } = job;
    let blocks = block.cols.count(cols);
    let size = block.cols.size(cols);
    let scale_bytes = block.scale.bytes();
    stack
        .payload
        .par_chunks_mut(element.bytes(cols))
        .zip(stack.scales.par_chunks_mut(blocks * scale_bytes))
        .zip(zero_points.par_chunks_mut(blocks))
        .enumerate()
        .for_each_init(
            || (vec![0.0; cols], vec![Spread::EMPTY; blocks], vec![0.0; blocks]),
            |(values, spreads, by), (row, ((payload, scales), zero_points))| {
                spread_row(unit, scheme, size, tokens, row, values, spreads);
                choose_row(unit, scheme, spreads, scales, zero_points, by);
                encode_row(unit, scheme, size, values, (by, zero_points), payload);
            },
        );
}

/// Blocks of several rows: all rows are read to choose the scales, then again. Rows are shared among
/// threads, not blocks, of which there may be one.
fn tiles<T: Real>(job: Job<'_, T>, stack: &mut Stack, zero_points: &mut [u8]) {
    let Job { unit, scheme, element, block, tokens, cols } = job;
    let blocks = block.cols.count(cols);
    let size = block.cols.size(cols);
    let rows_of_block = block.rows.size(stack.rows);
    let mut spreads = vec![Spread::EMPTY; stack.rows * blocks];
    spreads.par_chunks_mut(blocks).enumerate().for_each_init(
        || vec![0.0; cols],
        |values, (row, spreads)| spread_row(unit, scheme, size, tokens, row, values, spreads),
    );
    let joined = spreads.chunks(rows_of_block * blocks).flat_map(|band| {
        let row = |col| band.iter().skip(col).step_by(blocks);
        (0..blocks).map(move |col| row(col).fold(Spread::EMPTY, |joined, spread| joined.join(*spread)))
    });
    let by: Vec<f32> = joined
        .zip(stack.scales.chunks_mut(block.scale.bytes()))
        .zip(&mut *zero_points)
        .map(|((spread, scale), zero_point)| spread.choose(scheme, scale, zero_point))
        .collect();
    stack.payload.par_chunks_mut(element.bytes(cols)).enumerate().for_each_init(
        || vec![0.0; cols],
        |values, (row, payload)| {
            load(tokens.row(row), values);
            let first = row / rows_of_block * blocks;
            let chosen = (&by[first..][..blocks], &zero_points[first..][..blocks]);
            encode_row(unit, scheme, size, values, chosen, payload);
        },
    );
}

/// The row as f32; what lies beyond it in `values` stays as it is.
#[inline(always)]
fn load<T: Real>(token: &[T], values: &mut [f32]) {
    for (value, token) in values.iter_mut().zip(token) {
        *value = token.to_f32();
    }
}

for_vector_units! {
    /// Loads row `row` into `values`, and finds the spread of each block.
    fn spread_row<T: Real>(
        unit,
        scheme: &Scheme,
        block: usize,
        tokens: Tokens<'_, T>,
        row: usize,
        values: &mut [f32],
        spreads: &mut [Spread],
    ) {
        load(tokens.row(row), values);
        let next = tokens.row((row + 1).min(tokens.rows() - 1));
        // Loops over blocks of a size that the compiler knows are twice as fast.
        match block {
            16 => spread_blocks(unit, scheme, 16, next, values, spreads),
            32 => spread_blocks(unit, scheme, 32, next, values, spreads),
            _ => spread_blocks(unit, scheme, block, next, values, spreads),
        }
    }
}

/// The spread of each block. Meanwhile the `next` row is fetched from memory, a little for each block:
/// processors halt when they are asked for more at once than they keep in flight.
#[inline(always)]
fn spread_blocks<T: Real>(
    unit: VectorUnit,
    scheme: &Scheme,
    block: usize,
    next: &[T],
    values: &[f32],
    spreads: &mut [Spread],
) {
    let mut next = next.chunks(block);
    let blocks = values.chunks_exact(block);
    let cut = blocks.remainder();
    let mut spreads = spreads.iter_mut();
    for (values, spread) in blocks.zip(&mut spreads) {
        if let Some(next) = next.next() {
            unit.prefetch(next);
        }
        *spread = Spread::of(scheme, values);
    }
    if let Some(spread) = spreads.next() {
        *spread = Spread::of(scheme, cut);
    }
}

for_vector_units! {
    /// The scales of one row, and what they do to the elements.
    fn choose_row(
        _unit,
        scheme: &Scheme,
        spreads: &[Spread],
        scales: &mut [u8],
        zero_points: &mut [u8],
        by: &mut [f32],
    ) {
        match scheme.power_of_two() {
            // The schemes most used have loops of their own, in which the compiler knows them.
            Some((ElementType::E4m3, Rounding::Rceil)) => {
                powers_of_two(ElementType::E4m3, Rounding::Rceil, spreads, scales, by);
            }
            Some((ElementType::E2m1, Rounding::Rceil)) => {
                powers_of_two(ElementType::E2m1, Rounding::Rceil, spreads, scales, by);
            }
            Some((ElementType::E2m1, Rounding::Even)) => {
                powers_of_two(ElementType::E2m1, Rounding::Even, spreads, scales, by);
            }
            Some((element, rounding)) => powers_of_two(element, rounding, spreads, scales, by),
            None => {
                let stored = scales.chunks_exact_mut(scheme.scale_bytes()).zip(zero_points);
                for ((spread, (scale, zero_point)), by) in spreads.iter().zip(stored).zip(by) {
                    *by = spread.choose(scheme, scale, zero_point);
                }
            }
        }
    }
}

#[inline(always)]
fn powers_of_two(
    element: ElementType,
    rounding: Rounding,
    spreads: &[Spread],
    scales: &mut [u8],
    by: &mut [f32],
) {
    for ((spread, scale), by) in spreads.iter().zip(scales).zip(by) {
        (*scale, *by) = power_of_two(spread.greatest, element, rounding);
    }
}

for_vector_units! {
    /// The elements of one row, block by block by the numbers and zero points `chosen` for them.
    fn encode_row(
        unit,
        scheme: &Scheme,
        block: usize,
        values: &[f32],
        chosen: (&[f32], &[u8]),
        payload: &mut [u8],
    ) {
        scheme.encode(unit, chosen, block, values, payload);
    }
}
