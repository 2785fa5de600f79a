//! Picking the next token: the plain reference that every other sampler is checked against.

use std::collections::HashSet;

use crate::philox::uniform;

/// How to pick tokens. [`SamplerOptions::default`] takes the likeliest one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// Keep the k likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the fewest likeliest tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens that are at least this probable, relative to the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Divides the logit of a recent token where it is positive, multiplies it where negative; 1
    /// changes nothing.
    pub repeat_penalty: f32,
    /// How many of the last tokens count as recent.
    pub repeat_last: usize,
    /// Key of the random numbers.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_last: 64,
            seed: 0,
        }
    }
}

/// A setting that no sampler can follow.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{setting} is {value}, but must be {bounds}")]
pub struct InvalidSetting {
    setting: &'static str,
    value: f32,
    bounds: &'static str,
}

/// Picks tokens from logits.
///
/// The steps, in this order:
/// 1. *repeat penalty* on each token among the last `repeat_last`, once however often it is there;
/// 2. *temperature*: logits are divided by it. At 0 the largest logit is taken, of equal ones the
///    lowest id, and the rest is left out;
/// 3. *top-k*: the k largest logits stay, of equal ones those with the lowest ids;
/// 4. *top-p*: of the softmax over what stayed, going from the most probable down (equal ones by
///    id), tokens stay until their sum reaches `top_p`, the one that reaches it included;
/// 5. *min-p*: tokens stay whose probability is at least `min_p` times the largest;
/// 6. *draw*: with u from Philox 4×32-10 at (seed, sequence 0, position), the first token in the order
///    of ids at which the running sum of the remaining probabilities exceeds u times their total.
///
/// Sums are taken in f64. A logit that is not a number is never picked while another is there.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
}

/// A token that is still in the running.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
    /// Relative to the likeliest token: exp(logit − largest logit).
    weight: f64,
}

impl Sampler {
    /// A sampler with these settings.
    ///
    /// # Errors
    /// If a setting lies outside its bounds.
    pub fn new(options: SamplerOptions) -> Result<Self, InvalidSetting> {
        let check = |setting, value: f32, valid: bool, bounds| match valid && value.is_finite() {
            true => Ok(()),
            false => Err(InvalidSetting { setting, value, bounds }),
        };
        let SamplerOptions {
            temperature,
            top_p,
            min_p,
            repeat_penalty,
            ..
        } = options;
        check("temperature", temperature, temperature >= 0.0, "0 or more")?;
        check("top-p", top_p, top_p > 0.0 && top_p <= 1.0, "above 0 and at most 1")?;
        check("min-p", min_p, (0.0..=1.0).contains(&min_p), "between 0 and 1")?;
        check("repeat penalty", repeat_penalty, repeat_penalty > 0.0, "above 0")?;
        Ok(Self { options })
    }

    /// Its settings.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// The token at `position` (counted from the beginning of the sequence), given its `logits`
    /// \[vocabulary\] and the tokens before it. Penalties are applied to `logits` in place.
    ///
    /// # Panics
    /// If there are no logits.
    pub fn pick(&self, logits: &mut [f32], history: &[u32], position: u64) -> u32 {
        self.penalise(logits, history);
        if self.options.temperature == 0.0 {
            return argmax(logits);
        }
        let mut candidates = self.weighted(logits);
        self.keep_top_k(&mut candidates);
        self.keep_top_p(&mut candidates);
        self.keep_min_p(&mut candidates);
        draw(candidates, uniform(self.options.seed, 0, position))
    }

    fn penalise(&self, logits: &mut [f32], history: &[u32]) {
        let penalty = self.options.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        let recent = &history[history.len().saturating_sub(self.options.repeat_last)..];
        for id in recent.iter().copied().collect::<HashSet<u32>>() {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if *logit > 0.0 {
                    *logit / penalty
                } else {
                    *logit * penalty
                };
            }
        }
    }

    /// All tokens with their weights at this temperature.
    fn weighted(&self, logits: &[f32]) -> Vec<Candidate> {
        let largest = comparable(logits[argmax(logits) as usize]);
        let temperature = f64::from(self.options.temperature);
        let candidate = |(id, logit): (usize, &f32)| {
            let logit = comparable(*logit);
            // Equal logits have weight 1 even where both are infinite.
            let below = if logit == largest {
                0.0
            } else {
                f64::from(logit) - f64::from(largest)
            };
            Candidate {
                id: id as u32,
                logit,
                weight: (below / temperature).exp(),
            }
        };
        logits.iter().enumerate().map(candidate).collect()
    }

    fn keep_top_k(&self, candidates: &mut Vec<Candidate>) {
        let k = self.options.top_k;
        if k > 0 && k < candidates.len() {
            candidates.select_nth_unstable_by(k - 1, likelier_first);
            candidates.truncate(k);
        }
    }

    fn keep_top_p(&self, candidates: &mut Vec<Candidate>) {
        if self.options.top_p >= 1.0 {
            return;
        }
        candidates.sort_unstable_by(likelier_first);
        let enough = f64::from(self.options.top_p) * total(candidates);
        let mut sum = 0.0;
        let reaches = |candidate: &Candidate| {
            sum += candidate.weight;
            sum >= enough
        };
        let last = candidates.iter().position(reaches);
        candidates.truncate(last.map_or(candidates.len(), |last| last + 1));
    }

    fn keep_min_p(&self, candidates: &mut Vec<Candidate>) {
        // The likeliest has weight 1.
        let least = f64::from(self.options.min_p);
        candidates.retain(|candidate| candidate.weight >= least);
    }
}

fn draw(mut candidates: Vec<Candidate>, uniform: f32) -> u32 {
    candidates.sort_unstable_by_key(|candidate| candidate.id);
    let target = f64::from(uniform) * total(&candidates);
    let mut sum = 0.0;
    let passes = |candidate: &&Candidate| {
        sum += candidate.weight;
        sum > target
    };
    let drawn = candidates.iter().find(passes);
    drawn.or(candidates.last()).map_or(0, |candidate| candidate.id)
}

fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| candidate.weight).sum()
}

fn likelier_first(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// The largest logit's id, of equal ones the lowest.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if comparable(*logit) > comparable(logits[best]) {
            best = id;
        }
    }
    best as u32
}

/// The logit in an order in which what is not a number comes last, and both zeros are one.
fn comparable(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit + 0.0 }
}

#[cfg(test)]
mod tests;
