//! What a step over several sequences needs: slots of their pages, and messages from the host.

pub mod inbox;
pub mod slots;
