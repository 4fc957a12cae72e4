//! What a layer's file does not hold: parameters of the model, which stand beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::{Trouble, question};

/// `swiglu_limit` of the layer in `weights`: from the `config.json` of a Hugging Face checkpoint, in the
/// same folder, or from the `manifest.json` that describes a golden file, one folder up. `None` if
/// neither speaks of it.
pub(super) fn swiglu_limit(weights: &Path) -> Result<Option<f32>, Trouble> {
    let folder = weights.parent().unwrap_or(Path::new(""));
    let config = folder.join("config.json");
    if let Some(Value::Object(entries)) = read(config.clone())?
        && let Some(limit) = entries.get("swiglu_limit").filter(|limit| !limit.is_null())
    {
        let number = limit.as_f64().map(|limit| limit as f32).filter(|limit| *limit > 0.0);
        let not_one =
            || question(format!("{}: swiglu_limit is {limit}, not a number above 0", config.display()));
        return number.map(Some).ok_or_else(not_one);
    }
    // Other people's manifests are of other forms, or not JSON at all.
    let Ok(Some(manifest)) = read(folder.join("../manifest.json")) else { return Ok(None) };
    let name = weights.file_name().and_then(|name| name.to_str());
    let is_layer = |entry: &&Value| entry["file"].as_str().and_then(|file| file.rsplit('/').next()) == name;
    let entry = manifest["files"].as_array().and_then(|files| files.iter().find(is_layer));
    Ok(entry.and_then(|entry| entry["params"]["swiglu_limit"].as_f64()).map(|limit| limit as f32))
}

fn read(path: PathBuf) -> Result<Option<Value>, Trouble> {
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(question(format!("cannot read {}: {error}", path.display()))),
    };
    // Python writes numbers that JSON does not have; none of them is one that is looked for here.
    let text = text.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null");
    let value = serde_json::from_str(&text);
    value.map(Some).map_err(|error| question(format!("{} is not JSON: {error}", path.display())))
}
