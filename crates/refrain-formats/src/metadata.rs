//! Configuration values of a checkpoint, from `config.json` or GGUF metadata.

use std::borrow::Cow;

use serde_json::Value;

use crate::config::{Quantisation, quantisation, token_ids};
use crate::files::{JsonObject, json_kind};
use crate::gguf::{Gguf, GgufKeys, GgufValue};
use crate::{Encoding, Error};

/// The keys of one setting in each file format; empty if a format does not have the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Key in `config.json`.
    pub json: &'static str,
    /// Key in GGUF, without the architecture prefix.
    pub gguf: &'static str,
}

impl Key {
    /// A setting of both formats.
    pub const fn new(json: &'static str, gguf: &'static str) -> Key {
        Key { json, gguf }
    }

    /// A setting of `config.json` only.
    pub const fn json(json: &'static str) -> Key {
        Key { json, gguf: "" }
    }

    /// A setting of GGUF only.
    pub const fn gguf(gguf: &'static str) -> Key {
        Key { json: "", gguf }
    }
}

/// The configuration of a model: the object of a `config.json`, or GGUF metadata. Each getter takes a [`Key`]. It
/// returns `None` if the setting is missing or null, and an error that names file and key if the value is invalid.
#[derive(Debug, Clone)]
pub struct Metadata<'a>(MetadataSource<'a>);

#[derive(Debug, Clone)]
enum MetadataSource<'a> {
    Json {
        object: Cow<'a, JsonObject>,
        file: Cow<'a, str>,
    },
    Gguf {
        gguf: &'a Gguf,
        /// Bytes of the file that holds the metadata.
        bytes: &'a [u8],
    },
}

/// Key of the architecture's name in GGUF.
const ARCHITECTURE: &str = "general.architecture";

impl<'a> Metadata<'a> {
    /// Reads an object of `config.json`; `file` is its name for messages.
    pub fn from_json(object: &'a JsonObject, file: &'a str) -> Metadata<'a> {
        Metadata(MetadataSource::Json {
            object: Cow::Borrowed(object),
            file: Cow::Borrowed(file),
        })
    }

    /// Returns the same file with another object.
    pub fn with_object(&self, object: JsonObject) -> Metadata<'a> {
        Metadata(MetadataSource::Json {
            object: Cow::Owned(object),
            file: Cow::Owned(self.file().to_owned()),
        })
    }

    pub(crate) fn from_gguf(gguf: &'a Gguf, bytes: &'a [u8]) -> Metadata<'a> {
        Metadata(MetadataSource::Gguf { gguf, bytes })
    }

    /// Whether this is GGUF metadata.
    pub fn is_gguf(&self) -> bool {
        matches!(self.0, MetadataSource::Gguf { .. })
    }

    /// The object of `config.json`; `None` for GGUF.
    pub fn object(&self) -> Option<&JsonObject> {
        match &self.0 {
            MetadataSource::Json { object, .. } => Some(object),
            MetadataSource::Gguf { .. } => None,
        }
    }

    /// Name of the file for messages.
    pub fn file(&self) -> &str {
        match &self.0 {
            MetadataSource::Json { file, .. } => file,
            MetadataSource::Gguf { gguf, .. } => gguf.file(),
        }
    }

    /// Returns an error about the file.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::file(self.file(), reason)
    }

    /// Returns an error about a model feature that is not supported.
    pub fn unsupported(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            file: self.file().to_owned(),
            reason: reason.into(),
        }
    }

    /// Name of the model's architecture: `model_type`, or `general.architecture`.
    ///
    /// # Errors
    /// If it is missing.
    pub fn architecture(&self) -> Result<&str, Error> {
        match &self.0 {
            MetadataSource::Json { object, .. } => match object.get("model_type") {
                Some(Value::String(name)) => Ok(name),
                None | Some(Value::Null) => Err(self.error("model_type is missing")),
                Some(other) => Err(self.error(format!(
                    "model_type is a {}, not the name of an architecture",
                    json_kind(other)
                ))),
            },
            MetadataSource::Gguf { gguf, .. } => match gguf.metadata.string(ARCHITECTURE)? {
                Some(name) => Ok(name),
                None => Err(self.error(format!("metadata {ARCHITECTURE} is missing"))),
            },
        }
    }

    /// Name of a setting for messages.
    pub fn name(&self, key: Key) -> String {
        match &self.0 {
            MetadataSource::Json { .. } => key.json.to_owned(),
            MetadataSource::Gguf { .. } => format!("metadata {}", self.gguf_key(key)),
        }
    }

    fn gguf_key(&self, key: Key) -> String {
        let architecture = self.architecture().unwrap_or_default();
        format!("{architecture}.{}", key.gguf)
    }

    /// The GGUF file and the full key, if these are GGUF metadata and have such a setting.
    fn gguf_entry(&self, key: Key) -> Option<(&'a Gguf, String)> {
        match &self.0 {
            MetadataSource::Gguf { gguf, .. } if !key.gguf.is_empty() => Some((gguf, self.gguf_key(key))),
            _ => None,
        }
    }

    /// A value of `config.json`; `None` if missing or null.
    pub fn json(&self, key: &str) -> Option<&Value> {
        let object = self.object().filter(|_| !key.is_empty())?;
        object.get(key).filter(|value| !value.is_null())
    }

    /// Whether the setting is present, also as null.
    pub fn contains_key(&self, key: Key) -> bool {
        match self.object() {
            Some(object) => object.contains_key(key.json),
            None => self
                .gguf_entry(key)
                .is_some_and(|(gguf, key)| gguf.metadata.values.contains_key(&key)),
        }
    }

    /// Reads a positive integer.
    ///
    /// # Errors
    /// If the value is not a positive integer.
    pub fn count(&self, key: Key) -> Result<Option<usize>, Error> {
        if let Some((gguf, key)) = self.gguf_entry(key) {
            return gguf.metadata.count(&key);
        }
        let Some(value) = self.json(key.json) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(0) | None => Err(self.error(format!("{} is {value}, not a positive count", key.json))),
            count => Ok(count),
        }
    }

    /// Reads a required positive integer.
    ///
    /// # Errors
    /// If it is missing or invalid.
    pub fn required(&self, key: Key) -> Result<usize, Error> {
        self.count(key)?.ok_or_else(|| self.missing(key))
    }

    /// Returns an error about a missing setting.
    pub fn missing(&self, key: Key) -> Error {
        self.error(format!("{} is missing", self.name(key)))
    }

    /// Reads a count that GGUF gives once or per layer; all layers must agree.
    ///
    /// # Errors
    /// If it is invalid, or layers differ.
    pub fn uniform_count(&self, key: Key) -> Result<Option<usize>, Error> {
        if !self.is_list(key) {
            return self.count(key);
        }
        let counts = self.numbers(key)?.unwrap_or_default();
        match counts.first() {
            Some(&first) if first >= 1.0 && counts.iter().all(|&count| count == first) => Ok(Some(first as usize)),
            _ => Err(self.unsupported(format!(
                "{} differs between layers, which is not supported",
                self.name(key)
            ))),
        }
    }

    /// Reads a number.
    ///
    /// # Errors
    /// If the value is not a number.
    pub fn number(&self, key: Key) -> Result<Option<f64>, Error> {
        if let Some((gguf, key)) = self.gguf_entry(key) {
            return gguf.metadata.number(&key);
        }
        match self.json(key.json) {
            None => Ok(None),
            Some(value) => value
                .as_f64()
                .map(Some)
                .ok_or_else(|| self.error(format!("{} is {value}, not a number", key.json))),
        }
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// If the value is not a boolean.
    pub fn flag(&self, key: Key) -> Result<Option<bool>, Error> {
        if let Some((gguf, key)) = self.gguf_entry(key) {
            return gguf.metadata.flag(&key);
        }
        match self.json(key.json) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.error(format!("{} is {other}, not true or false", key.json))),
        }
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If the value is not a string.
    pub fn text(&self, key: Key) -> Result<Option<&str>, Error> {
        if let Some((gguf, key)) = self.gguf_entry(key) {
            return gguf.metadata.string(&key);
        }
        match self.json(key.json) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(format!("{} is {other}, not a name", key.json))),
        }
    }

    /// Whether the setting is a list.
    pub fn is_list(&self, key: Key) -> bool {
        match self.gguf_entry(key) {
            Some((gguf, key)) => matches!(gguf.metadata.values.get(&key), Some(GgufValue::Array { .. })),
            None => matches!(self.json(key.json), Some(Value::Array(_))),
        }
    }

    /// Reads a list of numbers; booleans count as 0 and 1.
    ///
    /// # Errors
    /// If the value is not such a list.
    pub fn numbers(&self, key: Key) -> Result<Option<Vec<f64>>, Error> {
        if let (Some((gguf, key)), MetadataSource::Gguf { bytes, .. }) = (self.gguf_entry(key), &self.0) {
            return gguf.metadata.numbers(&key, bytes);
        }
        let Some(value) = self.json(key.json) else {
            return Ok(None);
        };
        let list = value
            .as_array()
            .ok_or_else(|| self.error(format!("{} is not a list", key.json)))?;
        let number = |value: &Value| match value {
            Value::Bool(flag) => Ok(f64::from(u8::from(*flag))),
            _ => value
                .as_f64()
                .ok_or_else(|| self.error(format!("{} holds {value}, not a number", key.json))),
        };
        list.iter().map(number).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a list of `config.json` with an entry for each of `layers` layers.
    ///
    /// # Errors
    /// If the value is not a list, or too short.
    pub fn per_layer(&self, key: &str, layers: usize) -> Result<Option<&[Value]>, Error> {
        match self.json(key) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() >= layers => Ok(Some(list)),
            Some(Value::Array(list)) => Err(self.error(format!("{key} lists {} layers of {layers}", list.len()))),
            Some(_) => Err(self.error(format!("{key} is not a list"))),
        }
    }

    /// The beginning-of-sequence tokens.
    ///
    /// # Errors
    /// If the values are not token ids.
    pub fn bos_ids(&self) -> Result<Vec<u32>, Error> {
        match &self.0 {
            MetadataSource::Json { object, file } => token_ids(object, "bos_token_id", file),
            MetadataSource::Gguf { gguf, .. } => {
                Ok(gguf.metadata.id("tokenizer.ggml.bos_token_id")?.into_iter().collect())
            }
        }
    }

    /// The end-of-sequence tokens.
    ///
    /// # Errors
    /// If the values are not token ids.
    pub fn eos_ids(&self) -> Result<Vec<u32>, Error> {
        match &self.0 {
            MetadataSource::Json { object, file } => token_ids(object, "eos_token_id", file),
            MetadataSource::Gguf { gguf, bytes } => GgufKeys::new(gguf, bytes).eos_ids(),
        }
    }

    /// MLX's quantisation; `None` if there is none.
    ///
    /// # Errors
    /// If the quantisation is not supported.
    pub fn quantisation(&self) -> Result<Option<Quantisation>, Error> {
        match &self.0 {
            MetadataSource::Json { .. } => quantisation(self),
            MetadataSource::Gguf { .. } => Ok(None),
        }
    }

    /// Shape of a tensor of a GGUF file, by its name in the file, outermost axis first.
    pub fn tensor_shape(&self, name: &str) -> Option<&[usize]> {
        let MetadataSource::Gguf { gguf, .. } = &self.0 else {
            return None;
        };
        let entry = gguf.tensors.iter().find(|entry| entry.name == name)?;
        Some(&entry.shape)
    }

    /// Reads a tensor of a GGUF file that belongs to the configuration, such as rotary frequency factors.
    ///
    /// # Errors
    /// If it is not F32, or not in the same file as the metadata.
    pub fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, Error> {
        let MetadataSource::Gguf { gguf, bytes } = &self.0 else {
            return Ok(None);
        };
        let Some(entry) = gguf.tensors.iter().find(|entry| entry.name == name) else {
            return Ok(None);
        };
        if entry.encoding != Encoding::F32 {
            let reason = format!("is stored as {}, not F32", entry.encoding);
            return Err(Error::tensor(self.file(), name, reason));
        }
        // Converters write these tensors before the weights, so they are in the first part of a split model.
        let Some(own) = bytes.get(entry.range.clone()).filter(|_| entry.file == 0) else {
            let reason = "is not in the first part of the model, which is not supported";
            return Err(Error::tensor(self.file(), name, reason));
        };
        let (values, _) = own.as_chunks::<4>();
        let values = values.iter().map(|value| f32::from_le_bytes(*value));
        Ok(Some(values.collect()))
    }
}
