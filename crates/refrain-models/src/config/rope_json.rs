//! Reads the rotary embedding's settings from `config.json`.

use refrain_formats::{Error, JsonObject, Key, Metadata, json_excerpt, json_kind};
use serde_json::Value;

use super::RopeScaling;
use super::defaults::Defaults;

/// Settings of the rotary embedding.
pub(crate) struct RopeConfig {
    pub theta: f64,
    pub scaling: RopeScaling,
    /// Fraction of each head that is rotated.
    pub partial_rotary_factor: f64,
    /// Maximum context length in tokens, including scaling.
    pub max_position: usize,
}

const ORIGINAL_MAX_POSITION: &str = "original_max_position_embeddings";

/// Known settings of all scaling types, including those of vision and training, which do not affect text.
const KNOWN_SETTINGS: [&str; 19] = [
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "factor",
    "finetuned",
    "high_freq_factor",
    "long_factor",
    "low_freq_factor",
    "mrope_interleaved",
    "mrope_section",
    "mscale",
    "mscale_all_dim",
    ORIGINAL_MAX_POSITION,
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "short_factor",
    "truncate",
    "type",
];

/// Reads `rope_parameters` as transformers 5 writes them, or `rope_theta` and `rope_scaling` of earlier versions. If
/// both are present, they must agree. `max_position` is the file's maximum context.
pub(crate) fn read(metadata: &Metadata<'_>, defaults: &Defaults, max_position: usize) -> Result<RopeConfig, Error> {
    let with = |parameters: &JsonObject| read_one(metadata, max_position, defaults, parameters);
    let old = settings(metadata, "rope_scaling")?;
    let new = match settings(metadata, "rope_parameters")? {
        Some(object) => full_attention_settings(metadata, defaults, object)?,
        None => None,
    };
    match (old, new) {
        (None, None) => with(&JsonObject::new()),
        (Some(parameters), None) | (None, Some(parameters)) => with(parameters),
        (Some(old), Some(new)) => {
            let (old, new) = (with(old)?, with(new)?);
            if old.agrees_with(&new) {
                Ok(old)
            } else {
                Err(metadata.error("rope_scaling and rope_parameters contradict each other".to_owned()))
            }
        }
    }
}

impl RopeConfig {
    /// Whether both give the same angles within f32 precision.
    fn agrees_with(&self, other: &RopeConfig) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs();
        close(self.theta, other.theta)
            && close(self.partial_rotary_factor, other.partial_rotary_factor)
            && self.scaling.is_close(&other.scaling)
    }
}

fn read_one(
    metadata: &Metadata<'_>,
    max_position: usize,
    defaults: &Defaults,
    parameters: &JsonObject,
) -> Result<RopeConfig, Error> {
    check_keys(metadata, parameters)?;
    let own = |key: &'static str, otherwise: f64| match number(metadata, parameters, key)? {
        Some(value) => Ok::<_, Error>(value),
        None => Ok(metadata.number(Key::json(key))?.unwrap_or(otherwise)),
    };
    let scaling = Scaling {
        metadata,
        parameters,
        max_position: max_position as f64,
        original: match (
            metadata.number(Key::json(ORIGINAL_MAX_POSITION))?,
            number(metadata, parameters, ORIGINAL_MAX_POSITION)?,
        ) {
            (Some(original), _) => original,
            (None, own) => defaults
                .longrope_original_max_position
                .or(own)
                .unwrap_or(max_position as f64),
        },
    }
    .read(defaults.longrope_original_max_position.is_some())?;
    Ok(RopeConfig {
        theta: own("rope_theta", defaults.rope_theta)?,
        partial_rotary_factor: own("partial_rotary_factor", defaults.partial_rotary_factor)?,
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

/// Returns an object of settings; `None` if missing or empty.
fn settings<'a>(metadata: &'a Metadata<'_>, key: &str) -> Result<Option<&'a JsonObject>, Error> {
    match metadata.json(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object).filter(|object| !object.is_empty())),
        Some(other) => Err(metadata.error(format!("{key} is a {}, not an object", json_kind(other)))),
    }
}

/// Returns the settings of full-attention layers, for families with separate settings per layer type.
fn full_attention_settings<'a>(
    metadata: &Metadata<'_>,
    defaults: &Defaults,
    object: &'a JsonObject,
) -> Result<Option<&'a JsonObject>, Error> {
    let family = defaults.family;
    const LAYER_TYPES: [&str; 2] = ["full_attention", "sliding_attention"];
    let wanted = defaults.rope_per_layer_type;
    let nested = object.keys().all(|key| LAYER_TYPES.contains(&key.as_str()));
    if wanted != nested {
        return Err(if wanted {
            metadata.error(format!(
                "rope_parameters of {family} must be one object per layer type: {}",
                LAYER_TYPES.join(" and ")
            ))
        } else {
            metadata.unsupported(format!(
                "rope_parameters of {family} must be one object for all layers, not per layer type"
            ))
        });
    }
    if !nested {
        return Ok(Some(object));
    }
    match object.get("full_attention") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(own)) => Ok(Some(own)),
        Some(other) => Err(metadata.error(format!("full_attention is a {}, not an object", json_kind(other)))),
    }
}

/// Reads a number from the settings.
fn number(metadata: &Metadata<'_>, parameters: &JsonObject, key: &str) -> Result<Option<f64>, Error> {
    match parameters.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_f64()
            .map(Some)
            .ok_or_else(|| metadata.error(format!("{key} is {value}, not a number"))),
    }
}

/// Reads the rotary base of sliding-window layers, if the file has a separate one.
///
/// # Errors
/// If a value is invalid or not supported.
pub fn local_theta(metadata: &Metadata<'_>) -> Result<Option<f64>, Error> {
    let own = metadata
        .json("rope_parameters")
        .and_then(|parameters| parameters.get("sliding_attention"))
        .and_then(Value::as_object);
    match own {
        Some(own) => local_layer_theta(metadata, own),
        None => Ok(None),
    }
}

fn local_layer_theta(metadata: &Metadata<'_>, parameters: &JsonObject) -> Result<Option<f64>, Error> {
    check_keys(metadata, parameters)?;
    if let Some(part) = number(metadata, parameters, "partial_rotary_factor")?
        && part != 1.0
    {
        return Err(metadata.unsupported(format!(
            "partial_rotary_factor {part} of sliding-window layers is not supported"
        )));
    }
    if let Some(kind) = parameters.get("rope_type").filter(|kind| !kind.is_null())
        && kind.as_str() != Some("default")
    {
        return Err(metadata.unsupported(format!(
            "rope scaling {kind} of sliding-window layers is not supported (supported: \"default\")"
        )));
    }
    number(metadata, parameters, "rope_theta")
}

/// Returns an error if a setting is unknown.
pub(crate) fn check_keys(metadata: &Metadata<'_>, parameters: &JsonObject) -> Result<(), Error> {
    match parameters
        .iter()
        .find(|(key, value)| !value.is_null() && !KNOWN_SETTINGS.contains(&key.as_str()))
    {
        Some((key, value)) => {
            Err(metadata.unsupported(format!("rope setting {key} {} is not supported", json_excerpt(value))))
        }
        None => Ok(()),
    }
}

/// Reads the scaling for long contexts.
struct Scaling<'a> {
    metadata: &'a Metadata<'a>,
    parameters: &'a JsonObject,
    max_position: f64,
    /// Context length of the pretraining.
    original: f64,
}

impl Scaling<'_> {
    fn read(&self, early_names: bool) -> Result<RopeScaling, Error> {
        let kind = ["rope_type", "type"]
            .into_iter()
            .find_map(|key| self.parameters.get(key).filter(|value| !value.is_null()));
        let kind = match kind {
            None => "default",
            Some(Value::String(kind)) => kind.as_str(),
            Some(other) => return Err(self.metadata.error(format!("rope_type is {other}, not a name"))),
        };
        match kind {
            "default" => match self.number("factor")? {
                None | Some(1.0) => Ok(RopeScaling::None),
                Some(factor) => Err(self
                    .metadata
                    .error(format!("the rope scaling has factor {factor} but no rope_type"))),
            },
            "linear" => Ok(RopeScaling::Linear {
                factor: self.required("factor")?,
            }),
            "dynamic" => Ok(RopeScaling::Dynamic {
                factor: self.required("factor")?,
                original_max_position: self.max_position as usize,
            }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: self.required("factor")?,
                low_freq_factor: self.required("low_freq_factor")?,
                high_freq_factor: self.required("high_freq_factor")?,
                original_max_position: self.original,
            }),
            // Early files of Phi-3 use these names for LongRoPE.
            "su" | "yarn" if early_names => self.longrope(),
            "longrope" => self.longrope(),
            "yarn" => self.yarn(),
            other => Err(self.metadata.unsupported(format!(
                "rope scaling {other:?} is not supported (supported: default, linear, dynamic, llama3, yarn, longrope)"
            ))),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, Error> {
        number(self.metadata, self.parameters, key)
    }

    fn required(&self, key: &str) -> Result<f64, Error> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> Error {
        self.metadata.error(format!("{key} is missing from the rope scaling"))
    }

    fn factors(&self, key: &str) -> Result<Vec<f32>, Error> {
        let list = match self.parameters.get(key) {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) => return Err(self.missing(key)),
            Some(other) => {
                return Err(self
                    .metadata
                    .error(format!("{key} is a {}, not a list", json_kind(other))));
            }
        };
        let factors = list.iter().map(|factor| match factor.as_f64() {
            Some(factor) => Ok(factor as f32),
            None => Err(self.metadata.error(format!("{key} holds {factor}, not a number"))),
        });
        factors.collect()
    }

    /// Ratio of the maximum context to the original one.
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
            truncate: match self.parameters.get("truncate") {
                None => true,
                Some(Value::Null) => false,
                Some(Value::Bool(truncate)) => *truncate,
                Some(other) => {
                    return Err(self.metadata.error(format!("truncate is {other}, not true or false")));
                }
            },
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
