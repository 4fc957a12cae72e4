//! Moves block scales from one layout to another. The elements stay as they are.

use crate::format::FormatSpec;
use crate::layout::{Extent, Layout};
use crate::scale::{Divisor, Multiplier};
use crate::tensor::{RawQuantized, WrongSize, scale_extent};

use super::scales::{ScaleBox, move_scales};

/// The same rows with their scales in layout `to`; every padding byte is zero. Formats without block
/// scales come out unchanged but for the layout's name.
///
/// # Errors
/// [`WrongSize`] if `raw` does not have the size that its own layout asks for, if `to` does not pad
/// and refuses the size, or if `to` does not hold scales of this type.
pub fn relayout(raw: &RawQuantized, to: &'static Layout) -> Result<RawQuantized, WrongSize> {
    into_layout(raw.clone(), to)
}

/// [`relayout`] without a copy of the elements.
///
/// # Errors
/// As [`relayout`].
pub fn into_layout(raw: RawQuantized, to: &'static Layout) -> Result<RawQuantized, WrongSize> {
    if raw.format.block.is_none() {
        return Ok(RawQuantized { layout: to, ..raw });
    }
    if *raw.layout == *to {
        check_size(&raw, to)?;
        return Ok(RawQuantized { layout: to, ..raw });
    }
    let scales = relayout_scales(&raw, to, Vec::new())?;
    Ok(RawQuantized { layout: to, scales, ..raw })
}

/// The scales that [`relayout`] makes, in the allocation of `scales`, whose bytes do not matter: fresh
/// pages cost more time than moving scales does.
///
/// # Errors
/// As [`relayout`]; `scales` is lost then.
pub fn relayout_scales(
    raw: &RawQuantized,
    to: &'static Layout,
    scales: Vec<u8>,
) -> Result<Vec<u8>, WrongSize> {
    let Some(block) = raw.format.block else { return Ok(Vec::new()) };
    check_size(raw, raw.layout)?;
    holds(to, raw)?;
    let logical = scale_extent(raw.format, raw.rows, raw.cols)?;
    let from = ScaleBox { layout: raw.layout, physical: raw.layout.physical(logical)? };
    let to = ScaleBox { layout: to, physical: to.physical(logical)? };
    Ok(move_scales(logical, block.scale.bytes(), &raw.scales, from, to, scales))
}

/// Whether `layout` holds scales of the type that `raw` has.
pub(crate) fn holds(layout: &Layout, raw: &RawQuantized) -> Result<(), WrongSize> {
    match raw.format.block {
        Some(block) if !layout.scales.contains(&block.scale) => {
            Err(WrongSize::ScaleType { layout: layout.name, format: raw.format.name, scale: block.scale })
        }
        _ => Ok(()),
    }
}

/// Whether the buffers of `raw` have the size that its format asks for with scales in `layout`,
/// whatever `raw` itself says its layout is.
pub(crate) fn check_size(raw: &RawQuantized, layout: &Layout) -> Result<(), WrongSize> {
    let (format, rows, cols) = (raw.format, raw.rows, raw.cols);
    let expected = rows.saturating_mul(format.element.bytes(cols));
    if raw.payload.len() != expected {
        return Err(WrongSize::Payload { format: format.name, rows, cols, expected, got: raw.payload.len() });
    }
    check_levels(format, Extent { rows, cols }, &raw.zero_points, raw.global.map(Divisor::to_multiplier))?;
    let Some(block) = format.block else { return Ok(()) };
    holds(layout, raw)?;
    let scales = layout.physical(scale_extent(format, rows, cols)?)?.count();
    let expected = scales.saturating_mul(block.scale.bytes());
    if raw.scales.len() != expected {
        let (layout, got) = (layout.name, raw.scales.len());
        return Err(WrongSize::Scales { format: format.name, layout, rows, cols, expected, got });
    }
    Ok(())
}

/// Whether a matrix of `extent` elements has the zero points and the second-level scale that `format`
/// asks for.
pub(super) fn check_levels(
    format: &FormatSpec,
    extent: Extent,
    zero_points: &[u8],
    global: Option<Multiplier>,
) -> Result<(), WrongSize> {
    if format.global.is_some() != global.is_some() {
        return Err(WrongSize::Levels { format: format.name });
    }
    let (expected, got) = (format.zero_points(extent), zero_points.len());
    if got != expected {
        let Extent { rows, cols } = extent;
        return Err(WrongSize::ZeroPointBytes { format: format.name, rows, cols, expected, got });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::scales::ROW_MAJOR;
    use crate::format::{FormatSpec, ScaleType};
    use crate::generated::layouts::LAYOUTS;
    use crate::layout::Extent;

    /// Scales of `size` bytes, no two alike nearby.
    fn scales(count: usize, size: usize) -> Vec<u8> {
        (0..count * size).map(|at| (at * 7 + at / 256 + 1) as u8).collect()
    }

    /// Every layout of the table, there and back, against the map scale by scale.
    #[test]
    fn moves_are_those_of_the_map() {
        for layout in LAYOUTS {
            for scale in layout.scales {
                for (rows, cols) in [(1, 1), (5, 3), (129, 10), (128, 64), (256, 96), (130, 7)] {
                    let logical = Extent { rows, cols };
                    let Ok(physical) = layout.physical(logical) else { continue };
                    let (size, source) = (scale.bytes(), scales(rows * cols, scale.bytes()));
                    let linear = ScaleBox { layout: &ROW_MAJOR, physical: logical };
                    let there = ScaleBox { layout, physical };
                    let moved = move_scales(logical, size, &source, linear, there, vec![0x7F; 100_000]);
                    let mut expected = vec![0; physical.count() * size];
                    for row in 0..rows {
                        for col in 0..cols {
                            let to = (layout.offset)(row, col, physical) * size;
                            expected[to..to + size]
                                .copy_from_slice(&source[(row * cols + col) * size..][..size]);
                        }
                    }
                    assert!(moved == expected, "{} {rows}x{cols} of {scale:?}", layout.name);
                    let back = move_scales(logical, size, &moved, there, linear, vec![0x7F; 7]);
                    assert!(back == source, "{} {rows}x{cols} of {scale:?}, back", layout.name);
                }
            }
        }
    }

    #[test]
    fn levels_have_to_agree_with_the_format() {
        static PLAIN: FormatSpec =
            FormatSpec::blocks("plain", crate::format::ElementType::E4m3, ScaleType::E8m0, 1, 32);
        let extent = Extent { rows: 1, cols: 32 };
        assert!(check_levels(&PLAIN, extent, &[], None).is_ok());
        let global = crate::scale::Multiplier::new(1.0).unwrap();
        assert_eq!(
            check_levels(&PLAIN, extent, &[], Some(global)),
            Err(WrongSize::Levels { format: "plain" })
        );
        let wrong = WrongSize::ZeroPointBytes { format: "plain", rows: 1, cols: 32, expected: 0, got: 1 };
        assert_eq!(check_levels(&PLAIN, extent, &[0], None), Err(wrong));
    }
}
