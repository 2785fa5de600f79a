//! Hashes of tokens and positions, which stand for keys, values, recurrent states and logits, and
//! how pages of them are stored.

use refrain_formats::{Encoding, Plane};

pub const VOCABULARY: u32 = 50;

pub fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
}

pub fn cell(token: u32, position: usize) -> u64 {
    mix(u64::from(token), position as u64)
}

/// Returns what a device makes of tokens: the hash of their cells and of the recurrent state.
pub fn summary(cells: impl Iterator<Item = u64>, state: u64) -> u64 {
    mix(cells.fold(1, mix), state)
}

pub fn advance(state: u64, token: u32, position: usize) -> u64 {
    mix(if position == 0 { 7 } else { state }, u64::from(token))
}

/// Returns the hash of a sequence that is computed alone.
pub fn alone(tokens: &[u32], is_recurrent: bool) -> u64 {
    let numbered = || tokens.iter().zip(0..);
    let state = numbered().fold(0, |state, (&token, position)| advance(state, token, position));
    let cells = numbered().map(|(&token, position)| cell(token, position));
    summary(cells, if is_recurrent { state } else { 0 })
}

/// Returns the token with this hash, among those that a mask allows.
pub fn token_of(hash: u64, mask: Option<&[u32]>) -> u32 {
    let is_allowed = |token: &u32| mask.is_none_or(|bits| bits[*token as usize / 32] >> (token % 32) & 1 == 1);
    let allowed: Vec<u32> = (0..VOCABULARY).filter(is_allowed).collect();
    allowed[(hash >> 33) as usize % allowed.len()]
}

/// Returns words as they are stored.
pub fn plane(words: &[u64]) -> Plane {
    Plane {
        encoding: Encoding::U32,
        row: vec![2],
        bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
    }
}

/// Fills words from what was stored, if it fits.
pub fn fill(words: &mut [u64], planes: &[Plane]) -> bool {
    let [Plane { bytes, .. }] = planes else { return false };
    let (stored, _) = bytes.as_chunks::<8>();
    let fits = stored.len() == words.len();
    if fits {
        let stored = stored.iter().map(|word| u64::from_le_bytes(*word));
        words.iter_mut().zip(stored).for_each(|(word, stored)| *word = stored);
    }
    fits
}
