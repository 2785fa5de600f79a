//! Words that the host writes into states between runs.

use crate::storage::Storage;
use crate::{Array, Error};

/// Maximum number of words that one message writes.
pub const MAX_INBOX_WORDS: usize = 4096;
/// Words that the host writes into a state before a run.
#[derive(Clone, Debug)]
pub struct Write {
    /// The state, as a whole.
    pub state: Array,
    /// Index of the first 4-byte word that is written.
    pub at: usize,
    /// The new words.
    pub words: Vec<u32>,
}

/// The state's storage, if the words lie within it.
pub(super) fn target_state(write: &Write) -> Result<Storage, Error> {
    let words = write.state.count() * write.state.dtype().size() / 4;
    let inside = write.at.checked_add(write.words.len()).is_some_and(|end| end <= words);
    let storage = write.state.whole_state().filter(|_| inside);
    storage.ok_or_else(|| {
        let end = write.at.saturating_add(write.words.len());
        Error::Call(format!(
            "words {}..{end} are not within a state: {:?}",
            write.at, write.state
        ))
    })
}
