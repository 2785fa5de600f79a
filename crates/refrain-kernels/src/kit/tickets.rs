//! Counters by which the last of several workgroups knows that it is.

/// Their type: an argument `counters_ref tickets` of `pc`.
pub(crate) const COUNTERS: &str =
    "layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer counters_ref { uint at[]; };\n";

/// `arrives_last`, behind the arguments.
pub(crate) const TEXT: &str = include_str!("tickets.glsl");
