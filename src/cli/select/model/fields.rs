//! The fields of a configuration, and what is said of one that is missing or not understood.

use std::fmt::Display;
use std::num::NonZeroUsize;

use serde_json::{Map, Value};

/// The fields of a configuration, or of an object in it.
pub(super) struct Fields {
    /// Where the object is, as `quantization_config.`.
    path: String,
    fields: Map<String, Value>,
}

impl Fields {
    /// Reads a configuration. Of one with several parts, the language model's fields go before its own.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut fields: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("is not a JSON object: {error}"))?;
        if let Some(Value::Object(part)) = fields.remove("text_config") {
            fields.extend(part);
        }
        Ok(Self { path: String::new(), fields })
    }

    /// A field that is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// The object `name`, if there is one; `flag` can say instead what it holds.
    pub(super) fn part(&self, name: &str, flag: &str) -> Result<Option<Self>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let fields = value.as_object().ok_or_else(|| self.not_understood(name, value, flag))?.clone();
        Ok(Some(Self { path: format!("{}{name}.", self.path), fields }))
    }

    /// The names of all fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.fields.keys()
    }

    /// A whole number from 1, that `flag` can say instead.
    pub(super) fn size(&self, name: &str, flag: &str) -> Result<NonZeroUsize, String> {
        let size = |value: &Value| value.as_u64().and_then(|size| NonZeroUsize::new(size.try_into().ok()?));
        self.typed(name, size, flag)
    }

    /// A string, that `flag` can say instead.
    pub(super) fn word(&self, name: &str, flag: &str) -> Result<&str, String> {
        self.typed(name, Value::as_str, flag)
    }

    /// True or false, that `flag` can say instead.
    pub(super) fn is_set(&self, name: &str, flag: &str) -> Result<bool, String> {
        self.typed(name, Value::as_bool, flag)
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        read: impl Fn(&'a Value) -> Option<T>,
        flag: &str,
    ) -> Result<T, String> {
        let value = self.get(name).ok_or_else(|| self.missing(name, flag))?;
        read(value).ok_or_else(|| self.not_understood(name, value, flag))
    }

    /// There is no field `name`; `flag` can say it.
    pub(super) fn missing(&self, name: &str, flag: &str) -> String {
        format!("has no field `{}{name}`; say it with {flag}", self.path)
    }

    /// The field `name` holds what nobody here knows; `flag` can say it.
    pub(super) fn not_understood(&self, name: &str, value: impl Display, flag: &str) -> String {
        format!("the field `{}{name}` is {value}, which is not understood; say it with {flag}", self.path)
    }
}
