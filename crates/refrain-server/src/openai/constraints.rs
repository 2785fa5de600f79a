//! Constraints of tokens beside grammars: a minimal length, and a given beginning.

use refrain_engine::TokenConstraint;

/// Keeps an answer from ending before it has `left` more tokens.
pub(super) struct MinTokens {
    left: usize,
    ends: Vec<u32>,
    inner: Option<Box<dyn TokenConstraint>>,
}

impl MinTokens {
    /// A constraint that forbids the tokens `ends` among the first `count`, within another constraint.
    pub fn boxed(count: usize, ends: &[u32], inner: Option<Box<dyn TokenConstraint>>) -> Box<dyn TokenConstraint> {
        let ends = ends.to_vec();
        Box::new(MinTokens {
            left: count,
            ends,
            inner,
        })
    }
}

impl TokenConstraint for MinTokens {
    fn restricts(&self) -> bool {
        self.left > 0 || self.inner.as_ref().is_some_and(|inner| inner.restricts())
    }

    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        match &mut self.inner {
            Some(inner) => inner.fill_mask(bits)?,
            None => bits.fill(u32::MAX),
        }
        if self.left == 0 {
            return Ok(());
        }
        let all = bits.to_vec();
        self.ends.iter().for_each(|id| clear(bits, *id));
        // A grammar that admits nothing but the end wins.
        if bits.iter().all(|word| *word == 0) {
            bits.copy_from_slice(&all);
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        self.left = self.left.saturating_sub(1);
        match &mut self.inner {
            Some(inner) => inner.accept(token),
            None => Ok(false),
        }
    }
}

fn clear(bits: &mut [u32], id: u32) {
    if let Some(word) = bits.get_mut(id as usize / 32) {
        *word &= !(1 << (id % 32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(constraint: &mut dyn TokenConstraint) -> u32 {
        let mut bits = [0];
        constraint.fill_mask(&mut bits).unwrap();
        bits[0]
    }

    #[test]
    fn an_answer_does_not_end_before_its_minimal_length() {
        let mut constraint = MinTokens::boxed(2, &[0, 3], None);
        for _ in 0..2 {
            assert_eq!(mask(&mut *constraint), !0b1001);
            assert_eq!(constraint.accept(5), Ok(false));
        }
        assert_eq!(mask(&mut *constraint), u32::MAX);
        assert_eq!(mask(&mut *MinTokens::boxed(2, &[3], Some(Box::new(Only(3))))), 0b1000);
    }

    /// Allows one token.
    struct Only(u32);

    impl TokenConstraint for Only {
        fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
            bits[0] = 1 << self.0;
            Ok(())
        }

        fn accept(&mut self, _token: u32) -> Result<bool, String> {
            Ok(false)
        }
    }
}
