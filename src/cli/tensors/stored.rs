//! A quantised tensor in a safetensors file.
//!
//! Tensor `T` holds the elements, `[rows, K]` or `[experts, rows, K]` in the type that safetensors has
//! for them, else as U8; 4-bit elements are two to a byte, `K / 2` bytes a row. Beside it are
//!
//! - `T_scale`: the scales, in the order of their layout. Its shape is always that of the box that the
//!   layout allocates, `[…, physical rows, physical cols]`, also where rows of the box are not stored
//!   one after the other; each expert has a box of its own.
//! - `T_zero_point`, for formats that have them: U8, one a block, row-major.
//! - `T_global`, for formats with a second level: F32 `[experts]` or `[1]`, the factor that
//!   dequantising multiplies by.
//!
//! What the tensors do not say stands in the file's metadata, as JSON under the key `scalewright`.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, TensorView};
use scalewright::format::{ElementType, FormatSpec, ScaleType};
use scalewright::layout::{Extent, Layout};
use scalewright::scale::Multiplier;
use scalewright::tensor::{RawQuantized, WrongSize, scale_extent};
use serde::{Deserialize, Serialize};

use super::{Archive, Stacked, part};
use crate::cli::{Trouble, names, question, wrong_file};

/// The key of the metadata.
const KEY: &str = "scalewright";

/// The version of [`Label`]; another one is not read.
const VERSION: u32 = 1;

/// What the tensors of a file do not say.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    version: u32,
    /// The tensor it is about.
    tensor: String,
    format: String,
    layout: String,
    /// How power-of-two scales were chosen; none for other formats.
    rounding: Option<String>,
    /// Rows of a matrix.
    rows: usize,
    /// Elements of a row, as stored.
    cols: usize,
    /// Elements of a row before they were padded with zeros.
    k: usize,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// The quantised tensor that a command reads.
#[derive(clap::Args)]
pub(in crate::cli) struct Source {
    /// The safetensors file to read.
    #[arg(value_name = "IN")]
    pub(in crate::cli) input: std::path::PathBuf,
    /// The quantised tensor T; its scales are T_scale, and T_zero_point and T_global where it has them.
    #[arg(long, value_name = "T")]
    pub(in crate::cli) tensor: String,
    /// The layout that the scales are in, for a file that `quantize` did not make.
    #[arg(long, value_name = "L", requires = "format")]
    from: Option<String>,
    /// The format of the tensor, for a file that `quantize` did not make.
    #[arg(long, value_name = "F", requires = "from")]
    format: Option<String>,
}

/// A quantised tensor, all matrices one after the other.
#[derive(Debug)]
pub(in crate::cli) struct Quantized {
    pub(in crate::cli) name: String,
    pub(in crate::cli) format: &'static FormatSpec,
    pub(in crate::cli) layout: &'static Layout,
    pub(in crate::cli) rounding: Option<String>,
    /// Elements as stored: rows are padded.
    pub(in crate::cli) shape: Stacked,
    /// Elements of a row before they were padded.
    pub(in crate::cli) k: usize,
    pub(in crate::cli) payload: Vec<u8>,
    pub(in crate::cli) scales: Vec<u8>,
    pub(in crate::cli) zero_points: Vec<u8>,
    /// One a matrix; empty for formats without.
    pub(in crate::cli) globals: Vec<Multiplier>,
}

impl Quantized {
    /// The logical scales of one matrix, and the box that they are stored in.
    pub(in crate::cli) fn scale_boxes(&self) -> Result<(Extent, Extent), WrongSize> {
        let Extent { rows, cols } = self.shape.extent;
        let logical = scale_extent(self.format, rows, cols)?;
        Ok((logical, self.layout.physical(logical)?))
    }

    /// Matrix `index`.
    pub(in crate::cli) fn matrix(&self, index: usize) -> RawQuantized {
        let of = |bytes: &[u8]| part(bytes, bytes.len() / self.shape.count(), index).to_vec();
        RawQuantized {
            format: self.format,
            layout: self.layout,
            rows: self.shape.extent.rows,
            cols: self.shape.extent.cols,
            payload: of(&self.payload),
            scales: of(&self.scales),
            zero_points: of(&self.zero_points),
            global: self.globals.get(index).copied().map(Multiplier::to_divisor),
        }
    }

    /// A safetensors file that holds it.
    pub(in crate::cli) fn file(&self) -> Result<Vec<u8>, Trouble> {
        let (logical, physical) = self.scale_boxes().map_err(question)?;
        let extent = self.shape.extent;
        let shape = |extent| self.shape.with(extent).shape();
        let globals: Vec<u8> = self.globals.iter().flat_map(|global| global.get().to_le_bytes()).collect();
        let mut parts = vec![(
            self.name.clone(),
            element_dtype(self.format.element),
            shape(Extent { cols: row_units(self.format.element, extent.cols), ..extent }),
            &self.payload,
        )];
        if let Some(block) = self.format.block {
            parts.push((beside(&self.name, SCALE), scale_dtype(block.scale), shape(physical), &self.scales));
        }
        if !self.zero_points.is_empty() {
            parts.push((beside(&self.name, ZERO_POINT), Dtype::U8, shape(logical), &self.zero_points));
        }
        if !self.globals.is_empty() {
            parts.push((beside(&self.name, GLOBAL), Dtype::F32, vec![self.globals.len()], &globals));
        }
        let label = Label {
            version: VERSION,
            tensor: self.name.clone(),
            format: self.format.name.to_owned(),
            layout: self.layout.name.to_owned(),
            rounding: self.rounding.clone(),
            rows: extent.rows,
            cols: extent.cols,
            k: self.k,
        };
        let metadata = HashMap::from([(KEY.to_owned(), serde_json::to_string(&label).map_err(question)?)]);
        let views = parts
            .into_iter()
            .map(|(name, dtype, shape, bytes)| TensorView::new(dtype, shape, bytes).map(|view| (name, view)));
        let views = views.collect::<Result<Vec<_>, _>>().map_err(question)?;
        safetensors::serialize(views, Some(metadata)).map_err(question)
    }
}

const SCALE: &str = "scale";
const ZERO_POINT: &str = "zero_point";
const GLOBAL: &str = "global";

/// The name of a tensor that belongs to `tensor`.
fn beside(tensor: &str, what: &str) -> String {
    format!("{tensor}_{what}")
}

impl Archive<'_> {
    /// The quantised tensor that `source` names.
    pub(in crate::cli) fn quantized(&self, source: &Source) -> Result<Quantized, Trouble> {
        let name = &source.tensor;
        let tensor = self.tensor(name)?;
        let stored = self.stacked(name, &tensor)?;
        let label = self.label(name)?;
        let (format, layout) = self.meaning(source, label.as_ref())?;
        let Some(block) = format.block else {
            return Err(question(format!(
                "`{}` has no scales; there is nothing to move or to multiply by",
                format.name
            )));
        };
        self.expect(name, tensor.dtype(), element_dtype(format.element))?;
        let Extent { rows, cols: units } = stored.extent;
        let per_byte = if format.element.bits() == 4 { 2 } else { 1 };
        let cols = label.as_ref().map_or(units.saturating_mul(per_byte), |label| label.cols);
        let k = label.as_ref().map_or(cols, |label| label.k);
        if let Some(label) = &label
            && (label.rows != rows || row_units(format.element, cols) != units || k > cols || k == 0)
        {
            let (rows, got) = (label.rows, tensor.shape());
            let said = format!("{rows} rows of {cols} `{}` elements, {k} of them not padding", format.name);
            return Err(
                self.wrong(name, format!("has the shape {got:?}, but the file's metadata says {said}"))
            );
        }
        let mut quantized = Quantized {
            name: name.clone(),
            format,
            layout,
            rounding: label.and_then(|label| label.rounding),
            shape: stored.with(Extent { rows, cols }),
            k,
            payload: tensor.data().to_vec(),
            scales: Vec::new(),
            zero_points: Vec::new(),
            globals: Vec::new(),
        };
        let (logical, physical) =
            quantized.scale_boxes().map_err(|error| self.wrong(name, format!("does not fit: {error}")))?;
        quantized.scales = self.part(name, SCALE, scale_dtype(block.scale), stored.with(physical))?;
        if block.zero_point.is_some() {
            quantized.zero_points = self.part(name, ZERO_POINT, Dtype::U8, stored.with(logical))?;
        }
        if format.global.is_some() {
            quantized.globals = self.globals(name, stored.count())?;
        }
        Ok(quantized)
    }

    /// What the file's metadata says of tensor `name`; `None` if it says nothing.
    fn label(&self, name: &str) -> Result<Option<Label>, Trouble> {
        let Some(text) = self.metadata.get(KEY) else { return Ok(None) };
        let refuse = |what: String| wrong_file(format!("{}: metadata `{KEY}` {what}", self.path.display()));
        let unreadable = |error| refuse(format!("is not what `quantize` writes: {error}"));
        let Versioned { version } = serde_json::from_str(text).map_err(unreadable)?;
        if version != VERSION {
            return Err(refuse(format!("is of version {version}, and this program reads {VERSION}")));
        }
        let label: Label = serde_json::from_str(text).map_err(unreadable)?;
        if label.tensor == name {
            return Ok(Some(label));
        }
        Ok(None)
    }

    /// The format of a tensor and the layout of its scales: what the metadata says, or what is asked for.
    fn meaning(
        &self,
        source: &Source,
        label: Option<&Label>,
    ) -> Result<(&'static FormatSpec, &'static Layout), Trouble> {
        let path = self.path.display();
        let asked = match (&source.format, &source.from) {
            (Some(format), Some(layout)) => Some((names::format(format)?, names::layout(layout)?)),
            _ => None,
        };
        let said = match label {
            Some(label) => Some((names::format(&label.format)?, names::layout(&label.layout)?)),
            None => None,
        };
        match (asked, said) {
            (Some(asked), Some(said)) if asked != said => Err(question(format!(
                "{path} says that `{}` is {} with scales in {}; leave --format and --from away, or give these",
                source.tensor, said.0.name, said.1.name
            ))),
            (_, Some(meaning)) | (Some(meaning), None) => Ok(meaning),
            (None, None) => Err(question(format!(
                "{path} does not say what `{}` is: `quantize` did not make it. Say it with --format F --from L",
                source.tensor
            ))),
        }
    }

    /// The bytes of a tensor that belongs to `name`.
    fn part(&self, name: &str, what: &str, dtype: Dtype, shape: Stacked) -> Result<Vec<u8>, Trouble> {
        let part = self.beside(name, what)?;
        let name = beside(name, what);
        self.expect(&name, part.dtype(), dtype)?;
        let shape = shape.shape();
        // Other programs give a box other shapes; what counts is how much it holds.
        let expected = shape.iter().fold(dtype.bitsize() / 8, |bytes, size| bytes.saturating_mul(*size));
        let got = part.data().len();
        if got != expected {
            let what = format!(
                "has the shape {:?}, {got} bytes; {expected} are expected, as of {shape:?}",
                part.shape()
            );
            return Err(self.wrong(&name, what));
        }
        Ok(part.data().to_vec())
    }

    fn globals(&self, name: &str, count: usize) -> Result<Vec<Multiplier>, Trouble> {
        let part = self.beside(name, GLOBAL)?;
        let name = beside(name, GLOBAL);
        self.expect(&name, part.dtype(), Dtype::F32)?;
        let values: Vec<_> =
            part.data().as_chunks().0.iter().map(|bytes| Some(f32::from_le_bytes(*bytes))).collect();
        if values.len() != count {
            return Err(
                self.wrong(&name, format!("holds {} scales, and there are {count} matrices", values.len()))
            );
        }
        Multiplier::of_experts("second-level scale", &values)
            .map_err(|error| self.wrong(&name, format!("has {error}")))
    }

    fn beside(&self, name: &str, what: &str) -> Result<TensorView<'_>, Trouble> {
        let part = beside(name, what);
        self.tensors.tensor(&part).map_err(|_| self.wrong(name, format!("lacks its `{part}` in the file")))
    }

    /// Refuses a type that is neither `expected` nor plain bytes of the same size.
    fn expect(&self, name: &str, got: Dtype, expected: Dtype) -> Result<(), Trouble> {
        if got == expected || got == Dtype::U8 && expected.bitsize() == 8 {
            return Ok(());
        }
        Err(self.wrong(name, format!("is {got}; {expected} is expected of its format")))
    }
}

/// Stored units of a row of `cols` elements: bytes of 4-bit elements, else elements.
fn row_units(element: ElementType, cols: usize) -> usize {
    if element.bits() == 4 { cols.div_ceil(2) } else { cols }
}

fn element_dtype(element: ElementType) -> Dtype {
    match element {
        // safetensors' 6-bit types are packed, four to three bytes.
        ElementType::E2m1
        | ElementType::E2m3
        | ElementType::E3m2
        | ElementType::Int4
        | ElementType::Uint4 => Dtype::U8,
        ElementType::E4m3 => Dtype::F8_E4M3,
        ElementType::E5m2 => Dtype::F8_E5M2,
        ElementType::Int8 => Dtype::I8,
        ElementType::Bf16 => Dtype::BF16,
        ElementType::F16 => Dtype::F16,
        ElementType::F32 => Dtype::F32,
    }
}

fn scale_dtype(scale: ScaleType) -> Dtype {
    match scale {
        ScaleType::E8m0 => Dtype::F8_E8M0,
        ScaleType::E4m3 => Dtype::F8_E4M3,
        ScaleType::F32 => Dtype::F32,
        ScaleType::Bf16 => Dtype::BF16,
        ScaleType::F16 => Dtype::F16,
    }
}
