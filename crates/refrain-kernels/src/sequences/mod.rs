//! Bookkeeping of a step over several sequences: KV cache slots of tokens, and writes from the host.

pub mod inbox;
pub mod slots;
