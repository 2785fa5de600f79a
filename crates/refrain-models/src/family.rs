//! What a family of models is: the record that one file of `families` fills in.

use std::fmt;

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::Value;

use crate::config::ModelConfig;
use crate::config::read::EPS;
use crate::families::FAMILIES;
use crate::tensors::TensorRow;
use crate::transformer::Style;
use crate::{Decoder, Loader};

/// All that is known of a family of models.
pub struct Family {
    /// Its name: `model_type` in the `config.json` of the text decoder.
    pub name: &'static str,
    /// What else `model_type` may be.
    pub also: &'static [&'static str],
    /// Its class in transformers, for `architectures`.
    pub class: &'static str,
    /// Its name in `general.architecture` of GGUF files, if there are any.
    pub gguf: Option<&'static str>,
    /// What the keys of `config.json` (and of GGUF) are to it.
    pub keys: Keys,
    /// What is added to the mean square in norms: the setting that has it.
    pub eps: Key,
    /// Whether heads may be rotated in part.
    pub rotates_part: bool,
    /// Whether a `config.json` of weights quantised by MLX has the text decoder under `text_config`, as that of this
    /// whole model: its class and `model_type`.
    pub whole: Option<[&'static str; 2]>,
    /// Reads its hyperparameters, alike from `config.json` and from GGUF.
    pub read: fn(&Metadata<'_>) -> Result<ModelConfig, Error>,
    /// Its tensors.
    pub tensors: fn(&ModelConfig) -> Vec<TensorRow>,
    /// What only this family's `config.json` has: an object.
    pub config_json: fn(&ModelConfig) -> Value,
    /// Keys of [`Family::config_json`] that earlier versions of transformers, and mlx-lm, look for.
    pub old_keys: &'static [&'static str],
    /// What only this family's GGUF files have, by keys behind the architecture's name.
    pub gguf_metadata: fn(&ModelConfig) -> Vec<(&'static str, MetadataValue)>,
    /// What a model of a GGUF file is in a directory: some families share one name there, or differ in how norms'
    /// weights are stored.
    pub in_directory: fn(&mut ModelConfig),
    /// Brings its weights onto a device.
    pub build: fn(&Loader<'_>) -> Result<Box<dyn Decoder>, crate::Error>,
    /// Sizes of published models, by the names that synthetic checkpoints have.
    pub sizes: &'static [PublishedSize],
    /// A word on it for the list of what is supported.
    pub about: &'static str,
}

/// A published size by its name.
pub type PublishedSize = (&'static str, fn() -> ModelConfig);

/// What a family makes of the keys of its files.
pub struct Keys {
    /// Those of `config.json` that it reads beside what every family does.
    pub followed: &'static [&'static str],
    /// Those that it does not read, though others do.
    pub without_effect: &'static [&'static str],
    /// Those of GGUF that it reads and most families do not.
    pub followed_in_gguf: &'static [&'static str],
}

impl Keys {
    /// Only what every family reads.
    pub const COMMON: Keys = Keys {
        followed: &[],
        without_effect: &[],
        followed_in_gguf: &[],
    };
}

impl Family {
    /// The family that GGUF files with this one's name are of, where several share it: the first of those that are known.
    pub fn in_gguf(&'static self) -> &'static Family {
        let mut known = FAMILIES.iter();
        known.find(|family| family.gguf == self.gguf).copied().unwrap_or(self)
    }

    /// What most dense families have; without a name, and without anything that reads its files.
    pub const DENSE: Family = Family {
        name: "",
        also: &[],
        class: "",
        gguf: None,
        keys: Keys::COMMON,
        eps: EPS,
        rotates_part: false,
        whole: None,
        read: |metadata| Err(metadata.unsupported("nothing reads the files of this family")),
        tensors: |config| Style::USUAL.tensors(config),
        config_json: |_| Value::Null,
        old_keys: &[],
        gguf_metadata: |_| Vec::new(),
        in_directory: |_| (),
        build: |loader| Style::USUAL.build(loader),
        sizes: &[],
        about: "",
    };

    /// Whether a `config.json` with this `model_type` is of the family.
    pub fn is_named(&self, model_type: &str) -> bool {
        self.name == model_type || self.also.contains(&model_type)
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

/// The family of a `model_type`, or of a `general.architecture`.
///
/// # Errors
/// If there is none: with the names that there are.
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
