//! How many tokens running requests will still need, so that admission leaves pages for them.

/// Tokens beyond which a text is not expected to grow, however long it may become.
const MAX_EXPECTED_TOKENS: usize = 1024;
/// Weight of the newest text in the mean.
const NEWEST_WEIGHT: f64 = 1.0 / 16.0;
/// Margin over the mean.
const MARGIN: f64 = 1.125;

/// The share of their allowed tokens that texts reach, as a moving mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrowthEstimate {
    share: f64,
}

impl Default for GrowthEstimate {
    /// Until texts have ended, all are expected to reach their limits.
    fn default() -> GrowthEstimate {
        GrowthEstimate { share: 1.0 }
    }
}

impl GrowthEstimate {
    /// Returns how many of its `left` tokens a text is expected to need.
    pub fn expected(&self, left: usize) -> usize {
        let left = left.min(MAX_EXPECTED_TOKENS);
        ((left as f64 * self.share * MARGIN).ceil() as usize).min(left)
    }

    /// Notes that a text ended after `generated` of its `allowed` tokens.
    pub fn ended(&mut self, generated: usize, allowed: usize) {
        let reached = generated as f64 / allowed.clamp(1, MAX_EXPECTED_TOKENS) as f64;
        self.share += NEWEST_WEIGHT * (reached.min(1.0) - self.share);
    }

    /// Notes that pages ran out: texts grow longer than expected.
    pub fn exceeded(&mut self) {
        self.share = f64::midpoint(self.share, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expects_full_length_at_first_and_less_after_short_texts() {
        let mut growth = GrowthEstimate::default();
        assert_eq!([0, 1, 100, 5000].map(|left| growth.expected(left)), [0, 1, 100, 1024]);
        (0..200).for_each(|_| growth.ended(10, 100));
        assert_eq!([0, 1, 100].map(|left| growth.expected(left)), [0, 1, 12]);
        growth.exceeded();
        assert_eq!(growth.expected(100), 62);
        (0..200).for_each(|_| growth.ended(3000, 8000));
        assert_eq!(growth.expected(100), 100);
    }
}
