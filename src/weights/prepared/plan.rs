//! Sizes and places of prepared weights, from the contract and the logical sizes alone. Preparation
//! writes by the plan, the engine reads by it.

use crate::backend::{Activation, Contract, Encoding};
use crate::element::copy_element;
use crate::format::{BlockScale, FormatSpec, Reach};
use crate::layout::{Extent, Fit, Half, Indivisible, Layout, Order, Payload};
use crate::moe::executable::{self, known, said};

use super::PrepareError;

/// What the model says of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logical {
    /// Experts.
    pub experts: usize,
    /// The hidden size.
    pub hidden: usize,
    /// The intermediate size of one half.
    pub intermediate: usize,
}

/// What is allocated for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Physical {
    /// The hidden size, padded.
    pub hidden: usize,
    /// The intermediate size of one half, padded.
    pub intermediate: usize,
}

/// The plan of both matrices of an expert.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) physical: Physical,
    pub(crate) gate_up: MatrixPlan,
    pub(crate) down: MatrixPlan,
}

/// Where the elements and scales of one expert's matrix are stored.
#[derive(Debug)]
pub(crate) struct MatrixPlan {
    pub(crate) format: &'static FormatSpec,
    order: Option<&'static Order>,
    /// 2 for a fused gate/up matrix, 1 for others.
    pub(crate) halves: usize,
    /// Rows of one half, padded.
    pub(crate) half_rows: usize,
    /// Elements of a row, padded.
    pub(crate) cols: usize,
    pub(crate) payload: &'static Payload,
    payload_extent: Extent,
    pub(crate) scale: Option<ScalePlan>,
}

/// Where the scales of one expert's matrix are stored.
#[derive(Debug)]
pub(crate) struct ScalePlan {
    pub(crate) block: BlockScale,
    /// The elements of a block of the fused matrix.
    block_size: Extent,
    pub(crate) layout: &'static Layout,
    /// Stored rows and columns of scales that belong to some weight.
    pub(crate) logical: Extent,
    pub(crate) physical: Extent,
    pub(crate) fill: u8,
    /// Weight rows, in stored order, of one stored row of scales.
    pub(crate) rows_per_scale: usize,
}

/// Beyond any model, and small enough that no product of sizes overflows.
const MOST: usize = 1 << 20;

/// Plans the weights of a layer of `logical` size for `contract` under `activation`.
pub(crate) fn plan(
    contract: &Contract,
    activation: Activation,
    logical: Logical,
) -> Result<Plan, PrepareError> {
    executable::check(contract)?;
    let weight = &contract.weight;
    let row = contract.name;
    let gate_up = weight.gate_up_order(activation).ok_or(PrepareError::Activation { row, activation })?;
    let sizes =
        [("experts", logical.experts), ("hidden", logical.hidden), ("intermediate", logical.intermediate)];
    if let Some((what, size)) = sizes.into_iter().find(|(_, size)| *size > MOST) {
        return Err(PrepareError::TooLarge { what, size, most: MOST });
    }
    // Ranks may hold no expert, but an expert has rows and columns.
    if let Some((what, _)) = sizes[1..].iter().find(|(_, size)| *size == 0) {
        return Err(PrepareError::Empty { what });
    }
    let pad = |size: usize, multiple: usize| size.next_multiple_of(multiple.max(1));
    let physical = Physical {
        hidden: pad(logical.hidden, weight.pad.map_or(1, |pad| pad.hidden)),
        intermediate: pad(
            logical.intermediate,
            weight.pad.map_or(1, |pad| if activation.halves() == 2 { pad.gated } else { pad.plain }),
        ),
    };
    Ok(Plan {
        physical,
        gate_up: MatrixPlan::new(
            contract,
            Some(gate_up),
            activation.halves(),
            physical.intermediate,
            physical.hidden,
        )?,
        down: MatrixPlan::new(contract, weight.down, 1, physical.hidden, physical.intermediate)?,
    })
}

impl MatrixPlan {
    fn new(
        contract: &Contract,
        order: Option<&'static Order>,
        halves: usize,
        half_rows: usize,
        cols: usize,
    ) -> Result<Self, PrepareError> {
        let row = contract.name;
        if let Some(order) = order {
            if order.first.is_some() != (halves == 2) {
                return Err(PrepareError::Halves { row, order: order.name, halves });
            }
            let rows = Fit::Divide(Extent { rows: order.multiple.max(1), cols: 1 });
            rows.physical(order.name, Extent { rows: half_rows, cols: 1 })?;
        }
        let payload = known(contract, "weight.payload", contract.weight.payload)?;
        let extent = Extent { rows: halves * half_rows, cols };
        let mut plan = Self {
            format: contract.weight.format,
            order,
            halves,
            half_rows,
            cols,
            payload,
            payload_extent: payload.physical(extent)?,
            scale: None,
        };
        if let Some(block) = plan.format.block {
            if block.zero_point.is_some() {
                return Err(PrepareError::ZeroPoints { row, format: plan.format.name });
            }
            let scale = ScalePlan::new(contract, block, extent)?;
            plan.keeps_blocks_whole(row, &scale)?;
            plan.scale = Some(scale);
        }
        Ok(plan)
    }

    /// Refuses an order that puts rows with different scales into one stored row of scales.
    fn keeps_blocks_whole(&self, row: &'static str, scale: &ScalePlan) -> Result<(), PrepareError> {
        if scale.rows_per_scale == 1 || scale.block.rows == Reach::Whole {
            return Ok(());
        }
        let block = |position: usize| {
            let (half, row) = self.source(position);
            (half, row / scale.block_size.rows)
        };
        let torn = (0..self.rows()).find(|position| {
            block(*position) != block(position / scale.rows_per_scale * scale.rows_per_scale)
        });
        match torn {
            None => Ok(()),
            Some(position) => Err(PrepareError::TornBlock {
                row,
                order: self.order.map_or("as it comes", |order| order.name),
                block_rows: scale.block_size.rows,
                half_rows: self.half_rows,
                position,
            }),
        }
    }

    /// Rows of the matrix, padded halves together.
    pub(crate) fn rows(&self) -> usize {
        self.halves * self.half_rows
    }

    /// Bytes of one expert's elements.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.format.element.bytes(self.payload_extent.count())
    }

    /// Bytes of one expert's scales.
    pub(crate) fn scale_bytes(&self) -> usize {
        self.scale.as_ref().map_or(0, |scale| scale.physical.count() * scale.block.scale.bytes())
    }

    /// The stored row of row `row` of `half`; a plain matrix has rows of no half.
    pub(crate) fn position(&self, half: Option<Half>, row: usize) -> usize {
        match self.order {
            None => row,
            Some(order) => order.position(half.map_or(0, |half| order.half_index(half)), row, self.half_rows),
        }
    }

    /// The (half index, row) that is stored at row `position`.
    fn source(&self, position: usize) -> (usize, usize) {
        self.order.map_or((0, position), |order| order.source(position, self.half_rows))
    }

    /// How the elements of a stored row are reached.
    pub(crate) fn access(&self) -> Access {
        let [outer, inner] = self.payload.digits else { return self.scattered() };
        let whole = |digit: &crate::digits::Digit, axis| {
            digit.axis == axis && digit.divisor == 1 && digit.radix.is_none()
        };
        let row_major = whole(outer, crate::digits::Axis::Row) && whole(inner, crate::digits::Axis::Col);
        if row_major && (self.payload_extent.cols * self.format.element.bits()).is_multiple_of(8) {
            Access::Contiguous { row_bytes: self.format.element.bytes(self.payload_extent.cols) }
        } else {
            self.scattered()
        }
    }

    /// Each digit belongs to one axis, so an offset is the row's share plus the column's.
    fn scattered(&self) -> Access {
        Access::Scattered {
            columns: (0..self.cols).map(|col| self.payload.offset(0, col, self.payload_extent)).collect(),
        }
    }

    /// Copies the first `cols` elements of a packed row to stored row `position` of one expert.
    pub(crate) fn write_row(
        &self,
        access: &Access,
        row: &[u8],
        cols: usize,
        payload: &mut [u8],
        position: usize,
    ) {
        let element = self.format.element;
        match access {
            Access::Contiguous { row_bytes } if (cols * element.bits()).is_multiple_of(8) => {
                payload[position * row_bytes..][..row.len()].copy_from_slice(row);
            }
            Access::Contiguous { .. } => {
                let base = self.payload.offset(position, 0, self.payload_extent);
                (0..cols).for_each(|col| copy_element(element, row, col, payload, base + col));
            }
            Access::Scattered { columns } => {
                let base = self.payload.offset(position, 0, self.payload_extent);
                let columns = columns.iter().take(cols).enumerate();
                columns.for_each(|(col, offset)| copy_element(element, row, col, payload, base + offset));
            }
        }
    }

    /// Stored row `position` of one expert, packed; `row` is room for it.
    pub(crate) fn read_row<'a>(
        &self,
        access: &Access,
        payload: &'a [u8],
        position: usize,
        row: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        match access {
            Access::Contiguous { row_bytes } => &payload[position * row_bytes..][..*row_bytes],
            Access::Scattered { columns } => {
                let base = self.payload.offset(position, 0, self.payload_extent);
                row.resize(self.format.element.bytes(self.cols), 0);
                for (col, offset) in columns.iter().enumerate() {
                    copy_element(self.format.element, payload, base + offset, row, col);
                }
                row
            }
        }
    }
}

/// How the elements of a stored row are reached.
pub(crate) enum Access {
    /// They are one run of bytes.
    Contiguous {
        /// Bytes from one row to the next.
        row_bytes: usize,
    },
    /// Each at its own offset from the row's.
    Scattered {
        /// In elements.
        columns: Vec<usize>,
    },
}

impl ScalePlan {
    fn new(contract: &Contract, block: BlockScale, extent: Extent) -> Result<Self, PrepareError> {
        let row = contract.name;
        let scale = said(contract, "weight.scale", contract.weight.scale.as_ref())?;
        let layout = known(contract, "weight.scale.layout", scale.layout)?;
        let Encoding::AsStored = known(contract, "weight.scale.encoding", scale.encoding)?;
        if !layout.scales.contains(&block.scale) {
            return Err(PrepareError::ScaleType { row, layout: layout.name, scale: block.scale });
        }
        let repeat = scale.repeat_rows.max(1);
        let block_size = block.size(extent);
        if !block_size.rows.is_multiple_of(repeat) && !repeat.is_multiple_of(block_size.rows) {
            let (layout, axis) = (layout.name, "row");
            return Err(Indivisible { layout, axis, size: block_size.rows, multiple: repeat }.into());
        }
        let rows_per_scale = (block_size.rows / repeat).max(1);
        let logical = Extent { rows: extent.rows.div_ceil(rows_per_scale), cols: block.scales(extent).cols };
        let physical = layout.physical(logical)?;
        Ok(Self { block, block_size, layout, logical, physical, fill: scale.fill, rows_per_scale })
    }
}
