//! Scale layouts and row orders against other people's shuffles.

use scalewright::format::ScaleType;
use scalewright::layout::{Extent, Half, Layout, Order};
use scalewright::tensor::RawQuantized;

use crate::data::{Outcome, Relation, Tensor, Tensors, same};
use crate::engine;

pub(crate) fn check(tensors: &Tensors, relation: &Relation) -> Option<Outcome> {
    let outputs = relation.outputs();
    let output = &tensors[outputs.first()?];
    let input = |index: usize| &tensors[&relation.inputs[index]];
    let text = relation.relation.as_str();
    if text.starts_with("shuffle_matrix_a:") || text.starts_with("w2 permutation") {
        return Some(gathers(if tile(relation)? == 64 { "down_tile64" } else { "down_tile128" }, output));
    }
    if text.starts_with("gated reorder then shuffle") {
        return Some(gathers(
            if tile(relation)? == 64 { "up_gate_tile64" } else { "up_gate_tile128" },
            output,
        ));
    }
    if text.starts_with("[r0, rM/2, r1, rM/2+1") {
        return Some(gathers("up_gate_interleaved", output));
    }
    if text.starts_with("[M,K] -> [K/128, M, 128]") {
        return Some(blocked(input(0), output));
    }
    if text.starts_with("shuffle_matrix_a(w,128)") {
        return Some(same("rows", &reorder("down_tile128", 1, input(0)), &output.bytes));
    }
    if text.starts_with("shuffle_matrix_sf_a(sf,128)") {
        let shuffled = reorder("down_tile128", 1, input(0));
        let swizzled = stored(engine::layout("swizzled_128x4"), 1, input(0).cols(), &shuffled);
        return Some(swizzled.and_then(|swizzled| same("scales", &swizzled, &output.bytes)));
    }
    if text.starts_with("[w1;w3] -> [w3;w1]") {
        return Some(swapped(tensors, relation));
    }
    if text.starts_with("[up;gate] rows interleaved in groups of 64") {
        return Some(same("rows", &reorder("up_gate_64", input(0).shape[0], input(0)), &output.bytes));
    }
    if text.contains("packed") {
        return Some(packed(input(0), output, if text.contains("rows repeated 128x") { 128 } else { 1 }));
    }
    Some(swizzled(swizzle(relation)?, input(0), output))
}

/// The layout that a relation goes into (or comes from; a layout is its own witness for both).
fn swizzle(relation: &Relation) -> Option<&'static str> {
    match relation.relation.as_str() {
        "linear -> 8x4" => Some("swizzled_8x4"),
        "linear -> 128x4" | "128x4 -> linear" | "same" => Some("swizzled_128x4"),
        text if text.starts_with("per-expert 128x4") => Some("swizzled_128x4"),
        _ => None,
    }
}

/// The rows of an epilogue tile, by the parameter or by the output's name.
fn tile(relation: &Relation) -> Option<u64> {
    let of_name = || relation.outputs().first()?.rsplit_once(".ep")?.1.parse().ok();
    relation.params["epilogue_tile_m"].as_u64().or_else(of_name).filter(|tile| matches!(tile, 64 | 128))
}

/// K-major blocks of 128 elements, `[K/128, M, 128]`.
fn blocked(input: &Tensor, output: &Tensor) -> Outcome {
    let payload = engine::payload("block_major_k128");
    let extent = Extent { rows: input.shape[0], cols: input.cols() };
    let physical = payload.physical(extent).map_err(|error| error.to_string())?;
    let mut ours = vec![0; physical.count()];
    for (index, byte) in input.bytes.iter().enumerate() {
        ours[payload.offset(index / extent.cols, index % extent.cols, physical)] = *byte;
    }
    same(payload.name, &ours, &output.bytes)
}

/// Which row of the concatenated halves is stored at `position`.
fn source_row(order: &Order, position: usize, rows: usize) -> usize {
    let (half, row) = order.source(position, rows / halves(order));
    half * (rows / halves(order)) + row
}

fn halves(order: &Order) -> usize {
    if order.first.is_some() { 2 } else { 1 }
}

/// `indices[i]` is the row that goes to `i`.
fn gathers(order: &str, indices: &Tensor) -> Outcome {
    let order = engine::order(order);
    let rows = indices.shape[0];
    let theirs: Vec<usize> = indices.words().into_iter().map(|index| index as usize).collect();
    let ours: Vec<usize> = (0..rows).map(|position| source_row(order, position, rows)).collect();
    same(order.name, &ours, &theirs)?;
    let half_rows = rows / halves(order);
    let back: Vec<usize> = theirs
        .iter()
        .map(|source| order.position(source / half_rows, source % half_rows, half_rows))
        .collect();
    same("the inverse", &back, &(0..rows).collect::<Vec<_>>())
}

/// The bytes of `rows`, whose halves lie one after the other in the order's own sequence, reordered
/// within each expert.
fn reorder(order: &str, experts: usize, tensor: &Tensor) -> Vec<u8> {
    let order = engine::order(order);
    let width = tensor.cols();
    let rows = tensor.bytes.len() / width / experts;
    let expert = |bytes: &[u8]| -> Vec<u8> {
        let row = |position| &bytes[source_row(order, position, rows) * width..][..width];
        (0..rows).flat_map(|position| row(position).to_vec()).collect()
    };
    tensor.bytes.chunks(rows * width).flat_map(expert).collect()
}

/// `[gate; up]` to `[up; gate]`, of payload and scales.
fn swapped(tensors: &Tensors, relation: &Relation) -> Outcome {
    let (from, to) = (engine::order("gate_up"), engine::order("up_gate"));
    for (input, output) in relation.inputs.iter().zip(relation.outputs()) {
        let (input, output) = (&tensors[input], &tensors[output]);
        let (rows, width) = (input.shape[1], input.shape[2]);
        let mut ours = vec![0; input.bytes.len()];
        for (ours, input) in ours.chunks_mut(rows * width).zip(input.bytes.chunks(rows * width)) {
            for half in [Half::Gate, Half::Up] {
                for row in 0..rows / 2 {
                    let source = from.position(from.half_index(half), row, rows / 2) * width;
                    let target = to.position(to.half_index(half), row, rows / 2) * width;
                    ours[target..][..width].copy_from_slice(&input[source..][..width]);
                }
            }
        }
        same("rows", &ours, &output.bytes)?;
    }
    Ok(())
}

/// Linear one-byte scales of `experts` experts, stored in `layout` by its offsets; padding is zero.
fn stored(layout: &Layout, experts: usize, cols: usize, linear: &[u8]) -> Result<Vec<u8>, String> {
    let rows = linear.len() / cols / experts;
    let physical = layout.physical(Extent { rows, cols }).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; experts * physical.count()];
    for (index, scale) in linear.iter().enumerate() {
        let (expert, row, col) = (index / (rows * cols), index / cols % rows, index % cols);
        let offset = (layout.offset)(row, col, physical);
        if (layout.locate)(offset, physical) != (row, col) {
            return Err(format!("{}: ({row}, {col}) is not located again", layout.name));
        }
        bytes[expert * physical.count() + offset] = *scale;
    }
    Ok(bytes)
}

/// Linear scales and the same in `layout`; which of the two the source computed does not matter.
fn swizzled(layout: &str, input: &Tensor, output: &Tensor) -> Outcome {
    let layout = engine::layout(layout);
    let (linear, other) = if input.shape.len() >= 2 && output.shape.len() == 1 || output.shape.len() == 3 {
        (input, output)
    } else {
        (output, input)
    };
    let experts = if linear.shape.len() == 3 { linear.shape[0] } else { 1 };
    let cols = linear.cols();
    same(layout.name, &stored(layout, experts, cols, &linear.bytes)?, &other.bytes)?;
    let rows = linear.bytes.len() / cols / experts;
    let stride = other.bytes.len() / experts;
    for (linear, other) in linear.bytes.chunks(rows * cols).zip(other.bytes.chunks(stride)) {
        let raw = |layout, scales: &[u8]| {
            let format = engine::format("mxfp8");
            let payload = vec![0; rows * cols * 32];
            RawQuantized {
                format,
                layout,
                rows,
                cols: cols * 32,
                payload,
                scales: scales.to_vec(),
                zero_points: Vec::new(),
                global: None,
            }
        };
        let there = engine::relayout(&raw(engine::layout("linear"), linear), layout);
        same("relayout", &there.scales, other)?;
        let back = engine::relayout(&raw(layout, other), engine::layout("linear"));
        same("relayout back", &back.scales, linear)?;
    }
    Ok(())
}

/// Powers of two in f32, stored as packed exponents. A row of scales stands for `repeat` rows.
fn packed(input: &Tensor, output: &Tensor, repeat: usize) -> Outcome {
    let layout = engine::layout("packed_ue8m0");
    assert!(layout.scales.contains(&ScaleType::E8m0));
    let cols = input.cols();
    let exponents: Vec<u8> = input.words().into_iter().map(|bits| (bits >> 23) as u8).collect();
    // The last block of 128 rows may be cut.
    let rows = (input.shape[0] * repeat).min(output.cols());
    let linear: Vec<u8> =
        (0..rows).flat_map(|row| exponents[row / repeat * cols..][..cols].to_vec()).collect();
    same(layout.name, &stored(layout, 1, cols, &linear)?, &output.bytes)
}
