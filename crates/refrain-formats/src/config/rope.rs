//! How rotary frequencies are stretched for long contexts.

use serde::{Deserialize, Serialize};

use crate::Error;

/// How the rotary embedding's inverse frequencies f(i) = theta^(−2i/dims) are changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
}

impl RopeScaling {
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
            RopeScaling::Factors(factors) => {
                if factors.len() != dims / 2 {
                    return Err(Error::file(
                        file,
                        format!("there are {} rope factors, but {} frequencies", factors.len(), dims / 2),
                    ));
                }
                factors
                    .iter()
                    .try_for_each(|&factor| positive("factor", f64::from(factor)))
            }
        }
    }
}
