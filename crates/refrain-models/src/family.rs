//! The record that defines a model family. Each file of `families` fills in one.

use std::fmt;

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::Value;

use crate::config::ModelConfig;
use crate::mtp::MtpNames;
use crate::tensors::TensorRow;
use crate::{Decoder, Loader};

/// Definition of a model family.
pub struct Family {
    /// `model_type` in the `config.json` of the text decoder.
    pub name: &'static str,
    /// Other accepted `model_type` values.
    pub aliases: &'static [&'static str],
    /// Class in transformers, for `architectures`.
    pub class: &'static str,
    /// `general.architecture` in GGUF files; `None` if there are no such files.
    pub gguf: Option<&'static str>,
    /// The configuration keys that the family supports or ignores.
    pub keys: Keys,
    /// The setting with the norms' epsilon.
    pub eps: Key,
    /// Whether heads may be rotated partially.
    pub partial_rotary: bool,
    /// Class and `model_type` of the multimodal model, if MLX's checkpoints keep the text decoder under its
    /// `text_config`.
    pub wrapper: Option<[&'static str; 2]>,
    /// Whether a head in a file that mlx-lm saved counts, although the configuration ties it to the embedding.
    pub mlx_keeps_head: bool,
    /// Reads the hyperparameters from `config.json` or GGUF.
    pub read: fn(&Metadata<'_>) -> Result<ModelConfig, Error>,
    /// Lists the tensors of a model.
    pub tensors: fn(&ModelConfig) -> Vec<TensorRow>,
    /// Returns an object with the family's own keys of `config.json`.
    pub config_json: fn(&ModelConfig) -> Value,
    /// Keys of [`Family::config_json`] that earlier versions of transformers, and mlx-lm, require.
    pub legacy_keys: &'static [&'static str],
    /// Returns the family's own GGUF metadata, by key without the architecture prefix.
    pub gguf_metadata: fn(&ModelConfig) -> Vec<(&'static str, MetadataValue)>,
    /// Converts the configuration of a GGUF file to that of a directory. Families may share a name in GGUF, or store
    /// norms' weights differently.
    pub gguf_to_hf: fn(&mut ModelConfig),
    /// Names of the tensors of a multi-token prediction head.
    pub mtp: MtpNames,
    /// Loads the weights onto a device.
    pub build: fn(&Loader<'_>) -> Result<Box<dyn Decoder>, crate::Error>,
    /// Published models by name, for synthetic checkpoints.
    pub presets: &'static [Preset],
    /// Short description for the list of supported models.
    pub description: &'static str,
}

/// Name and configuration of a published model.
pub type Preset = (&'static str, fn() -> ModelConfig);

/// The configuration keys of a family.
pub struct Keys {
    /// Supported keys of `config.json`, besides those of every family.
    pub supported: &'static [&'static str],
    /// Ignored keys: they have no effect for this family, though others read them.
    pub ignored: &'static [&'static str],
    /// Supported GGUF keys that most families do not support.
    pub supported_in_gguf: &'static [&'static str],
}

impl Keys {
    /// Only the keys that every family supports.
    pub const COMMON: Keys = Keys {
        supported: &[],
        ignored: &[],
        supported_in_gguf: &[],
    };
}

impl Family {
    /// Whether this `model_type` belongs to the family.
    pub fn is_named(&self, model_type: &str) -> bool {
        self.name == model_type || self.aliases.contains(&model_type)
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        self.name == other.name
    }
}

/// Finds the family of a `model_type` or `general.architecture`.
///
/// # Errors
/// If there is none; the error lists the supported names.
pub(crate) fn find(metadata: &Metadata<'_>, families: &[&'static Family]) -> Result<&'static Family, Error> {
    let name = metadata.architecture()?;
    let gguf = metadata.is_gguf();
    let is = |family: &Family| {
        if gguf {
            family.gguf == Some(name)
        } else {
            family.is_named(name)
        }
    };
    if let Some(family) = families.iter().find(|family| is(family)) {
        return Ok(family);
    }
    let mut supported: Vec<&str> = Vec::new();
    for family in families {
        let name = if gguf { family.gguf } else { Some(family.name) };
        supported.extend(name.filter(|name| !supported.contains(name)));
    }
    Err(Error::Architecture {
        file: metadata.file().to_owned(),
        architecture: name.to_owned(),
        supported: supported.join(", "),
    })
}
