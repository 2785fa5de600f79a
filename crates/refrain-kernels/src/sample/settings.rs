//! Sampling settings of a sequence, and their encoding for kernels.

/// Maximum number of stop tokens of a sequence.
pub const MAX_STOP_IDS: usize = 16;

/// Sampling parameters and stop conditions of one sequence. [`Settings::default`] is greedy and never ends.
///
/// Kernels read it as [`Settings::WORDS`] u32 words, floats by their bits:
///
/// | word | contents |
/// |---|---|
/// | 0, 1 | `temperature` and its reciprocal |
/// | 2, 3, 4 | `top_k`, `top_p`, `min_p` |
/// | 5, 6 | `repeat_penalty` and its reciprocal |
/// | 7, 8, 9 | `presence_penalty`, `frequency_penalty`, `window` |
/// | 10, 11, 12 | `seed`, lower word first, and `sequence` |
/// | 13 | `last_position` |
/// | 14 | 1 if `biased`, else 0 |
/// | 15 | number of stop tokens |
/// | 16 … 31 | `stop_ids`, then zeros |
///
/// The reciprocals avoid divisions on the device, which devices round differently.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Number of most probable tokens that are kept; 0 keeps all.
    pub top_k: u32,
    /// Keeps the most probable tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens of at least this probability, relative to the most probable one; 0 keeps all.
    pub min_p: f32,
    /// Divides the positive logits of recent tokens and multiplies the others; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted once from the logits of recent tokens.
    pub presence_penalty: f32,
    /// Subtracted from the logits of recent tokens, once per occurrence.
    pub frequency_penalty: f32,
    /// Number of last tokens that count as recent; 0 penalises none.
    pub window: u32,
    /// Number of first tokens, the prompt, that only the repeat penalty counts. It needs a window without end,
    /// [`u32::MAX`]. Kernels do not read it: [`initial_counts`](super::initial_counts) does.
    pub prompt: u32,
    /// Key of the random numbers.
    pub seed: u64,
    /// Distinguishes this sequence's random numbers from others' of the same seed.
    pub sequence: u32,
    /// The position at which the sequence ends, whatever the token.
    pub last_position: u32,
    /// Tokens that end the sequence.
    pub stop_ids: Vec<u32>,
    /// Whether a bias is added to the logits.
    pub biased: bool,
}

/// More than [`MAX_STOP_IDS`] stop tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} stop tokens are too many: at most {MAX_STOP_IDS} are supported")]
pub struct TooManyStopIds(pub usize);

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            window: 64,
            prompt: 0,
            seed: 0,
            sequence: 0,
            last_position: i32::MAX as u32,
            stop_ids: vec![],
            biased: false,
        }
    }
}

impl Settings {
    /// Number of words of one sequence's settings.
    pub const WORDS: usize = 16 + MAX_STOP_IDS;

    /// Returns the words that kernels read.
    ///
    /// # Errors
    /// When there are more than [`MAX_STOP_IDS`] stop tokens.
    pub fn encode(&self) -> Result<[u32; Settings::WORDS], TooManyStopIds> {
        let stops = self.stop_ids.len();
        if stops > MAX_STOP_IDS {
            return Err(TooManyStopIds(stops));
        }
        let mut words = [0; Settings::WORDS];
        words[..16].copy_from_slice(&[
            self.temperature.to_bits(),
            reciprocal(self.temperature).to_bits(),
            self.top_k,
            self.top_p.to_bits(),
            self.min_p.to_bits(),
            self.repeat_penalty.to_bits(),
            reciprocal(self.repeat_penalty).to_bits(),
            self.presence_penalty.to_bits(),
            self.frequency_penalty.to_bits(),
            self.window,
            self.seed as u32,
            (self.seed >> 32) as u32,
            self.sequence,
            self.last_position,
            u32::from(self.biased),
            stops as u32,
        ]);
        words[16..][..stops].copy_from_slice(&self.stop_ids);
        Ok(words)
    }

    /// Returns the settings that `words` encode. Clamps the number of stop tokens to [`MAX_STOP_IDS`].
    pub fn decode(words: &[u32; Settings::WORDS]) -> Settings {
        let float = |word: usize| f32::from_bits(words[word]);
        let stops = (words[15] as usize).min(MAX_STOP_IDS);
        Settings {
            temperature: float(0),
            top_k: words[2],
            top_p: float(3),
            min_p: float(4),
            repeat_penalty: float(5),
            presence_penalty: float(7),
            frequency_penalty: float(8),
            window: words[9],
            prompt: 0,
            seed: u64::from(words[10]) | u64::from(words[11]) << 32,
            sequence: words[12],
            last_position: words[13],
            stop_ids: words[16..][..stops].to_vec(),
            biased: words[14] != 0,
        }
    }

    /// Whether recent tokens are penalised.
    pub fn penalises(&self) -> bool {
        let changes = self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0;
        changes && self.window > 0
    }
}

/// Returns 1 / x, clamped so that devices neither flush it to zero nor treat it as infinite.
pub(super) fn reciprocal(x: f32) -> f32 {
    (1.0 / x).clamp(f32::MIN_POSITIVE, f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_through_words() {
        let settings = Settings {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.1,
            presence_penalty: -0.5,
            frequency_penalty: 0.25,
            window: 128,
            prompt: 0,
            seed: 0x0123_4567_89ab_cdef,
            sequence: 7,
            last_position: 4095,
            stop_ids: vec![2, 151_645],
            biased: true,
        };
        assert_eq!(Settings::decode(&settings.encode().unwrap()), settings);
        let default = Settings::default();
        assert_eq!(Settings::decode(&default.encode().unwrap()), default);
    }

    #[test]
    fn rejects_too_many_stop_tokens() {
        let settings = Settings {
            stop_ids: (0..17).collect(),
            ..Settings::default()
        };
        let error = settings.encode().unwrap_err();
        assert_eq!(
            error.to_string(),
            "17 stop tokens are too many: at most 16 are supported"
        );
    }
}
