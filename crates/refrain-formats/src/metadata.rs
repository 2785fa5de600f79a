//! The keys and values of a checkpoint, whichever kind of file has them.

use std::borrow::Cow;

use serde_json::Value;

use crate::config::{Quantisation, quantisation, token_ids};
use crate::files::{JsonObject, json_kind};
use crate::gguf::{Gguf, GgufKeys, GgufValue};
use crate::{Encoding, Error};

/// What one setting is called in each kind of file; empty where that kind has no word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// In `config.json`.
    pub json: &'static str,
    /// In GGUF, behind the architecture's name and a dot.
    pub gguf: &'static str,
}

impl Key {
    /// A setting that both have.
    pub const fn new(json: &'static str, gguf: &'static str) -> Key {
        Key { json, gguf }
    }

    /// A setting of `config.json` alone.
    pub const fn json(json: &'static str) -> Key {
        Key { json, gguf: "" }
    }

    /// A setting of GGUF alone.
    pub const fn gguf(gguf: &'static str) -> Key {
        Key { json: "", gguf }
    }
}

/// The settings of a model: the object of a `config.json`, or GGUF's keys and values. Each getter takes a setting's
/// names in both, gives `None` where the file is silent (`null` is silence), and an error that names file and key where
/// it says what cannot be.
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
        /// Those of the file that has the metadata.
        bytes: &'a [u8],
    },
}

/// Where the names of GGUF's own settings are looked up.
const ARCHITECTURE: &str = "general.architecture";

impl<'a> Metadata<'a> {
    /// Those of an object of `config.json`; `file` is its name in messages.
    pub fn of_json(object: &'a JsonObject, file: &'a str) -> Metadata<'a> {
        Metadata(MetadataSource::Json {
            object: Cow::Borrowed(object),
            file: Cow::Borrowed(file),
        })
    }

    /// The same file's, with another object.
    pub fn with_object(&self, object: JsonObject) -> Metadata<'a> {
        Metadata(MetadataSource::Json {
            object: Cow::Owned(object),
            file: Cow::Owned(self.file().to_owned()),
        })
    }

    pub(crate) fn of_gguf(gguf: &'a Gguf, bytes: &'a [u8]) -> Metadata<'a> {
        Metadata(MetadataSource::Gguf { gguf, bytes })
    }

    /// Whether these are GGUF's.
    pub fn is_gguf(&self) -> bool {
        matches!(self.0, MetadataSource::Gguf { .. })
    }

    /// The object of `config.json`, if it is one.
    pub fn object(&self) -> Option<&JsonObject> {
        match &self.0 {
            MetadataSource::Json { object, .. } => Some(object),
            MetadataSource::Gguf { .. } => None,
        }
    }

    /// The file's name in messages.
    pub fn file(&self) -> &str {
        match &self.0 {
            MetadataSource::Json { file, .. } => file,
            MetadataSource::Gguf { gguf, .. } => gguf.file(),
        }
    }

    /// That the file is wrong.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::file(self.file(), reason)
    }

    /// That the file asks for something that a model may have, and that cannot be computed here.
    pub fn unsupported(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            file: self.file().to_owned(),
            reason: reason.into(),
        }
    }

    /// What the file calls the model's architecture: `model_type`, or `general.architecture`.
    ///
    /// # Errors
    /// If it does not say.
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

    /// A setting's name in messages.
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

    /// GGUF's metadata and the name there, where it has one.
    fn own(&self, key: Key) -> Option<(&'a Gguf, String)> {
        match &self.0 {
            MetadataSource::Gguf { gguf, .. } if !key.gguf.is_empty() => Some((gguf, self.gguf_key(key))),
            _ => None,
        }
    }

    /// What `config.json` says under a name; null is silence.
    pub fn json(&self, key: &str) -> Option<&Value> {
        let object = self.object().filter(|_| !key.is_empty())?;
        object.get(key).filter(|value| !value.is_null())
    }

    /// Whether `config.json` speaks of a setting at all, if only to say null.
    pub fn mentions(&self, key: Key) -> bool {
        match self.object() {
            Some(object) => object.contains_key(key.json),
            None => self
                .own(key)
                .is_some_and(|(gguf, key)| gguf.metadata.values.contains_key(&key)),
        }
    }

    /// A count, positive.
    ///
    /// # Errors
    /// If it is none.
    pub fn count(&self, key: Key) -> Result<Option<usize>, Error> {
        if let Some((gguf, key)) = self.own(key) {
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

    /// A count that must be there.
    ///
    /// # Errors
    /// If it is not, or is none.
    pub fn needed(&self, key: Key) -> Result<usize, Error> {
        self.count(key)?.ok_or_else(|| self.missing(key))
    }

    /// That a setting must be there.
    pub fn missing(&self, key: Key) -> Error {
        self.error(format!("{} is missing", self.name(key)))
    }

    /// A count that GGUF may give once or for each layer, where all layers must agree.
    ///
    /// # Errors
    /// If it is none, or layers differ.
    pub fn count_of_layers(&self, key: Key) -> Result<Option<usize>, Error> {
        if !self.is_list(key) {
            return self.count(key);
        }
        let counts = self.numbers(key)?.unwrap_or_default();
        match counts.first() {
            Some(&first) if first >= 1.0 && counts.iter().all(|&count| count == first) => Ok(Some(first as usize)),
            _ => Err(self.unsupported(format!(
                "{} differs from layer to layer, which is not supported",
                self.name(key)
            ))),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// If it is none.
    pub fn number(&self, key: Key) -> Result<Option<f64>, Error> {
        if let Some((gguf, key)) = self.own(key) {
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

    /// True or false.
    ///
    /// # Errors
    /// If it is neither.
    pub fn flag(&self, key: Key) -> Result<Option<bool>, Error> {
        if let Some((gguf, key)) = self.own(key) {
            return gguf.metadata.flag(&key);
        }
        match self.json(key.json) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.error(format!("{} is {other}, not true or false", key.json))),
        }
    }

    /// A word.
    ///
    /// # Errors
    /// If it is none.
    pub fn text(&self, key: Key) -> Result<Option<&str>, Error> {
        if let Some((gguf, key)) = self.own(key) {
            return gguf.metadata.string(&key);
        }
        match self.json(key.json) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(format!("{} is {other}, not a name", key.json))),
        }
    }

    /// Whether a setting of GGUF is a list.
    pub fn is_list(&self, key: Key) -> bool {
        match self.own(key) {
            Some((gguf, key)) => matches!(gguf.metadata.values.get(&key), Some(GgufValue::Array { .. })),
            None => matches!(self.json(key.json), Some(Value::Array(_))),
        }
    }

    /// A list of numbers (or flags, as 0 and 1).
    ///
    /// # Errors
    /// If it is none.
    pub fn numbers(&self, key: Key) -> Result<Option<Vec<f64>>, Error> {
        if let (Some((gguf, key)), MetadataSource::Gguf { bytes, .. }) = (self.own(key), &self.0) {
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

    /// A list of `config.json` with something for each of `layers` layers.
    ///
    /// # Errors
    /// If it is no list, or too short.
    pub fn for_layers(&self, key: &str, layers: usize) -> Result<Option<&[Value]>, Error> {
        match self.json(key) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() >= layers => Ok(Some(list)),
            Some(Value::Array(list)) => Err(self.error(format!("{key} lists {} layers of {layers}", list.len()))),
            Some(_) => Err(self.error(format!("{key} is not a list"))),
        }
    }

    /// Tokens that begin a text.
    ///
    /// # Errors
    /// If what is there are no token ids.
    pub fn bos_ids(&self) -> Result<Vec<u32>, Error> {
        match &self.0 {
            MetadataSource::Json { object, file } => token_ids(object, "bos_token_id", file),
            MetadataSource::Gguf { gguf, .. } => {
                Ok(gguf.metadata.id("tokenizer.ggml.bos_token_id")?.into_iter().collect())
            }
        }
    }

    /// Tokens that end a text.
    ///
    /// # Errors
    /// If what is there are no token ids.
    pub fn eos_ids(&self) -> Result<Vec<u32>, Error> {
        match &self.0 {
            MetadataSource::Json { object, file } => token_ids(object, "eos_token_id", file),
            MetadataSource::Gguf { gguf, bytes } => GgufKeys::new(gguf, bytes).eos_ids(),
        }
    }

    /// How MLX quantised the weights, if it did.
    ///
    /// # Errors
    /// If they were quantised in a way that is not supported.
    pub fn quantisation(&self) -> Result<Option<Quantisation>, Error> {
        match &self.0 {
            MetadataSource::Json { .. } => quantisation(self),
            MetadataSource::Gguf { .. } => Ok(None),
        }
    }

    /// The shape of a tensor of a GGUF file, by its name there, outermost axis first.
    pub fn tensor_shape(&self, name: &str) -> Option<&[usize]> {
        let MetadataSource::Gguf { gguf, .. } = &self.0 else {
            return None;
        };
        let entry = gguf.tensors.iter().find(|entry| entry.name == name)?;
        Some(&entry.shape)
    }

    /// The values of a tensor of a GGUF file that belongs to the settings, such as divisors of frequencies.
    ///
    /// # Errors
    /// If it is not stored as F32, or not beside the metadata.
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
        // Converters write them before the weights, so that they lie in the first part of a split model.
        let Some(own) = bytes.get(entry.range.clone()).filter(|_| entry.file == 0) else {
            let reason = "lies in another part of the model than the first, which is not supported";
            return Err(Error::tensor(self.file(), name, reason));
        };
        let (values, _) = own.as_chunks::<4>();
        let values = values.iter().map(|value| f32::from_le_bytes(*value));
        Ok(Some(values.collect()))
    }
}
