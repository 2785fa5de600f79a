//! The rotary embedding's settings in `config.json`.

use refrain_formats::{Error, JsonObject, Key, Metadata, json_kind};
use serde_json::Value;

use super::RopeScaling;
use super::keys::shortened;
use super::read::Defaults;

/// How positions are encoded.
pub(crate) struct RopeConfig {
    pub theta: f64,
    pub scaling: RopeScaling,
    /// The part of each head that is rotated.
    pub rotated: f64,
    /// Longest context, in tokens, scaling included.
    pub max_position: usize,
}

const ORIGINAL: &str = "original_max_position_embeddings";

/// Settings that are read, whatever the kind of scaling; and those of vision and training, which change nothing for
/// tokens.
const KNOWN: [&str; 19] = [
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
    ORIGINAL,
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "short_factor",
    "truncate",
    "type",
];

/// Read `rope_parameters` as transformers 5 writes them, or `rope_theta` and `rope_scaling` as earlier
/// versions did; where there are both, they must say the same. `defaults` are taken where there is no theta or no
/// part to rotate; `max_position` is what the file says.
pub(crate) fn read(metadata: &Metadata<'_>, defaults: &Defaults, max_position: usize) -> Result<RopeConfig, Error> {
    let with = |parameters: &JsonObject| read_one(metadata, max_position, defaults, parameters);
    let old = settings(metadata, "rope_scaling")?;
    let new = match settings(metadata, "rope_parameters")? {
        Some(object) => of_full_attention(metadata, defaults, object)?,
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
    /// Whether both rotate by the same angles, as far as f32 tells.
    fn agrees_with(&self, other: &RopeConfig) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs();
        close(self.theta, other.theta) && close(self.rotated, other.rotated) && self.scaling.is_close(&other.scaling)
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
            metadata.number(Key::json(ORIGINAL))?,
            number(metadata, parameters, ORIGINAL)?,
        ) {
            (Some(original), _) => original,
            (None, own) => defaults.longrope_original.or(own).unwrap_or(max_position as f64),
        },
    }
    .read(defaults.longrope_original.is_some())?;
    Ok(RopeConfig {
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

/// An object of settings that says something.
fn settings<'a>(metadata: &'a Metadata<'_>, key: &str) -> Result<Option<&'a JsonObject>, Error> {
    match metadata.json(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object).filter(|object| !object.is_empty())),
        Some(other) => Err(metadata.error(format!("{key} is a {}, not an object", json_kind(other)))),
    }
}

/// Of `rope_parameters`, those of layers without a window, where others have their own.
fn of_full_attention<'a>(
    metadata: &Metadata<'_>,
    defaults: &Defaults,
    object: &'a JsonObject,
) -> Result<Option<&'a JsonObject>, Error> {
    let family = defaults.family;
    const TYPES: [&str; 2] = ["full_attention", "sliding_attention"];
    let wanted = defaults.rope_by_layer_type;
    let nested = object.keys().all(|key| TYPES.contains(&key.as_str()));
    match (wanted, nested) {
        (false, false) => Ok(Some(object)),
        (false, true) => Err(metadata.unsupported(format!(
            "rope_parameters of each layer type are not supported of {family}, whose layers share them"
        ))),
        (true, false) => Err(metadata.error(format!(
            "rope_parameters of {family} are one object for each of its layer types, {}",
            TYPES.join(" and ")
        ))),
        (true, true) => match object.get("full_attention") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(own)) => Ok(Some(own)),
            Some(other) => Err(metadata.error(format!("full_attention is a {}, not an object", json_kind(other)))),
        },
    }
}

/// A number among the settings.
fn number(metadata: &Metadata<'_>, parameters: &JsonObject, key: &str) -> Result<Option<f64>, Error> {
    match parameters.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_f64()
            .map(Some)
            .ok_or_else(|| metadata.error(format!("{key} is {value}, not a number"))),
    }
}

/// The base of the rotary embedding of layers with a window, where the file has one of their own.
///
/// # Errors
/// If the file says what cannot be, or asks for what is not supported.
pub fn local_theta(metadata: &Metadata<'_>) -> Result<Option<f64>, Error> {
    let own = metadata
        .json("rope_parameters")
        .and_then(|parameters| parameters.get("sliding_attention"))
        .and_then(Value::as_object);
    match own {
        Some(own) => unscaled_theta(metadata, own),
        None => Ok(None),
    }
}

fn unscaled_theta(metadata: &Metadata<'_>, parameters: &JsonObject) -> Result<Option<f64>, Error> {
    check_keys(metadata, parameters)?;
    if let Some(part) = number(metadata, parameters, "partial_rotary_factor")?
        && part != 1.0
    {
        return Err(metadata.unsupported(format!(
            "partial_rotary_factor {part} of layers with a window is not supported"
        )));
    }
    if let Some(kind) = parameters.get("rope_type").filter(|kind| !kind.is_null())
        && kind.as_str() != Some("default")
    {
        return Err(metadata.unsupported(format!(
            "rope scaling {kind} of layers with a window is not supported (supported: \"default\")"
        )));
    }
    number(metadata, parameters, "rope_theta")
}

/// Refuses settings that nothing here follows.
pub(crate) fn check_keys(metadata: &Metadata<'_>, parameters: &JsonObject) -> Result<(), Error> {
    match parameters
        .iter()
        .find(|(key, value)| !value.is_null() && !KNOWN.contains(&key.as_str()))
    {
        Some((key, value)) => Err(metadata.unsupported(format!(
            "{key} {} among the settings of the rotary embedding is not supported",
            shortened(value)
        ))),
        None => Ok(()),
    }
}

/// What the settings say of longer contexts.
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
                Some(factor) => Err(self.metadata.error(format!(
                    "the rope scaling has a factor, {factor}, but no rope_type that says what to do with it"
                ))),
            },
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

    fn needed(&self, key: &str) -> Result<f64, Error> {
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
