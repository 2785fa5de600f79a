//! Submitted runs.

use refrain_vulkan::Submission;

/// A submitted run of a program, which can be waited for.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub(super) submission: Option<Submission>,
    pub(super) is_timed: bool,
}

impl Run {
    /// Whether [`super::Tape::device_time`] returns its duration.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    pub(super) fn untimed(submission: Option<Submission>) -> Run {
        Run {
            submission,
            is_timed: false,
        }
    }
}
