//! One expert's matrix times the rows that go to it. Elements are decoded once a weight row; sums are
//! f32.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::backend::Bias;
use crate::weights::prepared::{Access, MatrixPlan, PreparedMatrix};

use super::dequantize::{apply_scales, decode_elements};
use super::scales::ScaleView;

/// The matrices of all experts as a kernel reads them.
pub(crate) struct Weights<'a> {
    pub(crate) plan: &'a MatrixPlan,
    pub(crate) access: Access,
    /// The elements, without the step over words.
    pub(crate) payload: Cow<'a, [u8]>,
    pub(crate) matrix: &'a PreparedMatrix,
    /// What the second level of the input multiplies by.
    pub(crate) input_global: f32,
    /// One value an expert and stored row, if the row takes biases and there are some.
    pub(crate) bias: Option<(Bias, &'a [f32])>,
}

impl Weights<'_> {
    /// The products of weight rows and input rows: `outputs` × `inputs`, the weight rows outermost.
    /// Output `o` is stored row `position(o)` of expert `expert`; `inputs` holds rows of `width`
    /// values, no more than a weight row has. Biases are added.
    pub(crate) fn multiply(
        &self,
        expert: usize,
        inputs: &[f32],
        width: usize,
        outputs: usize,
        position: impl Fn(usize) -> usize + Sync,
    ) -> Vec<f32> {
        let count = inputs.len() / width.max(1);
        let global = self.matrix.globals.get(expert).map_or(1.0, |global| global.get());
        let alpha = global * self.input_global;
        let mut products = vec![0.0; outputs * count];
        products.par_chunks_mut(count.max(1)).enumerate().for_each_init(
            || (vec![0.0; width], Vec::new()),
            |(weights, packed), (output, products)| {
                let position = position(output);
                self.decode(expert, position, weights, packed);
                let bias = self.bias.map_or(0.0, |(bias, values)| {
                    values[expert * self.plan.rows() + bias.order.position(position)]
                });
                for (product, input) in products.iter_mut().zip(inputs.chunks_exact(width)) {
                    *product = alpha * dot(weights, input) + bias;
                }
            },
        );
        products
    }

    fn decode(&self, expert: usize, position: usize, values: &mut [f32], packed: &mut Vec<u8>) {
        let payload = &self.payload[expert * self.plan.payload_bytes()..];
        let row = self.plan.read_row(&self.access, payload, position, packed);
        decode_elements(self.plan.format.element, row, values);
        if let Some(scale) = &self.plan.scale {
            let scales = ScaleView {
                layout: scale.layout,
                physical: scale.physical,
                scale: scale.block.scale,
                base: expert * scale.physical.count(),
                bytes: &self.matrix.scales,
            };
            apply_scales(values, scale.block.cols.size(self.plan.cols), |col| {
                scales.get(position / scale.rows_per_scale, col)
            });
        }
    }
}

/// Sums in lanes, so that the compiler may use vector registers.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
