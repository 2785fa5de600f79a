//! The rotary embedding's settings in `config.json`.

use serde_json::Value;

use super::families::Defaults;
use super::{Reader, number};
use crate::Error;
use crate::config::{Architecture, RopeScaling};
use crate::files::{JsonObject, json_kind};

/// How positions are encoded.
pub(super) struct Rope {
    pub theta: f64,
    pub scaling: RopeScaling,
    /// The part of each head that is rotated.
    pub rotated: f64,
    /// Longest context, in tokens, scaling included.
    pub max_position: usize,
}

const ORIGINAL: &str = "original_max_position_embeddings";

/// Read `rope_parameters` as transformers 5 writes them, or `rope_theta` and `rope_scaling` as earlier
/// versions did. `defaults` are taken where there is no theta or no part to rotate; `max_position` is what the file says.
pub(super) fn read(
    reader: &Reader<'_>,
    architecture: Architecture,
    max_position: usize,
    defaults: &Defaults,
) -> Result<Rope, Error> {
    let empty = JsonObject::new();
    let parameters = parameters(reader)?.unwrap_or(&empty);
    let own = |key: &str, otherwise: f64| match number(parameters, key, reader.file)? {
        Some(value) => Ok(value),
        None => Ok(reader.number(key)?.unwrap_or(otherwise)),
    };
    let scaling = Scaling {
        reader,
        parameters,
        max_position: max_position as f64,
        original: match (reader.number(ORIGINAL)?, number(parameters, ORIGINAL, reader.file)?) {
            (Some(original), _) => original,
            (None, _) if architecture == Architecture::Phi3 => 4096.0,
            (None, Some(original)) => original,
            (None, None) => max_position as f64,
        },
    }
    .read(architecture)?;
    Ok(Rope {
        theta: own("rope_theta", defaults.rope_theta)?,
        rotated: own("partial_rotary_factor", defaults.rotated)?,
        max_position: match &scaling {
            RopeScaling::Yarn {
                factor,
                original_max_position,
                ..
            } => max_position.max((factor * original_max_position) as usize),
            RopeScaling::Dynamic { factor, .. } => max_position.max((factor * max_position as f64) as usize),
            _ => max_position,
        },
        scaling,
    })
}

/// The object that holds the settings, of layers without a window where others have their own.
fn parameters<'a>(reader: &Reader<'a>) -> Result<Option<&'a JsonObject>, Error> {
    for key in ["rope_scaling", "rope_parameters"] {
        match reader.object.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Object(object)) if object.is_empty() => {}
            Some(Value::Object(object)) => {
                return Ok(Some(match object.get("full_attention") {
                    Some(Value::Object(own)) => own,
                    _ => object,
                }));
            }
            Some(other) => {
                return Err(reader.error(format!("{key} is a {}, not an object", json_kind(other))));
            }
        }
    }
    Ok(None)
}

/// What the settings say of longer contexts.
struct Scaling<'a> {
    reader: &'a Reader<'a>,
    parameters: &'a JsonObject,
    max_position: f64,
    /// Context length of the pretraining.
    original: f64,
}

impl Scaling<'_> {
    fn read(&self, architecture: Architecture) -> Result<RopeScaling, Error> {
        let kind = ["rope_type", "type"]
            .into_iter()
            .find_map(|key| self.parameters.get(key).filter(|value| !value.is_null()));
        let kind = match kind {
            None => return Ok(RopeScaling::None),
            Some(Value::String(kind)) => kind.as_str(),
            Some(other) => return Err(self.reader.error(format!("rope_type is {other}, not a name"))),
        };
        match kind {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear {
                factor: self.needed("factor")?,
            }),
            "dynamic" => Ok(RopeScaling::Dynamic {
                factor: self.needed("factor")?,
                original_max_position: self.max_position as usize,
            }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: self.needed("factor")?,
                low_freq_factor: self.needed("low_freq_factor")?,
                high_freq_factor: self.needed("high_freq_factor")?,
                original_max_position: self.original,
            }),
            // Early files of Phi-3 call its scaling so.
            "su" | "yarn" if architecture == Architecture::Phi3 => self.longrope(),
            "longrope" => self.longrope(),
            "yarn" => self.yarn(),
            other => Err(self.reader.error(format!(
                "rope scaling {other:?} is not supported (supported: default, linear, dynamic, llama3, yarn, longrope)"
            ))),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, Error> {
        number(self.parameters, key, self.reader.file)
    }

    fn needed(&self, key: &str) -> Result<f64, Error> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> Error {
        self.reader.error(format!("{key} is missing from the rope scaling"))
    }

    fn factors(&self, key: &str) -> Result<Vec<f32>, Error> {
        let list = match self.parameters.get(key) {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) => return Err(self.missing(key)),
            Some(other) => {
                return Err(self
                    .reader
                    .error(format!("{key} is a {}, not a list", json_kind(other))));
            }
        };
        let factors = list.iter().map(|factor| match factor.as_f64() {
            Some(factor) => Ok(factor as f32),
            None => Err(self.reader.error(format!("{key} holds {factor}, not a number"))),
        });
        factors.collect()
    }

    /// How much longer contexts are than the original ones.
    fn factor(&self) -> Result<f64, Error> {
        Ok(self.number("factor")?.unwrap_or(self.max_position / self.original))
    }

    fn yarn(&self) -> Result<RopeScaling, Error> {
        let factor = self.factor()?;
        let set = |key: &str| Ok::<_, Error>(self.number(key)?.filter(|&value| value != 0.0));
        // The paper's 0.1 ln(s) + 1.
        let by_factor = |weight: f64| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * weight * factor.ln() + 1.0
            }
        };
        let attention_factor = match (self.number("attention_factor")?, set("mscale")?, set("mscale_all_dim")?) {
            (Some(given), _, _) => given,
            (None, Some(own), Some(all)) => by_factor(own) / by_factor(all),
            _ => by_factor(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            original_max_position: self.original,
            beta_fast: set("beta_fast")?.unwrap_or(32.0),
            beta_slow: set("beta_slow")?.unwrap_or(1.0),
            truncate: self.parameters.get("truncate") != Some(&Value::Bool(false)),
            attention_factor,
        })
    }

    fn longrope(&self) -> Result<RopeScaling, Error> {
        let factor = self.factor()?;
        Ok(RopeScaling::LongRope {
            short: self.factors("short_factor")?,
            long: self.factors("long_factor")?,
            original_max_position: self.original as usize,
            attention_factor: match self.number("attention_factor")? {
                Some(given) => given,
                None if factor <= 1.0 => 1.0,
                None => (1.0 + factor.ln() / self.original.ln()).sqrt(),
            },
        })
    }
}
