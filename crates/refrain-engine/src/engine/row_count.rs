//! How many rows the decode step has.
//!
//! A step costs time per row, and a step of another width costs compilation. So a step may be a little wider than the
//! requests that decode: kernels compute rows by eights anyway.

/// Steps that a narrower width must suffice before the step becomes narrower.
const STEPS_BEFORE_NARROWER: u32 = 32;
/// The same if half of the rows or fewer are needed.
const STEPS_BEFORE_HALF: u32 = 8;

/// Chooses the rows of each step.
#[derive(Default)]
pub(super) struct RowCount {
    /// Number of steps for which fewer rows would have sufficed.
    steps: u32,
}

impl RowCount {
    /// Returns the rows for `decoding` requests, at least 1, after a step of `now` rows. `soon` is how many may decode
    /// soon. `is_made` says whether the step of a width was made before.
    pub fn choose(&mut self, now: usize, decoding: usize, soon: usize, is_made: impl Fn(usize) -> bool) -> usize {
        let needed = rounded(decoding);
        if needed >= now {
            self.steps = 0;
        }
        if needed > now {
            let wider = widths()
                .skip_while(|&rows| rows < needed)
                .take_while(|&rows| rows <= 2 * needed);
            let made = wider.into_iter().find(|&rows| is_made(rows));
            return made.unwrap_or_else(|| rounded(soon.max(decoding)));
        }
        if needed == now {
            return now;
        }
        self.steps += 1;
        let is_half = 2 * needed <= now;
        let wait = if is_half {
            STEPS_BEFORE_HALF
        } else {
            STEPS_BEFORE_NARROWER
        };
        if self.steps < wait {
            return now;
        }
        let suffices = widths().skip_while(|&rows| rows < needed);
        let mut narrower = suffices.take_while(|&rows| rows < now && (!is_half || rows < 2 * needed));
        // No step is compiled to save less than half of the rows.
        let made = narrower.find(|&rows| is_made(rows));
        made.unwrap_or(if is_half { needed } else { now })
    }
}

/// Returns the widths of steps: 1, 2, 4, 8, 12, and multiples of 8.
pub(super) fn widths() -> impl Iterator<Item = usize> {
    [1, 2, 4, 8, 12].into_iter().chain((2..).map(|eights| 8 * eights))
}

/// Returns the narrowest width for `requests` requests.
pub(super) fn rounded(requests: usize) -> usize {
    widths().find(|&rows| rows >= requests).unwrap_or(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_multiples_of_eight_beyond_twelve() {
        let first: Vec<usize> = widths().take(10).collect();
        assert_eq!(first, [1, 2, 4, 8, 12, 16, 24, 32, 40, 48]);
        assert_eq!(
            [1, 3, 9, 13, 17, 33, 130, 249, 256].map(rounded),
            [1, 4, 12, 16, 24, 40, 136, 256, 256]
        );
    }

    #[test]
    fn grows_at_once_to_a_width_that_is_made_or_will_be_needed() {
        let mut rows = RowCount::default();
        assert_eq!(rows.choose(0, 1, 1, |_| false), 1);
        assert_eq!(
            rows.choose(8, 9, 9, |rows| rows == 16),
            16,
            "16 rows serve while 12 are not made"
        );
        assert_eq!(
            rows.choose(8, 9, 9, |rows| rows == 32),
            12,
            "32 rows are too slow for 9"
        );
        assert_eq!(rows.choose(32, 33, 33, |rows| rows == 64), 64);
        assert_eq!(rows.choose(1, 2, 64, |_| false), 64, "one compilation for a burst");
        assert_eq!(rows.choose(1, 2, 64, |rows| rows == 2), 2);
    }

    #[test]
    fn narrows_only_after_a_while() {
        let mut rows = RowCount::default();
        let mut steps = |now: usize, decoding: usize, is_made: bool| {
            let narrowed = |_: &usize| rows.choose(now, decoding, decoding, |_| is_made) < now;
            (1..=100).find(narrowed)
        };
        assert_eq!(steps(16, 12, true), Some(32));
        assert_eq!(
            steps(16, 12, false),
            None,
            "a step is not compiled to save a quarter of the rows"
        );
        assert_eq!(steps(16, 16, true), None);
        assert_eq!(steps(16, 7, false), Some(8));
        let mut rows = RowCount::default();
        let narrowed = (0..33).map(|_| rows.choose(64, 33, 33, |rows| rows == 48)).last();
        assert_eq!(narrowed, Some(48), "the narrowest that is made");
        let mut rows = RowCount::default();
        // Requests that come and go leave the width alone.
        assert!((0..1000).all(|step| rows.choose(16, if step % 20 == 0 { 16 } else { 12 }, 16, |_| true) == 16));
    }
}
