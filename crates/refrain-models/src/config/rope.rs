//! How rotary frequencies are stretched for long contexts.

use std::fmt;

use refrain_formats::Error;

/// How the rotary embedding's inverse frequencies f(i) = theta^(−2i/dims) are changed.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by one factor (position interpolation, arXiv 2306.15595).
    Linear {
        /// What they are divided by.
        factor: f64,
    },
    /// Llama 3.1's rule: long wavelengths are divided by `factor`, short ones kept, and those
    /// between `original_max_position / low_freq_factor` and
    /// `original_max_position / high_freq_factor` interpolated.
    Llama3 {
        /// What the long wavelengths are multiplied by.
        factor: f64,
        /// Sets the wavelength above which the whole factor applies.
        low_freq_factor: f64,
        /// Sets the wavelength below which nothing changes.
        high_freq_factor: f64,
        /// Context length of the pretraining, in tokens.
        original_max_position: f64,
    },
    /// Frequency i is divided by factor i, for i up to dims/2 (GGUF's `rope_freqs.weight`).
    Factors(Vec<f32>),
    /// YaRN (arXiv 2309.00071): pairs that turn more than `beta_fast` times in the original context stay,
    /// those that turn less than `beta_slow` times are divided by `factor`, and those between interpolated
    /// by their number.
    Yarn {
        /// What the slow frequencies are divided by.
        factor: f64,
        /// Context length of the pretraining, in tokens.
        original_max_position: f64,
        /// Turns above which a pair stays.
        beta_fast: f64,
        /// Turns below which the whole factor applies.
        beta_slow: f64,
        /// Whether the pairs between which is interpolated are whole numbers.
        truncate: bool,
        /// What cosines and sines are multiplied by.
        attention_factor: f64,
    },
    /// LongRoPE (arXiv 2402.13753): frequency i is divided by factor i of one list where the context is at
    /// most the original one, and of another where it is longer.
    LongRope {
        /// The factors of short contexts, for i up to dims/2.
        short: Vec<f32>,
        /// Those of long ones.
        long: Vec<f32>,
        /// Context length of the pretraining, in tokens.
        original_max_position: usize,
        /// What cosines and sines are multiplied by.
        attention_factor: f64,
    },
    /// Dynamic NTK: in contexts of L tokens, longer than the original, theta is multiplied by
    /// (factor · L / original − (factor − 1))^(dims / (dims − 2)).
    Dynamic {
        /// How strongly theta grows.
        factor: f64,
        /// Context length of the pretraining, in tokens.
        original_max_position: usize,
    },
}

impl RopeScaling {
    /// What cosines and sines are multiplied by.
    pub fn attention_factor(&self) -> f64 {
        match self {
            RopeScaling::Yarn { attention_factor, .. } | RopeScaling::LongRope { attention_factor, .. } => {
                *attention_factor
            }
            _ => 1.0,
        }
    }

    /// Whether frequencies depend on how long a context is wanted.
    pub fn depends_on_context(&self) -> bool {
        matches!(self, RopeScaling::LongRope { .. } | RopeScaling::Dynamic { .. })
    }

    /// Whether both change frequencies alike, as far as f32 tells.
    pub fn is_close(&self, other: &RopeScaling) -> bool {
        use RopeScaling::{LongRope, Yarn};
        let numbers = |scaling: &RopeScaling| match scaling {
            Yarn {
                factor,
                original_max_position,
                beta_fast,
                beta_slow,
                attention_factor,
                truncate,
            } => vec![
                *factor as f32,
                *original_max_position as f32,
                *beta_fast as f32,
                *beta_slow as f32,
                *attention_factor as f32,
                f32::from(u8::from(*truncate)),
            ],
            LongRope {
                short,
                long,
                original_max_position,
                attention_factor,
            } => [
                &short[..],
                long,
                &[*original_max_position as f32, *attention_factor as f32],
            ]
            .concat(),
            _ => Vec::new(),
        };
        match (self, other) {
            (Yarn { .. }, Yarn { .. }) | (LongRope { .. }, LongRope { .. }) => {
                all_close(&numbers(self), &numbers(other))
            }
            _ => self == other,
        }
    }

    pub(crate) fn validate(&self, dims: usize, file: &str) -> Result<(), Error> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(Error::file(
                    file,
                    format!("the rope scaling's {name} is {value}, which is not positive"),
                ))
            }
        };
        match self {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => positive("factor", *factor),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position,
            } => {
                positive("factor", *factor)?;
                positive("low_freq_factor", *low_freq_factor)?;
                positive("high_freq_factor", *high_freq_factor)?;
                positive("original_max_position_embeddings", *original_max_position)?;
                if high_freq_factor <= low_freq_factor {
                    return Err(Error::file(
                        file,
                        format!(
                            "the rope scaling's high_freq_factor ({high_freq_factor}) is not above \
                             its low_freq_factor ({low_freq_factor})"
                        ),
                    ));
                }
                Ok(())
            }
            RopeScaling::Factors(factors) => check_factors("rope factors", factors, dims, file),
            RopeScaling::Yarn {
                factor,
                original_max_position,
                beta_fast,
                beta_slow,
                attention_factor,
                ..
            } => {
                positive("factor", *factor)?;
                positive("original_max_position_embeddings", *original_max_position)?;
                positive("beta_fast", *beta_fast)?;
                positive("beta_slow", *beta_slow)?;
                positive("attention_factor", *attention_factor)
            }
            RopeScaling::LongRope {
                short,
                long,
                attention_factor,
                ..
            } => {
                check_factors("short rope factors", short, dims, file)?;
                check_factors("long rope factors", long, dims, file)?;
                positive("attention_factor", *attention_factor)
            }
            RopeScaling::Dynamic { factor, .. } => positive("factor", *factor),
        }
    }
}

impl fmt::Display for RopeScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RopeScaling::None => f.write_str("none"),
            RopeScaling::Linear { factor } => write!(f, "linear, by {factor}"),
            RopeScaling::Llama3 {
                factor,
                original_max_position,
                ..
            } => write!(f, "Llama 3's, by {factor} from {original_max_position} tokens"),
            RopeScaling::Factors(_) => f.write_str("a factor for each frequency"),
            RopeScaling::Yarn {
                factor,
                original_max_position,
                ..
            } => write!(f, "YaRN, by {factor} from {original_max_position} tokens"),
            RopeScaling::LongRope {
                original_max_position, ..
            } => write!(f, "LongRoPE, from {original_max_position} tokens"),
            RopeScaling::Dynamic {
                factor,
                original_max_position,
            } => write!(f, "dynamic NTK, by {factor} from {original_max_position} tokens"),
        }
    }
}

/// Check that there is a positive factor for each frequency.
fn check_factors(what: &str, factors: &[f32], dims: usize, file: &str) -> Result<(), Error> {
    if factors.len() != dims / 2 {
        let reason = format!("there are {} {what}, but {} frequencies", factors.len(), dims / 2);
        return Err(Error::file(file, reason));
    }
    match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
        Some(factor) => Err(Error::file(
            file,
            format!("one of the {what} is {factor}, which is not positive"),
        )),
        None => Ok(()),
    }
}

/// Whether lists of numbers are the same, as far as f32 tells.
pub fn all_close(a: &[f32], b: &[f32]) -> bool {
    let close = |a: f32, b: f32| (a - b).abs() <= 1e-5 * a.abs().max(b.abs());
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(*a, *b))
}
