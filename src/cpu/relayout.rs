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
    let Some(block) = raw.format.block else { return Ok(RawQuantized { layout: to, ..raw }) };
    check_size(&raw, raw.layout)?;
    holds(to, &raw)?;
    if *raw.layout == *to {
        return Ok(RawQuantized { layout: to, ..raw });
    }
    let logical = scale_extent(raw.format, raw.rows, raw.cols)?;
    let from = ScaleBox { layout: raw.layout, physical: raw.layout.physical(logical)? };
    let to = ScaleBox { layout: to, physical: to.physical(logical)? };
    let scales = move_scales(logical, block.scale.bytes(), &raw.scales, from, to);
    Ok(RawQuantized { layout: to.layout, scales, ..raw })
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
