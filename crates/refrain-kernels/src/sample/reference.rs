//! Sampling in plain Rust.

use super::settings::{Settings, reciprocal};
use super::{FINISHED, IN_PROMPT, NOT_A_NUMBER, philox};

/// State that [`reference()`] updates; each row is one sequence's.
pub struct SampleState<'a> {
    /// `[S]`: the current tokens, at `positions`.
    pub tokens: &'a mut [u32],
    /// `[S]`: positions; negative once a sequence is finished.
    pub positions: &'a mut [i32],
    /// `[S, C]`: tokens by position.
    pub history: &'a mut [u32],
    /// `[S, V]`: number of each token's occurrences among the recent ones.
    pub counts: &'a mut [u32],
    /// `[S, 1 + R]`: number of reported tokens, and a ring of the last R of them.
    pub outbox: &'a mut [u32],
}

/// Samples from contiguous values: `logits` `[S, V]`, `settings` `[S, WORDS]`, `bias` `[S, V]` or empty, and the state.
/// Returns the reported tokens, `[S]`.
///
/// # Panics
/// Panics if sizes contradict each other, or there are no logits.
pub fn reference(logits: &[f32], settings: &[u32], bias: &[f32], state: &mut SampleState<'_>) -> Vec<u32> {
    let sequences = state.tokens.len();
    let [vocabulary, history, outbox] =
        [logits.len(), state.history.len(), state.outbox.len()].map(|n| n / sequences.max(1));
    let (settings, _) = settings.as_chunks::<{ Settings::WORDS }>();
    let one = |s: usize| {
        let logits = &logits[s * vocabulary..][..vocabulary];
        let bias = bias.get(s * vocabulary..(s + 1) * vocabulary).unwrap_or(&[]);
        let mut sequence = Sequence {
            settings: Settings::decode(&settings[s]),
            token: &mut state.tokens[s],
            position: &mut state.positions[s],
            history: &mut state.history[s * history..][..history],
            counts: &mut state.counts[s * vocabulary..][..vocabulary],
        };
        let reported = sequence.step(logits, bias);
        let (count, ring) = state.outbox[s * outbox..][..outbox]
            .split_first_mut()
            .expect("an outbox has a count");
        ring[*count as usize % ring.len()] = reported;
        *count = count.wrapping_add(1);
        reported
    };
    (0..sequences).map(one).collect()
}

/// One sequence's rows of a [`SampleState`].
struct Sequence<'a> {
    settings: Settings,
    token: &'a mut u32,
    position: &'a mut i32,
    history: &'a mut [u32],
    counts: &'a mut [u32],
}

impl Sequence<'_> {
    /// Samples the next token and advances to it; returns the reported token.
    fn step(&mut self, logits: &[f32], bias: &[f32]) -> u32 {
        let Ok(position) = usize::try_from(*self.position) else {
            return FINISHED;
        };
        let mut logits = logits.to_vec();
        adjust(&mut logits, self.counts, bias, &self.settings);
        let next = position + 1;
        let Some(token) = pick(&logits, &self.settings, next as u64) else {
            *self.position = -1;
            return NOT_A_NUMBER;
        };
        self.record(token, next);
        let last = (self.settings.last_position as usize).min(self.history.len().saturating_sub(1));
        if next >= last || self.settings.stop_ids.contains(&token) {
            *self.position = -1;
        } else {
            *self.token = token;
            *self.position = next as i32;
        }
        token
    }

    fn record(&mut self, token: u32, position: usize) {
        if let Some(slot) = self.history.get_mut(position) {
            *slot = token;
        }
        let window = self.settings.window as usize;
        if window == 0 {
            return;
        }
        self.counts[token as usize] += 1;
        let leaving = position
            .checked_sub(window)
            .and_then(|position| self.history.get(position));
        if let Some(count) = leaving.and_then(|&token| self.counts.get_mut(token as usize)) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Returns the number of each token's occurrences among the last `window` tokens of `history`, `[V]`. Tokens beyond the
/// vocabulary are not counted.
pub fn counts(history: &[u32], window: u32, vocabulary: usize) -> Vec<u32> {
    let mut counts = vec![0; vocabulary];
    for &token in &history[history.len().saturating_sub(window as usize)..] {
        if let Some(count) = counts.get_mut(token as usize) {
            *count += 1;
        }
    }
    counts
}

/// Returns the counts with which a sequence begins whose tokens so far are `history`, `[V]`. Tokens of the settings'
/// `prompt` are marked as [`IN_PROMPT`], and are not counted.
pub fn initial_counts(history: &[u32], settings: &Settings, vocabulary: usize) -> Vec<u32> {
    let (prompt, generated) = history.split_at(history.len().min(settings.prompt as usize));
    let mut counts = counts(generated, settings.window, vocabulary);
    for &token in prompt {
        if let Some(count) = counts.get_mut(token as usize) {
            *count |= IN_PROMPT;
        }
    }
    counts
}

/// Applies bias and penalties to `logits` `[V]`, given the number of each token's recent occurrences. `bias` `[V]` is
/// read only if `settings` enable it.
pub fn adjust(logits: &mut [f32], counts: &[u32], bias: &[f32], settings: &Settings) {
    if settings.biased {
        logits.iter_mut().zip(bias).for_each(|(logit, bias)| *logit += bias);
    }
    if !settings.penalises() {
        return;
    }
    let shrink = reciprocal(settings.repeat_penalty);
    for (logit, &count) in logits.iter_mut().zip(counts).filter(|(_, count)| **count > 0) {
        *logit *= if *logit > 0.0 { shrink } else { settings.repeat_penalty };
        let count = count & !IN_PROMPT;
        if count == 0 {
            continue;
        }
        *logit -= count as f32 * settings.frequency_penalty + settings.presence_penalty;
    }
}

/// Samples the token at `position` from its adjusted logits; returns `None` if one of them is NaN.
///
/// # Panics
/// Panics if there are no logits.
pub fn pick(logits: &[f32], settings: &Settings, position: u64) -> Option<u32> {
    if logits.iter().any(|logit| logit.is_nan()) {
        return None;
    }
    if settings.temperature == 0.0 {
        return Some(argmax(logits));
    }
    let candidates = candidates(logits, settings);
    let uniform = philox::uniform(settings.seed, settings.sequence.into(), position);
    Some(draw(&candidates, uniform))
}

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: u32,
    /// Its logit.
    pub logit: f32,
    /// Its probability relative to the most probable token's: exp((logit − largest logit) / temperature).
    pub weight: f64,
}

/// Returns the tokens that top-k, top-p and min-p keep, in the order of their ids. `logits` must not hold NaN.
pub fn candidates(logits: &[f32], settings: &Settings) -> Vec<Candidate> {
    let mut candidates = weighted(logits, settings.temperature);
    keep_top_k(&mut candidates, settings.top_k as usize);
    keep_top_p(&mut candidates, settings.top_p);
    // The most probable token has weight 1.
    let min_weight = f64::from(settings.min_p);
    candidates.retain(|candidate| candidate.weight >= min_weight);
    candidates.sort_unstable_by_key(|candidate| candidate.id);
    candidates
}

/// Returns all tokens with their weights at this temperature.
fn weighted(logits: &[f32], temperature: f32) -> Vec<Candidate> {
    let largest = logits[argmax(logits) as usize];
    let candidate = |(id, &logit): (usize, &f32)| {
        // Equal logits have weight 1 even where both are infinite.
        let below = if logit == largest {
            0.0
        } else {
            f64::from(logit) - f64::from(largest)
        };
        Candidate {
            id: id as u32,
            // Maps -0 to 0, so that both compare equal.
            logit: logit + 0.0,
            weight: (below / f64::from(temperature)).exp(),
        }
    };
    logits.iter().enumerate().map(candidate).collect()
}

fn keep_top_k(candidates: &mut Vec<Candidate>, k: usize) {
    if k > 0 && k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, by_probability);
        candidates.truncate(k);
    }
}

fn keep_top_p(candidates: &mut Vec<Candidate>, top_p: f32) {
    if top_p >= 1.0 {
        return;
    }
    candidates.sort_unstable_by(by_probability);
    let enough = f64::from(top_p) * total(candidates);
    let mut sum = 0.0;
    let reaches = |candidate: &Candidate| {
        sum += candidate.weight;
        sum >= enough
    };
    let last = candidates.iter().position(reaches);
    candidates.truncate(last.map_or(candidates.len(), |last| last + 1));
}

/// Returns the first token at which the running sum of weights exceeds `uniform` times their total.
pub fn draw(candidates: &[Candidate], uniform: f32) -> u32 {
    let target = f64::from(uniform) * total(candidates);
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

fn by_probability(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Returns the id of the largest logit, of equal ones the lowest.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests;
