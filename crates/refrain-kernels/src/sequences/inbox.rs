//! Words that the host puts into states between two runs of a recorded program.
//!
//! The host never writes what a running program reads. It writes a message of its own, and this kernel,
//! at the head of the next submission, puts the message's words where they belong.

use crate::kit::text::Text;
use crate::{Call, DType, Push, Traits};

/// Words of a message before its entries.
const HEADER: usize = 4;
/// Words of an entry: the address's low and high half, the value, one unused.
const ENTRY: usize = 4;

/// Words of a message with `entries` entries.
pub fn message_words(entries: usize) -> usize {
    HEADER + ENTRY * entries
}

/// A message that puts each value at its address (a multiple of 4). No address may come twice.
pub fn message(entries: &[(u64, u32)]) -> Vec<u32> {
    let mut words = vec![entries.len() as u32, 0, 0, 0];
    for &(address, value) in entries {
        words.extend([address as u32, (address >> 32) as u32, value, 0]);
    }
    words
}

/// The call that carries a message out. Operand: the message, u32, 0.
pub fn call(traits: &Traits) -> Call {
    Call {
        kernel: Text::new(traits, "inbox")
            .input("message", DType::U32)
            .body(include_str!("inbox.comp"))
            .kernel(vec![(0, traits.workgroup(64))]),
        groups: [1, 1, 1],
        push: vec![Push::Address { operand: 0, bytes: 0 }],
    }
}
