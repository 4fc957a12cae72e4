use std::collections::BTreeMap;

use super::*;

static MXFP4: FormatSpec = FormatSpec::blocks("mxfp4", ElementType::E2m1, ScaleType::E8m0, 1, 32);

type File = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Two experts, hidden 64, intermediate 32; each byte of a row of blocks is the row's number.
fn layer(prefix: &str) -> File {
    let rows = |rows: usize, bytes: usize| -> Vec<u8> {
        (0..2 * rows).flat_map(|row| vec![row as u8; bytes]).collect()
    };
    let bias = |rows: usize| -> Vec<u8> {
        (0..2 * rows).flat_map(|row| bf16::from_f32(row as f32).to_le_bytes()).collect()
    };
    [
        ("gate_up_proj_blocks", Dtype::U8, vec![2, 64, 2, 16], rows(64, 32)),
        ("gate_up_proj_scales", Dtype::U8, vec![2, 64, 2], rows(64, 2)),
        ("gate_up_proj_bias", Dtype::BF16, vec![2, 64], bias(64)),
        ("down_proj_blocks", Dtype::U8, vec![2, 64, 1, 16], rows(64, 16)),
        ("down_proj_scales", Dtype::U8, vec![2, 64, 1], rows(64, 1)),
        ("down_proj_bias", Dtype::BF16, vec![2, 64], bias(64)),
    ]
    .into_iter()
    .map(|(name, dtype, shape, data)| (format!("{prefix}mlp.experts.{name}"), (dtype, shape, data)))
    .collect()
}

fn load_file(file: &File, layer: Option<usize>) -> Result<Checkpoint, LoadError> {
    let views = file.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("data of the shape"))
    });
    load_bytes(&safetensors::serialize(views, None).expect("a serialisable file"), layer)
}

fn load_bytes(bytes: &[u8], layer: Option<usize>) -> Result<Checkpoint, LoadError> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("a writable file");
    load(file.path(), &MXFP4, layer)
}

#[test]
fn rows_are_taken_apart() {
    let loaded = load_file(&layer("model.layers.3."), None).unwrap();
    let weights = loaded.weights;
    assert_eq!((weights.experts, weights.hidden, weights.intermediate), (2, 64, 32));
    // Row 1 of expert 1: rows 64 + 2 and 64 + 3 of the file.
    assert_eq!(weights.gate.as_ref().unwrap().payload[(32 + 1) * 32], 66);
    assert_eq!(weights.up.payload[(32 + 1) * 32], 67);
    assert_eq!(weights.up.scales[(32 + 1) * 2], 67);
    let biases = weights.biases.unwrap();
    assert_eq!((biases.gate[33], biases.up[33], biases.down[65]), (66.0, 67.0, 65.0));
    assert!(loaded.router.is_none() && loaded.activations.is_none());
}

#[test]
fn layers_are_found_by_number() {
    let mut file = layer("model.layers.10.");
    file.extend(layer("model.layers.9."));
    file.get_mut("model.layers.9.mlp.experts.down_proj_bias").unwrap().2[0] = 0x80;
    let first = |layer| load_file(&file, layer).map(|loaded| loaded.weights.biases.unwrap().down[0]);
    assert_ne!(first(None).unwrap(), 0.0);
    assert_eq!(first(Some(10)).unwrap(), 0.0);
    let error = first(Some(3)).unwrap_err().to_string();
    assert!(error.contains("no layer 3; it holds layers 9, 10"), "{error}");
}

#[test]
fn what_is_malformed_is_named() {
    let name = "mlp.experts.down_proj_scales";
    let broken = |change: &dyn Fn(&mut File)| {
        let mut file = layer("");
        change(&mut file);
        load_file(&file, None).unwrap_err()
    };
    let missing = broken(&|file| drop(file.remove(name)));
    assert!(matches!(missing, LoadError::Missing { tensor, .. } if tensor == name));
    let ty = broken(&|file| file.get_mut(name).unwrap().0 = Dtype::I8);
    assert!(matches!(ty, LoadError::Type { tensor, got: Dtype::I8, .. } if tensor == name));
    let shape = broken(&|file| file.get_mut(name).unwrap().1 = vec![64, 2, 1]);
    assert!(matches!(shape, LoadError::Shape { tensor, .. } if tensor == name));
    let empty = broken(&|file| {
        file.insert("mlp.experts.gate_up_proj_blocks".into(), (Dtype::U8, vec![2, 0, 2, 16], Vec::new()));
    });
    assert!(matches!(empty, LoadError::Shape { .. }));
    let none = broken(&|file| file.retain(|name, _| !name.contains("blocks")));
    assert!(matches!(none, LoadError::NoExperts { .. }));
}

#[test]
fn what_is_no_safetensors_file_is_refused() {
    for bytes in [&b""[..], b"not safetensors", &[0xFF; 64]] {
        assert!(matches!(load_bytes(bytes, None), Err(LoadError::NotSafetensors { .. })));
    }
    let nowhere = load(Path::new("no/such/file"), &MXFP4, None);
    assert!(matches!(nowhere, Err(LoadError::Open { .. })));
}

#[test]
fn other_formats_are_refused() {
    static MXFP8: FormatSpec = FormatSpec { name: "mxfp8", element: ElementType::E4m3, ..MXFP4 };
    let error = load(Path::new("no/such/file"), &MXFP8, None).unwrap_err();
    assert!(matches!(error, LoadError::Format(WrongFormat("mxfp8"))));
}
