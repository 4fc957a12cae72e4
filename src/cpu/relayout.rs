//! Moves block scales from one layout to another. The elements stay as they are.

use crate::layout::Layout;
use crate::tensor::{RawQuantized, WrongSize, scale_extent};

use super::scales::copy_scales;

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
pub(crate) fn into_layout(raw: RawQuantized, to: &'static Layout) -> Result<RawQuantized, WrongSize> {
    let Some(block) = raw.format.block else { return Ok(RawQuantized { layout: to, ..raw }) };
    check_size(&raw, raw.layout)?;
    holds(to, &raw)?;
    let logical = scale_extent(raw.format, raw.rows, raw.cols)?;
    let (from_size, to_size) = (raw.layout.physical(logical)?, to.physical(logical)?);
    let mut scales = vec![0; to_size.count() * block.scale.bytes()];
    copy_scales(
        logical,
        block.scale,
        &raw.scales,
        |row, col| (raw.layout.offset)(row, col, from_size),
        &mut scales,
        |row, col| (to.offset)(row, col, to_size),
    );
    Ok(RawQuantized { layout: to, scales, ..raw })
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
    let Some(block) = format.block else { return Ok(()) };
    holds(layout, raw)?;
    let scales = layout.physical(scale_extent(format, rows, cols)?)?.count();
    let expected = scales.saturating_mul(block.scale.bytes());
    if raw.scales.len() != expected {
        let got = raw.scales.len();
        return Err(WrongSize::Scales {
            format: format.name,
            layout: layout.name,
            rows,
            cols,
            expected,
            got,
        });
    }
    Ok(())
}
