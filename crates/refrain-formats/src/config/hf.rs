//! Reading Hugging Face's `config.json`.

mod families;
mod hybrid;
mod keys;
mod quantisation;
mod rope;
mod wrapper;

use serde_json::Value;

pub(crate) use wrapper::text_name;

use super::{Architecture, ModelConfig, token_ids};
use crate::Error;
use crate::files::{JsonObject, json_kind};

/// A `config.json`, and its name for messages.
struct ConfigReader<'a> {
    object: &'a JsonObject,
    file: &'a str,
}

impl ConfigReader<'_> {
    fn error(&self, reason: String) -> Error {
        Error::file(self.file, reason)
    }

    /// Something that a model may have, and that cannot be computed here.
    fn unsupported(&self, reason: String) -> Error {
        Error::Unsupported {
            file: self.file.to_owned(),
            reason,
        }
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn count(&self, key: &str) -> Result<Option<usize>, Error> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(0) | None => Err(self.error(format!("{key} is {value}, not a positive count"))),
            count => Ok(count),
        }
    }

    fn needed(&self, key: &str) -> Result<usize, Error> {
        self.count(key)?.ok_or_else(|| self.error(format!("{key} is missing")))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, Error> {
        number(self.object, key, self.file)
    }

    fn flag(&self, key: &str) -> Result<bool, Error> {
        match self.value(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.error(format!("{key} is {other}, not true or false"))),
        }
    }
}

fn number(object: &JsonObject, key: &str, file: &str) -> Result<Option<f64>, Error> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_f64()
            .map(Some)
            .ok_or_else(|| Error::file(file, format!("{key} is {value}, not a number"))),
    }
}

impl ModelConfig {
    /// Read and check a `config.json`, filling in the defaults of transformers where the file may
    /// be silent. Of a model that also takes images, that is the configuration of the text model, and
    /// the other value is true.
    pub(crate) fn from_json(object: &JsonObject, file: &str) -> Result<(Self, bool), Error> {
        let (object, wrapped) = wrapper::text_config(object);
        let mut config = Self::from_text_json(&object, file)?;
        if let Some(quantisation) = config.quantisation.as_mut().filter(|_| wrapped) {
            let overrides = std::mem::take(&mut quantisation.overrides).into_iter();
            quantisation.overrides = overrides
                .filter_map(|(layer, own)| Some((text_name(&layer)?, own)))
                .collect();
        }
        Ok((config, wrapped))
    }

    fn from_text_json(object: &JsonObject, file: &str) -> Result<Self, Error> {
        let reader = ConfigReader { object, file };
        let architecture = architecture(&reader)?;
        keys::check(&reader, architecture)?;
        let defaults = families::defaults(architecture);
        let hidden_size = reader.needed("hidden_size")?;
        let layers = reader.needed("num_hidden_layers")?;
        let heads = match (reader.count("num_attention_heads")?, defaults.heads) {
            (Some(heads), _) | (None, Some(heads)) => heads,
            (None, None) => reader.needed("num_attention_heads")?,
        };
        let head_dim = head_dim(&reader, &defaults, hidden_size, heads)?;
        let max_position = reader
            .count("max_position_embeddings")?
            .unwrap_or(defaults.max_position);
        let rope = rope::read(&reader, architecture, max_position, &defaults)?;
        let biased = match architecture {
            Architecture::Qwen2 | Architecture::Mistral | Architecture::Phi3 => false,
            _ => reader.flag("attention_bias")?,
        };
        let gemma = architecture == Architecture::Gemma3;
        let mixture = hybrid::mixture(&reader, architecture)?;
        let scored = match gemma {
            true => reader.number("query_pre_attn_scalar")?.unwrap_or(256.0),
            false => head_dim as f64,
        };
        let config = ModelConfig {
            architecture,
            hidden_size,
            intermediate_size: match &mixture {
                Some(mixture) => mixture.intermediate_size,
                None => reader.needed("intermediate_size")?,
            },
            layers,
            heads,
            kv_heads: reader
                .count("num_key_value_heads")?
                .or(defaults.kv_heads)
                .unwrap_or(heads),
            head_dim,
            vocab_size: match (reader.count("vocab_size")?, defaults.vocab_size) {
                (Some(rows), _) | (None, Some(rows)) => rows,
                (None, None) => reader.needed("vocab_size")?,
            },
            rms_norm_eps: reader.number("rms_norm_eps")?.unwrap_or(defaults.rms_norm_eps) as f32,
            rope_theta: rope.theta,
            max_position: rope.max_position,
            rope_scaling: rope.scaling,
            local_rope_theta: families::local_rope_theta(&reader, architecture, rope.theta)?,
            rope_dims: (head_dim as f64 * rope.rotated) as usize,
            tie_word_embeddings: match reader.value("tie_word_embeddings") {
                None => defaults.tie_word_embeddings,
                Some(_) => reader.flag("tie_word_embeddings")?,
            },
            attention_bias: biased || architecture == Architecture::Qwen2,
            attention_output_bias: biased,
            attention_scale: scored.powf(-0.5) as f32,
            mlp_bias: matches!(architecture, Architecture::Llama | Architecture::SmolLm3) && reader.flag("mlp_bias")?,
            activation: families::activation(&reader, architecture)?,
            embedding_scale: if gemma { (hidden_size as f32).sqrt() } else { 1.0 },
            norm_offset: match architecture {
                Architecture::Gemma3 | Architecture::Qwen3_5Moe => 1.0,
                _ => 0.0,
            },
            logit_cap: reader
                .number("final_logit_softcapping")?
                .filter(|_| gemma)
                .map(|cap| cap as f32),
            layer_attention: families::layer_attention(&reader, architecture, layers)?,
            delta_nets: hybrid::delta_nets(&reader, architecture, layers)?,
            mixture,
            bos_ids: token_ids(object, "bos_token_id", file)?,
            eos_ids: token_ids(object, "eos_token_id", file)?,
            quantisation: quantisation::read(&reader)?,
        };
        config.validate(file)?;
        Ok(config)
    }
}

fn architecture(reader: &ConfigReader<'_>) -> Result<Architecture, Error> {
    let name = match reader.value("model_type") {
        Some(Value::String(name)) => name.as_str(),
        Some(other) => {
            return Err(reader.error(format!(
                "model_type is a {}, not the name of an architecture",
                json_kind(other)
            )));
        }
        None => return Err(reader.error("model_type is missing".to_owned())),
    };
    Architecture::by_name(name, reader.file)
}

/// `head_dim`, or what transformers takes where it is missing.
fn head_dim(
    reader: &ConfigReader<'_>,
    defaults: &families::FamilyDefaults,
    hidden_size: usize,
    heads: usize,
) -> Result<usize, Error> {
    if let Some(head_dim) = reader.count("head_dim")? {
        return Ok(head_dim);
    }
    if let Some(head_dim) = defaults.head_dim
        && !reader.object.contains_key("head_dim")
    {
        return Ok(head_dim);
    }
    if !hidden_size.is_multiple_of(heads) {
        return Err(reader.error(format!(
            "hidden_size ({hidden_size}) is not a multiple of num_attention_heads ({heads}), and \
             there is no head_dim"
        )));
    }
    Ok(hidden_size / heads)
}
