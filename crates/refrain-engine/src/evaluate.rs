//! Perplexity of a model on a text, and its divergence from another model's predictions.

use std::ops::Range;

use rayon::prelude::*;

use crate::model::check_ids;
use crate::{Engine, Error};

/// Bytes of logits that are held at a time.
const MAX_LOGIT_BYTES: usize = 64 << 20;

/// Splits a text that exceeds the context into windows of `context` tokens, each starting `stride` tokens after the
/// previous one. Every token but the first is predicted once, in the first window that contains it, from all tokens
/// before it in that window. These are at least `context − stride` tokens, except in the first window. With a
/// stride of `context`, the first token of each window is not predicted.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    /// Tokens of a window; at least 2.
    pub context: usize,
    /// Tokens between the starts of two windows; 1 to `context`.
    pub stride: usize,
    /// Replaces the first token of each window but the first, for models that expect BOS there.
    pub bos: Option<u32>,
}

/// One window of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    tokens: Range<usize>,
    /// The first token to predict.
    first: usize,
}

impl Windows {
    fn over(&self, length: usize) -> Vec<Window> {
        let mut windows = Vec::new();
        let (mut start, mut done) = (0, 0);
        while done < length {
            let end = (start + self.context.max(2)).min(length);
            let first = done.max(start + 1);
            if first < end {
                windows.push(Window {
                    tokens: start..end,
                    first,
                });
            }
            done = end;
            start += self.stride.clamp(1, self.context.max(2));
        }
        windows
    }

    /// Returns how many of `length` tokens are predicted.
    pub fn predicted(&self, length: usize) -> usize {
        let windows = self.over(length);
        windows.iter().map(|window| window.tokens.end - window.first).sum()
    }

    /// Returns the tokens of a window as the model sees them.
    fn tokens(&self, all: &[u32], window: &Window) -> Vec<u32> {
        let mut tokens = all[window.tokens.clone()].to_vec();
        if let Some(bos) = self.bos.filter(|_| window.tokens.start > 0) {
            tokens[0] = bos;
        }
        tokens
    }
}

/// The negative log-probability of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Number of predicted tokens.
    pub tokens: usize,
    sum: f64,
    squares: f64,
}

impl Score {
    fn add(&mut self, token_nll: f64) {
        self.tokens += 1;
        self.sum += token_nll;
        self.squares += token_nll * token_nll;
    }

    /// Mean of −ln p(token), in nats.
    pub fn nll(&self) -> f64 {
        self.sum / self.tokens.max(1) as f64
    }

    /// exp of [`Score::nll`].
    pub fn perplexity(&self) -> f64 {
        self.nll().exp()
    }

    /// Standard error of the perplexity: that of the mean, times the perplexity.
    pub fn standard_error(&self) -> f64 {
        let count = self.tokens as f64;
        let variance = (self.squares / count.max(1.0) - self.nll().powi(2)).max(0.0);
        (variance / (count - 1.0).max(1.0)).sqrt() * self.perplexity()
    }
}

/// Divergence of a model's predictions from those of a reference, on the same text.
#[derive(Debug, Clone, Default)]
pub struct Divergence {
    /// Σ p·ln(p/q) at each predicted token, in nats, ascending; p is the reference's distribution and q the
    /// model's.
    pub kl: Vec<f64>,
    /// Number of tokens at which both have the same most likely token.
    pub agreeing: usize,
    /// The model's score.
    pub model: Score,
    /// The reference's score.
    pub reference: Score,
}

impl Divergence {
    /// Mean divergence.
    pub fn mean(&self) -> f64 {
        self.kl.iter().sum::<f64>() / self.kl.len().max(1) as f64
    }

    /// Standard error of the mean.
    pub fn standard_error(&self) -> f64 {
        let (count, mean) = (self.kl.len() as f64, self.mean());
        let squares: f64 = self.kl.iter().map(|kl| (kl - mean).powi(2)).sum();
        (squares / count.max(1.0) / (count - 1.0).max(1.0)).sqrt()
    }

    /// Returns a quantile of the divergences: 0.5 for the median, 1 for the largest.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.kl.len().saturating_sub(1);
        let at = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
        self.kl.get(at).copied().unwrap_or(0.0)
    }

    /// Share of tokens at which both have the same most likely token.
    pub fn agreement(&self) -> f64 {
        self.agreeing as f64 / self.kl.len().max(1) as f64
    }
}

/// Scores an engine's model on `tokens`. `progress` receives the number of tokens predicted so far.
///
/// # Errors
/// As [`Engine::logprobs`], or if logits are not finite.
pub fn perplexity(
    engine: &Engine,
    tokens: &[u32],
    windows: &Windows,
    progress: &dyn Fn(usize),
) -> Result<Score, Error> {
    let mut score = Score::default();
    check_ids(tokens, engine.vocabulary())?;
    for window in windows.over(tokens.len()) {
        let seen = windows.tokens(tokens, &window);
        let before = window.first - window.tokens.start - 1;
        for (logprob, position) in engine
            .logprobs(&seen, before)
            .map_err(|why| in_text(why, &window))?
            .into_iter()
            .zip(window.first..)
        {
            let token_nll = -f64::from(logprob);
            check(token_nll, position)?;
            score.add(token_nll);
        }
        progress(score.tokens);
    }
    Ok(score)
}

/// Compares the predictions of an engine's model with those of `reference`'s, which must have the same vocabulary.
///
/// # Errors
/// As [`perplexity`].
pub fn divergence(
    engine: &Engine,
    reference: &Engine,
    tokens: &[u32],
    windows: &Windows,
    progress: &dyn Fn(usize),
) -> Result<Divergence, Error> {
    let mut result = Divergence::default();
    let vocabulary = engine.vocabulary();
    check_ids(tokens, vocabulary)?;
    for window in windows.over(tokens.len()) {
        let seen = windows.tokens(tokens, &window);
        let mut position = window.first - window.tokens.start - 1;
        while position + 1 < seen.len() {
            // What is before a part is in the engine's prefix cache.
            let end = (position + rows_at_once(vocabulary)).min(seen.len() - 1);
            let [logits, expected] = [engine, reference].map(|engine| engine.logits(&seen[..end], position));
            let in_text = |why| in_text(why, &window);
            let (logits, expected) = (logits.map_err(in_text)?, expected.map_err(in_text)?);
            let pairs = logits
                .par_chunks_exact(vocabulary)
                .zip(expected.par_chunks_exact(vocabulary));
            let rows = pairs.zip(&seen[position + 1..]).map(|((row, expected), &token)| {
                let same = argmax(row) == argmax(expected);
                (
                    kl(expected, row),
                    same,
                    token_nll(row, token),
                    token_nll(expected, token),
                )
            });
            for (kl, same, own, other) in rows.collect::<Vec<_>>() {
                position += 1;
                check(own + other + kl, window.tokens.start + position)?;
                result.kl.push(kl);
                result.agreeing += usize::from(same);
                result.model.add(own);
                result.reference.add(other);
            }
            progress(result.kl.len());
        }
    }
    result.kl.sort_by(f64::total_cmp);
    Ok(result)
}

/// Returns how many rows of logits are held at a time.
fn rows_at_once(vocabulary: usize) -> usize {
    let rows = (MAX_LOGIT_BYTES / size_of::<f32>() / vocabulary).clamp(16, 512);
    // Powers of two need no padding.
    1 << rows.ilog2()
}

/// Returns an error of a window, with the position in the text.
fn in_text(why: Error, window: &Window) -> Error {
    match why {
        Error::NotANumber { position } => Error::NotANumber {
            position: window.tokens.start + position,
        },
        other => other,
    }
}

fn check(number: f64, position: usize) -> Result<(), Error> {
    if number.is_finite() {
        Ok(())
    } else {
        Err(Error::NotANumber { position })
    }
}

/// ln Σ exp(logits).
fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    largest + sum.ln()
}

/// −ln p(token).
fn token_nll(logits: &[f32], token: u32) -> f64 {
    log_sum_exp(logits) - f64::from(logits[token as usize])
}

/// Σ p·ln(p/q) for the distributions of the logits `p` and `q`; 0 if rounding makes it negative.
fn kl(p: &[f32], q: &[f32]) -> f64 {
    let (p_total, q_total) = (log_sum_exp(p), log_sum_exp(q));
    let terms = p.iter().zip(q).map(|(&p, &q)| {
        let (p, q) = (f64::from(p) - p_total, f64::from(q) - q_total);
        p.exp() * (p - q)
    });
    let sum: f64 = terms.sum();
    if sum < 0.0 { 0.0 } else { sum }
}

fn argmax(logits: &[f32]) -> usize {
    let better = |best: usize, next: usize| if logits[next] > logits[best] { next } else { best };
    (1..logits.len()).fold(0, better)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(context: usize, stride: usize) -> Windows {
        Windows {
            context,
            stride,
            bos: None,
        }
    }

    #[test]
    fn overlapping_windows_predict_every_token_once() {
        for (length, context, stride) in [(20, 8, 4), (9, 8, 3), (8, 8, 4), (5, 8, 4), (31, 7, 6)] {
            let predicted: Vec<usize> = windows(context, stride)
                .over(length)
                .into_iter()
                .flat_map(|window| window.first..window.tokens.end)
                .collect();
            assert_eq!(
                predicted,
                (1..length).collect::<Vec<_>>(),
                "{length} {context} {stride}"
            );
        }
    }

    #[test]
    fn disjoint_windows_do_not_predict_their_first_tokens() {
        assert_eq!(windows(4, 4).predicted(12), 9);
        assert_eq!(windows(4, 4).predicted(13), 9);
        assert_eq!(windows(4, 4).predicted(1), 0);
    }

    #[test]
    fn later_windows_start_with_bos() {
        let windows = Windows {
            bos: Some(9),
            ..windows(4, 2)
        };
        let seen: Vec<Vec<u32>> = windows
            .over(6)
            .iter()
            .map(|window| windows.tokens(&[1, 2, 3, 4, 5, 6], window))
            .collect();
        assert_eq!(seen, [[1, 2, 3, 4], [9, 4, 5, 6]]);
    }

    #[test]
    fn measures_known_distributions() {
        let (uniform, sure) = (vec![0.5f32; 4], vec![50.0f32, 0.0, 0.0, 0.0]);
        assert!((token_nll(&uniform, 2) - 4f64.ln()).abs() < 1e-12);
        assert!(token_nll(&sure, 0) < 1e-12);
        assert_eq!(kl(&uniform, &uniform), 0.0);
        // p is (1, 0, 0, 0) and q uniform: ln 4.
        assert!((kl(&sure, &uniform) - 4f64.ln()).abs() < 1e-12);
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
    }

    #[test]
    fn scores_report_the_standard_error() {
        let mut score = Score::default();
        for token_nll in [1.0, 2.0, 3.0] {
            score.add(token_nll);
        }
        assert_eq!(score.nll(), 2.0);
        assert!((score.perplexity() - 2f64.exp()).abs() < 1e-12);
        // Variance 2/3, over n − 1 = 2.
        assert!((score.standard_error() - (1f64 / 3.0).sqrt() * 2f64.exp()).abs() < 1e-12);
    }

    #[test]
    fn rejects_tokens_out_of_the_vocabulary() {
        let checkpoint = refrain_models::Checkpoint::synthetic("tiny:f32").expect("a checkpoint");
        let options = crate::LoadOptions::default();
        let model = crate::Model::load(&checkpoint, &refrain::Device::cpu(), &options).expect("loads");
        let engine = Engine::start(&model, &crate::EngineOptions::single(16)).expect("starts");
        let beyond = engine.vocabulary() as u32;
        let score = perplexity(&engine, &[1, 2, beyond], &windows(8, 8), &|_| {});
        assert!(
            matches!(score, Err(Error::TokenRange { id, .. }) if id == beyond),
            "{score:?}"
        );
    }
}
