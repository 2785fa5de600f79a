//! Program signatures: cache keys that are equal exactly when two programs differ in nothing but their memory.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A hasher that keeps every word it is fed. Two signatures are equal only if all fed words are, so a lookup never
/// relies on a hash alone.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Signature(Vec<u64>);

impl Signature {
    pub fn with_capacity(words: usize) -> Signature {
        Signature(Vec::with_capacity(words))
    }
}

impl Hasher for Signature {
    fn write(&mut self, bytes: &[u8]) {
        self.0.push(bytes.len() as u64);
        let word = |piece: &[u8]| piece.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let (words, rest) = bytes.as_chunks::<8>();
        self.0.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        self.0.extend((!rest.is_empty()).then(|| word(rest)));
    }

    fn write_u8(&mut self, number: u8) {
        self.0.push(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.0.push(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0.push(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.0.push(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.0.push(number as u64);
    }

    // Four words side by side: each waits for the one before it.
    fn finish(&self) -> u64 {
        let (groups, rest) = self.0.as_chunks::<4>();
        let mut states = [1, 2, 3, 4];
        for group in groups {
            states = std::array::from_fn(|lane| mix(states[lane] ^ group[lane]));
        }
        let all = states.iter().chain(rest);
        all.fold(self.0.len() as u64, |state, &word| mix(state ^ word))
    }
}

impl Hash for Signature {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.finish());
    }
}

/// A map with a fast hasher, for keys that are not attacker-controlled: ids, addresses, [`Signature`]s.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A set like [`FastMap`].
pub(crate) type FastSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// A fast hasher of single numbers.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Mixes the bits of a number: multiplies by an odd constant (of the golden ratio) and folds both halves of the
/// 128-bit product. Every bit of the result depends on the whole number.
fn mix(number: u64) -> u64 {
    let product = u128::from(number ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(of: impl Hash) -> Signature {
        let mut signature = Signature::default();
        of.hash(&mut signature);
        signature
    }

    #[test]
    fn differing_values_have_different_signatures() {
        let same = [signature("ab"), signature("ab")];
        assert_eq!(same[0], same[1]);
        assert_eq!(same[0].finish(), same[1].finish());
        assert_ne!(signature("ab"), signature("ab\0"));
        assert_ne!(signature(("ab", "c")), signature(("a", "bc")));
        assert_ne!(signature(vec![1usize, 2]), signature((vec![1usize], vec![2usize])));
        assert_ne!(signature(Some(0u32)), signature(None::<u32>));
        assert_ne!(signature(vec![1u8; 9]), signature(vec![1u8; 10]));
    }
}
