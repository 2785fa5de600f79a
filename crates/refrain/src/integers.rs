//! Integers of a program that are not part of its signature: positions, lengths and starts of slices.
//!
//! The first program of a signature has them as constants. If a later evaluation has others, the program is lowered once
//! more, and then reads those that changed from memory.

use crate::signature::FastMap;

/// Where a program has an integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum IntegerSource {
    Constant(i32),
    /// The word with this number in the memory that the host writes before the run.
    Word(usize),
}

/// Where a program has each of its integers, in program order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct IntegerSources(Vec<IntegerSource>);

impl IntegerSources {
    /// All are constants.
    pub fn constant(integers: &[i32]) -> IntegerSources {
        IntegerSources(
            integers
                .iter()
                .map(|&integer| IntegerSource::Constant(integer))
                .collect(),
        )
    }

    /// The words with which the program computes with `integers`. `None` if it has other constants, or one word for
    /// integers that differ.
    pub fn words(&self, integers: &[i32]) -> Option<Vec<i32>> {
        let mut words = vec![None; self.word_count()];
        for (source, &integer) in self.0.iter().zip(integers) {
            let fits = match source {
                IntegerSource::Constant(constant) => *constant == integer,
                IntegerSource::Word(number) => *words[*number].get_or_insert(integer) == integer,
            };
            if !fits {
                return None;
            }
        }
        words.into_iter().collect()
    }

    /// Sources for these integers and for those that fitted before. Integers that were equal and are equal share a
    /// word.
    pub fn generalised(&self, integers: &[i32]) -> IntegerSources {
        self.regrouped(integers, |constant, integer| constant != integer)
    }

    /// Sources for the integers of another program, which probably change where these did. `None` if it has another
    /// number of integers, or if none of these changed.
    pub fn adopted(&self, integers: &[i32]) -> Option<IntegerSources> {
        let is_similar = self.0.len() == integers.len() && self.word_count() > 0;
        is_similar.then(|| self.regrouped(integers, |_, _| false))
    }

    /// Words for the integers that have one, and for those of which `changed(constant, integer)` holds.
    fn regrouped(&self, integers: &[i32], changed: impl Fn(i32, i32) -> bool) -> IntegerSources {
        let mut words = FastMap::default();
        let mut word = |key: (u64, i32)| {
            let next = words.len();
            IntegerSource::Word(*words.entry(key).or_insert(next))
        };
        let sources = self.0.iter().zip(integers).map(|(source, &integer)| match *source {
            IntegerSource::Constant(constant) if changed(constant, integer) => {
                word((u64::from(constant as u32) << 1, integer))
            }
            IntegerSource::Constant(_) => IntegerSource::Constant(integer),
            IntegerSource::Word(number) => word(((number as u64) << 1 | 1, integer)),
        });
        IntegerSources(sources.collect())
    }

    pub fn get(&self, number: usize) -> IntegerSource {
        self.0[number]
    }

    pub fn word_count(&self) -> usize {
        let words = self.0.iter().map(|source| match source {
            IntegerSource::Constant(_) => 0,
            IntegerSource::Word(number) => number + 1,
        });
        words.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_change_together_share_a_word() {
        let first = IntegerSources::constant(&[7, 5, 7, 8, 5]);
        assert_eq!(first.words(&[7, 5, 7, 8, 5]), Some(vec![]));
        assert_eq!(first.words(&[8, 5, 8, 9, 5]), None);
        let second = first.generalised(&[8, 5, 8, 9, 5]);
        assert_eq!(second.word_count(), 2);
        assert_eq!(second.words(&[7, 5, 7, 8, 5]), Some(vec![7, 8]));
        assert_eq!(second.words(&[20, 5, 20, 0, 5]), Some(vec![20, 0]));
        assert_eq!(second.words(&[20, 6, 20, 0, 5]), None, "a constant changed");
        assert_eq!(second.words(&[20, 5, 21, 0, 5]), None, "one word for two integers");
        let third = second.generalised(&[20, 6, 21, 0, 5]);
        assert_eq!(third.words(&[1, 2, 3, 4, 5]), Some(vec![1, 2, 3, 4]));
        assert_eq!(third.words(&[1, 2, 3, 4, 6]), None);
        let again = third.generalised(&[1, 2, 3, 4, 6]);
        assert_eq!(again.words(&[1, 2, 3, 4, 9]), Some(vec![1, 2, 3, 4, 9]));
    }

    #[test]
    fn another_program_adopts_the_words_of_a_similar_one() {
        let first = IntegerSources::constant(&[7, 5, 7, 8]);
        assert_eq!(first.adopted(&[7, 5, 7, 8]), None, "nothing changed");
        let second = first.generalised(&[8, 5, 8, 9]);
        assert_eq!(second.adopted(&[1, 2, 3]), None);
        let adopted = second.adopted(&[3, 6, 3, 9]).expect("as many integers");
        assert_eq!(adopted.words(&[3, 6, 3, 9]), Some(vec![3, 9]));
        assert_eq!(adopted.words(&[4, 6, 4, 1]), Some(vec![4, 1]));
        assert_eq!(adopted.words(&[4, 5, 4, 1]), None, "a constant");
        let parted = second.adopted(&[3, 6, 4, 9]).expect("as many integers");
        assert_eq!(parted.words(&[3, 6, 4, 9]), Some(vec![3, 4, 9]));
    }
}
