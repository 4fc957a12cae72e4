//! `scalewright layout`: the table of offsets, and the picture.

use scalewright::generated::layouts::LAYOUTS;
use scalewright::layout::Extent;

use super::Desk;

/// Fails unless `text` is well-formed as far as our pictures go: tags are nested, attributes quoted,
/// nothing stands in the text that would have to be escaped.
fn check_well_formed(text: &str) {
    let mut open = Vec::new();
    for piece in text.split('<').skip(1) {
        let (tag, content) = piece.split_once('>').expect("a tag that ends");
        assert!(!content.contains(['&', '>']) && !tag.contains(['&', '<']), "{piece}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            assert!(!open.is_empty() || content.trim().is_empty(), "text after the end");
            continue;
        }
        let (attributes, is_closed) =
            tag.strip_suffix('/').map_or((tag, false), |attributes| (attributes, true));
        assert!(attributes.matches('"').count() % 2 == 0, "{tag}");
        let outside: String = attributes.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        assert!(outside.split_whitespace().skip(1).all(|word| word.ends_with('=')), "{tag}");
        let name = attributes.split_whitespace().next().expect("a name");
        if !is_closed {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

/// What a picture says of each scale of the box: "row 1, block 0: offset 16".
fn scales(svg: &str) -> Vec<&str> {
    let (_, within) = svg.split_once("<g id=\"box\">").unwrap();
    let (within, _) = within.split_once("</g>").unwrap();
    within.split("<title>").skip(1).map(|rest| rest.split_once("</title>").unwrap().0).collect()
}

#[test]
fn a_picture_has_every_scale_of_the_box_once() {
    let desk = Desk::new();
    for (name, size, logical) in [
        ("linear", "5x6", (5, 6)),
        ("swizzled_128x4", "5x5", (5, 5)),
        ("swizzled_128x4", "130x5", (130, 5)),
        ("packed_ue8m0", "6x5", (6, 5)),
        ("marlin_grouped", "64x2", (64, 2)),
    ] {
        desk.succeed(&format!("layout {name} {size} --svg picture"));
        let svg = std::fs::read_to_string(desk.path("picture")).unwrap();
        check_well_formed(&svg);
        let layout = LAYOUTS.iter().find(|layout| layout.name == name).unwrap();
        let physical = layout.physical(Extent { rows: logical.0, cols: logical.1 }).unwrap();
        let mut expected = Vec::new();
        for row in 0..physical.rows {
            for col in 0..physical.cols {
                let offset = layout.offset_by_digits(row, col, physical);
                let padding = if row < logical.0 && col < logical.1 { "" } else { ", padding" };
                expected.push(format!("row {row}, block {col}: offset {offset}{padding}"));
            }
        }
        assert_eq!(scales(&svg), expected, "{name} {size}");
        assert_eq!(desk.names(), ["picture"]);
    }
    // Again, over what is there: the same bytes.
    let before = std::fs::read(desk.path("picture")).unwrap();
    desk.succeed("layout marlin_grouped --rows 64 --cols 2 --svg picture");
    assert_eq!(std::fs::read(desk.path("picture")).unwrap(), before);
}

#[test]
fn every_layout_has_a_picture() {
    let desk = Desk::new();
    for layout in LAYOUTS {
        desk.succeed(&format!("layout {} 256x8 --svg picture", layout.name));
        let svg = std::fs::read_to_string(desk.path("picture")).unwrap();
        check_well_formed(&svg);
        assert!(svg.contains(&format!(">{}</text>", layout.name)));
    }
}

#[test]
fn the_table_is_printed_either_way() {
    let desk = Desk::new();
    let expected = "linear: 2 x 3 scales in a box of 2 x 3, 6 in all; offsets in scales\n0 1 2\n3 4 5\n";
    assert_eq!(desk.succeed("layout linear --rows 2 --cols 3"), expected);
    assert_eq!(desk.succeed("layout linear 2x3"), expected);
    let swizzled = desk.succeed("layout 128x4 2x5");
    assert!(swizzled.ends_with("\n   0    1    2    3  512\n  16   17   18   19  528\n"), "{swizzled}");
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let desk = Desk::new();
    for (line, message) in [
        ("layout linear 129x128 --svg p", "draw fewer rows or columns"),
        ("layout linear 1x2049 --svg p", "2048 along an axis"),
        ("layout linear 0x4 --svg p", "ask for at least one row and one column"),
        ("layout marlin_grouped 5x5 --svg p", "must be a multiple of 64"),
        ("layout linear 5 --svg p", "write rows and columns as 130x5"),
        ("layout linear --rows 5 --svg p", "--cols"),
        ("layout linear 5x5 --rows 5 --cols 5", "cannot be used with"),
        ("layout linera 5x5", "did you mean `linear`"),
        ("layout linear 5x5 --svg no/where", "cannot be written"),
        ("layout linear 2000x2000", "more than the 1048576"),
    ] {
        let (status, said) = desk.fail(line);
        assert!(status == 2 && said.contains(message), "{line}: {said}");
    }
    assert!(desk.names().is_empty());
}

#[test]
fn the_help_lists_every_command() {
    let desk = Desk::new();
    let help = desk.succeed("--help");
    for (command, words) in [
        ("layout", "Prints, or draws, where"),
        ("quantize", "Quantises a tensor"),
        ("relayout", "Moves the scales"),
        ("dequantize", "Turns a quantised tensor"),
    ] {
        let line = help.lines().find(|line| line.trim_start().starts_with(command)).unwrap();
        assert!(line.contains(words), "{line}");
    }
    for command in ["quantize", "relayout", "dequantize"] {
        let help = desk.succeed(&format!("{command} --help"));
        assert!(help.contains("no other tensor of IN"), "{help}");
    }
}
