//! A crate with a table of its own: everything that follows from it, used.

scalewright::backends!("table.toml");

#[cfg(test)]
mod tests {
    use half::bf16;
    use scalewright::backend::{Activation, Backend};
    use scalewright::transport::{Delivery, Route};
    use scalewright::backend_test;
    use scalewright::config::QuantConfig;
    use scalewright::cpu::quantize::quantize_input;
    use scalewright::layout::{Extent, ScaleLayout};
    use scalewright::moe::layer::Layer;
    use scalewright::moe::routing::Routing;
    use scalewright::oracle::{Device, Engine, Request};
    use scalewright::tensor::{Quantized, Tokens};
    use scalewright::transport::all_gather;
    use scalewright::weights::prepared::Prepared;
    use scalewright::weights::synthetic::{self, Shape};

    use super::backends::{House, house};
    use super::formats::{self, Mxfp8};
    use super::layouts::{Linear, Tile48x2};
    use super::{BackendId, oracle};

    fn config() -> QuantConfig<House> {
        House::config(house::Activation::Silu)
    }

    #[test]
    fn selects() {
        let hopper = Request::new(Device::Sm90, Activation::Silu, 96);
        let selection = oracle::mxfp4::select(&hopper).unwrap();
        assert_eq!((selection.contract.name, selection.class), ("house", Some("House")));

        let ada = Request { device: Device::Sm89, ..hopper };
        assert_eq!(oracle::mxfp4::select(&ada).unwrap_err().rejected()[0].reason.code(), "device");
        let native = Request { engine: Engine::Native, ..ada };
        assert_eq!(oracle::mxfp4::select(&native).unwrap().contract.name, "house");
    }

    #[test]
    fn quantises_into_its_own_layout() {
        let values = vec![1.0f32; 50 * 96];
        let tokens = Tokens::new(&values, 50, 96).unwrap();
        let input: Quantized<Mxfp8, Tile48x2> = quantize_input(&config(), tokens).unwrap();
        // 50 x 96 is padded to 128 columns, 4 scales a row, and to 96 rows of scales.
        assert_eq!((input.cols(), input.scales().len()), (128, 96 * 4));
        let physical = Extent { rows: 96, cols: 4 };
        let written = |row, col| input.scales()[Tile48x2::offset(row, col, physical)];
        // rceil: 1 / 448 is above 2^-9, so the scale is 2^-8.
        assert_eq!((written(0, 0), written(49, 2), written(49, 3), written(50, 0)), (119, 119, 0, 0));
    }

    #[test]
    fn runs_a_layer_behind_its_transport() {
        let shape = Shape { experts: 3, hidden: 96, intermediate: 64, top_k: 1 };
        let mut weights = synthetic::weights(shape, 1, &formats::MXFP4).unwrap();
        weights.biases = None;
        let prepared = Prepared::new(&config(), &weights).unwrap();
        let layer = Layer::new(config(), prepared).unwrap();

        let values: Vec<bf16> = synthetic::tokens(shape, 5, 2);
        let (one, two) = values.split_at(3 * 96);
        let quantize = |values: &[bf16]| {
            let tokens = Tokens::new(values, values.len() / 96, 96).unwrap();
            let input: Quantized<Mxfp8, Tile48x2> = quantize_input(&config(), tokens).unwrap();
            input.relayout::<Linear>().unwrap()
        };
        let arrived = all_gather(&[quantize(one), quantize(two)]).unwrap();
        let arrived = arrived.prepared::<House>().unwrap();
        let here: Quantized<Mxfp8, Tile48x2> =
            quantize_input(&config(), Tokens::new(&values, 5, 96).unwrap()).unwrap();
        assert_eq!(arrived.scales(), here.scales());

        let routing = Routing::new(5, 1, 3, vec![0, 1, 2, 1, 0], vec![1.0; 5]).unwrap();
        let output = layer.forward(&arrived, &routing).unwrap();
        assert_eq!(output.len(), 5 * 96);
        assert!(output.iter().any(|value| value.to_f32() != 0.0));
        assert_eq!(output, layer.forward(&here, &routing).unwrap());
    }

    #[test]
    fn is_known_by_name() {
        assert_eq!("house".parse::<BackendId>().unwrap(), BackendId::House);
        let error = "hose".parse::<BackendId>().unwrap_err();
        assert_eq!(error.to_string(), "`hose` is not known (did you mean `house`?); known are house");
    }

    #[backend_test]
    fn every_row_is_handed_tokens<B: Backend>() {
        println!("{:?}", B::CONTRACT);
        assert!(matches!(B::CONTRACT.routes, [Route { delivery: Delivery::Convert { .. }, .. }]));
    }
}
