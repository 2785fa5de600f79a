//! Writes from the host to states between two runs of a recorded program.
//!
//! The host never writes memory that a running program reads. It writes a message buffer, and this kernel, the first of
//! the next submission, copies the message's words to their addresses.

use crate::kit::text::SourceBuilder;
use crate::{Call, DType, Push, Traits};

/// Words of a message before its entries.
const HEADER: usize = 4;
/// Words of an entry: the address's low and high half, the value, one unused.
const ENTRY: usize = 4;

/// Returns the number of words of a message with `entries` entries.
pub fn message_words(entries: usize) -> usize {
    HEADER + ENTRY * entries
}

/// Returns a message that writes each value to its address (a multiple of 4). Addresses must be distinct.
pub fn message(entries: &[(u64, u32)]) -> Vec<u32> {
    let mut words = vec![entries.len() as u32, 0, 0, 0];
    for &(address, value) in entries {
        words.extend([address as u32, (address >> 32) as u32, value, 0]);
    }
    words
}

/// Returns the call that applies a message. Operand: the message, u32, 0.
pub fn call(traits: &Traits) -> Call {
    Call {
        kernel: SourceBuilder::new(traits, "inbox")
            .input("message", DType::U32)
            .body(include_str!("inbox.comp"))
            .kernel(vec![(0, traits.workgroup(64))]),
        groups: [1, 1, 1],
        push: vec![Push::Address { operand: 0, bytes: 0 }],
    }
}
