//! One selection of each family, on a device of each kind. `cargo bench --bench select`; a name after `--`
//! selects, as in `-- mxfp4`.

use std::fmt;

use scalewright::backend::Activation;
use scalewright::generated::oracle::ORACLES;
use scalewright::oracle::{Device, Engine, Oracle, Request, evaluate};

/// A family's oracle, and what it is asked.
struct Case {
    oracle: &'static Oracle,
    request: Request,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.oracle.family, self.request.device)
    }
}

fn cases(engine: Engine) -> Vec<Case> {
    let devices = [Device::Sm70, Device::Sm90, Device::Sm100, Device::Sm120, Device::Gfx942, Device::CpuX86];
    let has_order = |oracle: &&&Oracle| oracle.orders.iter().any(|order| order.engine == engine);
    let of = |oracle: &'static Oracle| {
        let request = |device| Request { engine, ..Request::new(device, Activation::Silu, 4096) };
        devices.map(|device| Case { oracle, request: request(device) })
    };
    ORACLES.iter().filter(has_order).flat_map(|oracle| of(oracle)).collect()
}

#[divan::bench(args = cases(Engine::Vllm))]
fn vllm(case: &Case) -> usize {
    refusals(case)
}

#[divan::bench(args = cases(Engine::Native))]
fn native(case: &Case) -> usize {
    refusals(case)
}

fn refusals(case: &Case) -> usize {
    match evaluate(case.oracle, divan::black_box(&case.request)) {
        Ok(selection) => selection.rejected.len(),
        Err(nothing) => nothing.rejected().len(),
    }
}

fn main() {
    divan::main();
}
