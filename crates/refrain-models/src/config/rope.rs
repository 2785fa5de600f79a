//! Scaling of rotary embeddings for long contexts.

use std::fmt;

use refrain_formats::Error;

/// Scaling of the inverse frequencies f(i) = theta^(−2i/dims).
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Divides all frequencies by one factor (position interpolation, arXiv 2306.15595).
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: divides the frequencies of long wavelengths by `factor`, keeps those of short ones, and
    /// interpolates between `original_max_position / low_freq_factor` and `original_max_position / high_freq_factor`.
    Llama3 {
        /// Factor of the long wavelengths.
        factor: f64,
        /// Sets the wavelength above which the full factor applies.
        low_freq_factor: f64,
        /// Sets the wavelength below which nothing changes.
        high_freq_factor: f64,
        /// Context length of the pretraining, in tokens.
        original_max_position: f64,
    },
    /// Divides frequency i by factor i, for i up to dims/2 (GGUF's `rope_freqs.weight`).
    Factors(Vec<f32>),
    /// YaRN (arXiv 2309.00071): keeps pairs with more than `beta_fast` rotations in the original context, divides
    /// those with fewer than `beta_slow` rotations by `factor`, and interpolates between them by pair index.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Context length of the pretraining, in tokens.
        original_max_position: f64,
        /// Number of rotations above which a pair's frequency is unchanged.
        beta_fast: f64,
        /// Number of rotations below which the full factor applies.
        beta_slow: f64,
        /// Whether the interpolation limits are rounded to whole pair indices.
        truncate: bool,
        /// Factor of cosines and sines.
        attention_factor: f64,
    },
    /// LongRoPE (arXiv 2402.13753): divides frequency i by factor i of one of two lists, depending on whether the
    /// context exceeds the original one.
    LongRope {
        /// Factors of short contexts, for i up to dims/2.
        short: Vec<f32>,
        /// Factors of long contexts.
        long: Vec<f32>,
        /// Context length of the pretraining, in tokens.
        original_max_position: usize,
        /// Factor of cosines and sines.
        attention_factor: f64,
    },
    /// Dynamic NTK: for a context of L tokens beyond the original, multiplies theta by (factor · L / original −
    /// (factor − 1))^(dims / (dims − 2)).
    Dynamic {
        /// Growth factor of theta.
        factor: f64,
        /// Context length of the pretraining, in tokens.
        original_max_position: usize,
    },
}

impl RopeScaling {
    /// Factor of cosines and sines.
    pub fn attention_factor(&self) -> f64 {
        match self {
            RopeScaling::Yarn { attention_factor, .. } | RopeScaling::LongRope { attention_factor, .. } => {
                *attention_factor
            }
            _ => 1.0,
        }
    }

    /// Whether frequencies depend on the context length.
    pub fn depends_on_context(&self) -> bool {
        matches!(self, RopeScaling::LongRope { .. } | RopeScaling::Dynamic { .. })
    }

    /// Whether both scalings are equal within f32 precision.
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

/// Checks that there is a positive factor for each frequency.
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

/// Whether two lists are equal within f32 precision.
pub fn all_close(a: &[f32], b: &[f32]) -> bool {
    let close = |a: f32, b: f32| (a - b).abs() <= 1e-5 * a.abs().max(b.abs());
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(*a, *b))
}
