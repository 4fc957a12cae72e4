//! A layout as a picture: the box with the offset of each scale, and the scales as memory has them.

use std::fmt::{self, Write};

use scalewright::digits::{Axis, Digit};
use scalewright::layout::{Extent, Layout};

/// Beyond these a picture is neither readable nor quickly drawn.
const MOST_CELLS: usize = 1 << 14;
const MOST_ALONG: usize = 1 << 11;

/// A box that is not drawn.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoPicture {
    #[error(
        "a box of {} x {} scales is more than a picture shows, {MOST_CELLS} in all and {MOST_ALONG} along an axis; draw \
         fewer rows or columns, as the tiles repeat",
        .0.rows,
        .0.cols
    )]
    TooLarge(Extent),
    #[error("there is nothing to draw in a box of {} x {} scales; ask for at least one row and one column", .0.rows, .0.cols)]
    Empty(Extent),
    #[error(transparent)]
    Format(#[from] fmt::Error),
}

/// Draws the scales of `logical` size in a box of `physical` size.
pub(super) fn picture(layout: &Layout, logical: Extent, physical: Extent) -> Result<String, NoPicture> {
    if logical.count() == 0 {
        return Err(NoPicture::Empty(logical));
    }
    if physical.count() > MOST_CELLS || physical.rows.max(physical.cols) > MOST_ALONG {
        return Err(NoPicture::TooLarge(physical));
    }
    let drawing = Drawing::new(layout, logical, physical);
    let mut svg = String::new();
    drawing.head(&mut svg)?;
    drawing.legend(&mut svg)?;
    drawing.axes(&mut svg)?;
    drawing.cells(&mut svg)?;
    drawing.tiles(&mut svg)?;
    drawing.padding(&mut svg)?;
    drawing.memory(&mut svg)?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Rectangles are in pixels.
#[derive(Clone, Copy)]
struct Rect {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// Width of a character of the small text, generously.
const CHARACTER: usize = 6;
/// Space around everything.
const MARGIN: usize = 24;
/// Where the box begins: below title and legend, right of the row numbers.
const TOP: usize = 158;
const LEFT: usize = MARGIN + 52;
/// Narrower pictures would cut the legend.
const LEAST_WIDTH: usize = 680;
/// Scales in a line of memory, and lines.
const LINE: usize = 16;
const MOST_LINES: usize = 16;
const LINE_HEIGHT: usize = 22;

struct Drawing<'a> {
    layout: &'a Layout,
    logical: Extent,
    physical: Extent,
    /// Rows and columns that the layout keeps together.
    tile: Extent,
    /// Size of a scale in the box.
    cell: (usize, usize),
    /// The box.
    area: Rect,
    /// The scales in memory, the numbers of the lines apart.
    memory: Rect,
}

impl<'a> Drawing<'a> {
    fn new(layout: &'a Layout, logical: Extent, physical: Extent) -> Self {
        let label = (physical.count() - 1).to_string().len() * CHARACTER + 8;
        let width = label.max(26).min((1800 / physical.cols).max(2));
        let height = match physical.rows {
            0..=32 => 22,
            33..=128 => 15,
            129..=256 => 12,
            rows => (3072 / rows).max(2),
        };
        let (area_width, area_height) = (physical.cols * width, physical.rows * height);
        let area = Rect { x: LEFT, y: TOP, width: area_width, height: area_height };
        let place = format!("{},{}", physical.rows - 1, physical.cols - 1).len() * CHARACTER + 8;
        let scales = physical.count().min(LINE * MOST_LINES);
        // Beside a tall box there is room; a wide one has it below.
        let (x, y) = if area_height > area_width {
            (area.x + area_width + 96, TOP)
        } else {
            (LEFT, TOP + area_height + 84)
        };
        let memory = Rect {
            x,
            y,
            width: scales.min(LINE) * place.max(30),
            height: scales.div_ceil(LINE) * LINE_HEIGHT,
        };
        let tile = Extent { rows: span(layout, Axis::Row), cols: span(layout, Axis::Col) };
        Self { layout, logical, physical, tile, cell: (width, height), area, memory }
    }

    /// Title, styles, background.
    fn head(&self, svg: &mut String) -> fmt::Result {
        let right = (self.area.x + self.area.width).max(self.memory.x + self.memory.width) + MARGIN;
        let width = right.max(LEAST_WIDTH);
        let height = (self.area.y + self.area.height).max(self.memory.y + self.memory.height) + MARGIN;
        let Layout { name, digits, .. } = self.layout;
        let digits = digits.iter().map(digit).collect::<Vec<_>>().join(" · ");
        let (logical, physical) = (self.logical, self.physical);
        let padding = match physical.count() - logical.count() {
            0 => "none".to_owned(),
            padding => padding.to_string(),
        };
        writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">"#
        )?;
        writeln!(svg, "<title>Scale layout {name}: {digits}</title>")?;
        style(svg)?;
        writeln!(svg, r#"<rect class="page" width="{width}" height="{height}"/>"#)?;
        writeln!(svg, r#"<text class="title" x="{MARGIN}" y="38">{name}</text>"#)?;
        writeln!(svg, r#"<text class="digits" x="{MARGIN}" y="62">{digits}</text>"#)?;
        writeln!(
            svg,
            r#"<text class="quiet" x="{MARGIN}" y="82">{} × {} scales in a box of {} × {}: {} stored, {padding} of them padding</text>"#,
            logical.rows,
            logical.cols,
            physical.rows,
            physical.cols,
            physical.count()
        )
    }

    fn legend(&self, svg: &mut String) -> fmt::Result {
        let y = 98;
        let text = y + 11;
        let mut x = MARGIN;
        writeln!(svg, r#"<text class="small" x="{x}" y="{text}">offset 0</text>"#)?;
        x += 58;
        writeln!(svg, r#"<rect fill="url(#order)" x="{x}" y="{y}" width="150" height="14" rx="2"/>"#)?;
        x += 158;
        let last = (self.physical.count() - 1).to_string();
        writeln!(svg, r#"<text class="small" x="{x}" y="{text}">{last}</text>"#)?;
        x += last.len() * 7 + 24;
        if self.physical != self.logical {
            writeln!(svg, r##"<rect class="pad" x="{x}" y="{y}" width="22" height="14" fill="#7d8590"/>"##)?;
            writeln!(svg, r#"<rect fill="url(#hatch)" x="{x}" y="{y}" width="22" height="14"/>"#)?;
            x += 30;
            writeln!(svg, r#"<text class="small" x="{x}" y="{text}">padding</text>"#)?;
            x += 70;
        }
        if self.tile.count() > 1 {
            writeln!(svg, r#"<rect class="tile" x="{x}" y="{y}" width="22" height="14"/>"#)?;
            x += 30;
            let Extent { rows, cols } = self.tile;
            writeln!(svg, r#"<text class="small" x="{x}" y="{text}">tile of {rows} × {cols}</text>"#)?;
        }
        Ok(())
    }

    /// Numbers and names of rows and columns.
    fn axes(&self, svg: &mut String) -> fmt::Result {
        let Rect { x, y, .. } = self.area;
        let (width, height) = self.cell;
        writeln!(svg, r#"<text class="axis" x="{x}" y="{}">block along K →</text>"#, y - 26)?;
        writeln!(svg, r#"<text class="axis end" x="{}" y="{}">row ↓</text>"#, x - 8, y - 8)?;
        let label = self.physical.cols.to_string().len() * CHARACTER + 4;
        for col in (0..self.physical.cols).step_by(step(label, width)) {
            let middle = x + col * width + width / 2;
            writeln!(svg, r#"<text class="tick middle" x="{middle}" y="{}">{col}</text>"#, y - 8)?;
        }
        for row in (0..self.physical.rows).step_by(step(11, height)) {
            let base = y + row * height + height / 2 + 3;
            writeln!(svg, r#"<text class="tick end" x="{}" y="{base}">{row}</text>"#, x - 8)?;
        }
        Ok(())
    }

    fn cells(&self, svg: &mut String) -> fmt::Result {
        let (width, height) = self.cell;
        let longest = (self.physical.count() - 1).to_string().len();
        let has_room = width >= longest * CHARACTER + 2 && height >= 11;
        svg.push_str("<g id=\"box\">\n");
        for row in 0..self.physical.rows {
            for col in 0..self.physical.cols {
                let offset = (self.layout.offset)(row, col, self.physical);
                let place =
                    Rect { x: self.area.x + col * width, y: self.area.y + row * height, width, height };
                let label = has_room.then(|| offset.to_string());
                self.scale(svg, place, (row, col), offset, label.as_deref())?;
            }
        }
        svg.push_str("</g>\n");
        Ok(())
    }

    /// One scale, in the box or in memory.
    fn scale(
        &self,
        svg: &mut String,
        place: Rect,
        (row, col): (usize, usize),
        offset: usize,
        label: Option<&str>,
    ) -> fmt::Result {
        let Rect { x, y, width, height } = place;
        let is_padding = row >= self.logical.rows || col >= self.logical.cols;
        let colour = colour(offset, self.physical.count());
        // Dark text on what is light: the brightness that sRGB primaries have, roughly.
        let is_light = colour.0 * 3 + colour.1 * 6 + colour.2 > 1300;
        let (class, ink, what) = match (is_padding, is_light) {
            (true, _) => ("cell pad", "ink", ", padding"),
            (false, true) => ("cell", "ink dark", ""),
            (false, false) => ("cell", "ink light", ""),
        };
        let fill = hex(colour);
        writeln!(
            svg,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"><title>row {row}, block {col}: offset {offset}{what}</title></rect>"#
        )?;
        match label {
            None => Ok(()),
            Some(label) => {
                let (x, y) = (x + width / 2, y + height / 2 + 3);
                writeln!(svg, r#"<text class="{ink}" x="{x}" y="{y}">{label}</text>"#)
            }
        }
    }

    /// Shades and names the two parts of the box that hold no scale: right of all columns, and below.
    fn padding(&self, svg: &mut String) -> fmt::Result {
        let (logical, physical, (width, height)) = (self.logical, self.physical, self.cell);
        let Rect { x, y, .. } = self.area;
        let right = Rect {
            x: x + logical.cols * width,
            y,
            width: (physical.cols - logical.cols) * width,
            height: logical.rows * height,
        };
        let below = Rect {
            x,
            y: y + logical.rows * height,
            width: self.area.width,
            height: (physical.rows - logical.rows) * height,
        };
        for Rect { x, y, width, height } in [right, below] {
            if width * height == 0 {
                continue;
            }
            writeln!(svg, r#"<rect fill="url(#hatch)" x="{x}" y="{y}" width="{width}" height="{height}"/>"#)?;
            if width < 64 || height < 18 {
                continue;
            }
            let (middle, base) = (x + width / 2, y + (height / 2).min(60) + 4);
            writeln!(
                svg,
                r#"<rect class="page" x="{}" y="{}" width="60" height="18" rx="4"/>"#,
                middle - 30,
                base - 13
            )?;
            writeln!(svg, r#"<text class="small middle" x="{middle}" y="{base}">padding</text>"#)?;
        }
        Ok(())
    }

    /// The borders of tiles, and finer ones where a digit inside a tile begins anew.
    fn tiles(&self, svg: &mut String) -> fmt::Result {
        let Rect { x, y, width, height } = self.area;
        let mut path = |class: &str, axis: Axis, every: usize| match axis {
            Axis::Row => (every..self.physical.rows).step_by(every).try_for_each(|row| {
                writeln!(svg, r#"<path class="{class}" d="M{x} {}h{width}"/>"#, y + row * self.cell.1)
            }),
            Axis::Col | Axis::Half => (every..self.physical.cols).step_by(every).try_for_each(|col| {
                writeln!(svg, r#"<path class="{class}" d="M{} {y}v{height}"/>"#, x + col * self.cell.0)
            }),
        };
        for digit in self.layout.digits.iter().filter(|digit| digit.radix.is_some() && digit.divisor > 1) {
            path("part", digit.axis, digit.divisor)?;
        }
        if self.tile.count() > 1 {
            path("tile", Axis::Row, self.tile.rows)?;
            path("tile", Axis::Col, self.tile.cols)?;
        }
        writeln!(svg, r#"<rect class="tile" x="{x}" y="{y}" width="{width}" height="{height}"/>"#)
    }

    /// The first scales as memory has them, each with its row and column.
    fn memory(&self, svg: &mut String) -> fmt::Result {
        let Rect { x, y, .. } = self.memory;
        let count = self.physical.count().min(LINE * MOST_LINES);
        let width = self.memory.width / count.min(LINE);
        let which =
            if count < self.physical.count() { format!(", the first {count}") } else { String::new() };
        writeln!(
            svg,
            r#"<text class="axis" x="{x}" y="{}">memory order{which}: row,block at each offset</text>"#,
            y - 26
        )?;
        for at in 0..count.min(LINE) {
            let middle = x + at * width + width / 2;
            writeln!(svg, r#"<text class="tick middle" x="{middle}" y="{}">+{at}</text>"#, y - 8)?;
        }
        for offset in 0..count {
            let place = (self.layout.locate)(offset, self.physical);
            let at = Rect {
                x: x + offset % LINE * width,
                y: y + offset / LINE * LINE_HEIGHT,
                width,
                height: LINE_HEIGHT,
            };
            if offset % LINE == 0 {
                let base = at.y + LINE_HEIGHT / 2 + 3;
                writeln!(svg, r#"<text class="tick end" x="{}" y="{base}">{offset}</text>"#, x - 8)?;
            }
            self.scale(svg, at, place, offset, Some(&format!("{},{}", place.0, place.1)))?;
            if place.0 >= self.logical.rows || place.1 >= self.logical.cols {
                let Rect { x, y, width, height } = at;
                writeln!(
                    svg,
                    r#"<rect fill="url(#hatch)" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
                )?;
            }
        }
        let Rect { x, y, width, height } = self.memory;
        writeln!(svg, r#"<rect class="part" x="{x}" y="{y}" width="{width}" height="{height}"/>"#)
    }
}

/// The largest divisor of the digits of `axis`: what lies within it is stored by digits of fixed radix.
fn span(layout: &Layout, axis: Axis) -> usize {
    let divisors = layout.digits.iter().filter(|digit| digit.axis == axis).map(|digit| digit.divisor);
    divisors.max().unwrap_or(1)
}

/// As the table writes it.
fn digit(digit: &Digit) -> String {
    let axis = match digit.axis {
        Axis::Row => "row",
        Axis::Col => "col",
        Axis::Half => "half",
    };
    let divisor = if digit.divisor == 1 { String::new() } else { format!("/{}", digit.divisor) };
    let radix = digit.radix.map_or_else(String::new, |radix| format!("%{radix}"));
    format!("{axis}{divisor}{radix}")
}

/// Every how many rows or columns of `size` pixels there is room for a label of `label` pixels.
fn step(label: usize, size: usize) -> usize {
    label.div_ceil(size).next_power_of_two()
}

/// Red, green and blue from the first offset to the last, from dark to light so that they tell an order
/// without their hues.
const COLOURS: [(usize, usize, usize); 5] =
    [(0x2b, 0x2f, 0x77), (0x1f, 0x6f, 0x9e), (0x1f, 0xa1, 0x8a), (0x8c, 0xcf, 0x5a), (0xfb, 0xe7, 0x5a)];

fn hex((red, green, blue): (usize, usize, usize)) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The colour of the scale at `offset` of `count`.
fn colour(offset: usize, count: usize) -> (usize, usize, usize) {
    let steps = COLOURS.len() - 1;
    let last = (count - 1).max(1);
    let at = (offset * steps / last).min(steps - 1);
    let (from, to) = (COLOURS[at], COLOURS[at + 1]);
    let part = offset * steps - at * last;
    let between = |from: usize, to: usize| (from * (last - part) + to * part) / last;
    (between(from.0, to.0), between(from.1, to.1), between(from.2, to.2))
}

/// The definitions that the rest refers to.
fn style(svg: &mut String) -> fmt::Result {
    svg.push_str("<defs>\n<linearGradient id=\"order\">");
    for (at, colour) in COLOURS.into_iter().enumerate() {
        let percent = at * 100 / (COLOURS.len() - 1);
        write!(svg, r#"<stop offset="{percent}%" stop-color="{}"/>"#, hex(colour))?;
    }
    svg.push_str("</linearGradient>\n");
    svg.push_str(HATCH);
    svg.push_str("</defs>\n");
    svg.push_str(CSS);
    Ok(())
}

const HATCH: &str = r##"<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" stroke="#7d8590" stroke-opacity="0.45"/></pattern>
"##;

/// The colours of offsets are attributes of what they colour; these follow the reader's light or dark.
const CSS: &str = r##"<style>
text { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px; fill: #1f2328; }
.page { fill: #ffffff; }
.title { font-size: 20px; font-weight: 600; }
.digits { font-size: 14px; }
.quiet { fill: #656d76; }
.small, .axis { font-size: 11px; }
.tick { font-size: 9px; fill: #656d76; }
.ink { font-size: 9px; text-anchor: middle; pointer-events: none; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.dark { fill: #10151c; }
.light { fill: #ffffff; }
.cell { stroke: #ffffff; stroke-opacity: 0.35; stroke-width: 0.5; }
.pad { fill-opacity: 0.28; }
.tile { fill: none; stroke: #1f2328; stroke-width: 1.4; }
.part { fill: none; stroke: #1f2328; stroke-opacity: 0.55; stroke-width: 0.7; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.page { fill: #0d1117; }
.quiet, .tick { fill: #8d96a0; }
.tile, .part { stroke: #e6edf3; }
}
</style>
"##;
