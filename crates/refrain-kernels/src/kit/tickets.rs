//! Ticket counters, by which the last of several workgroups recognises itself.

/// Declares their type, for an argument `counters_ref tickets` of `pc`.
pub(crate) const COUNTERS: &str =
    "layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer counters_ref { uint at[]; };\n";

/// The function `arrives_last`, which must follow the arguments.
pub(crate) const TEXT: &str = include_str!("tickets.glsl");
