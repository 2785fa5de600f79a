//! Norms over the last dimension.

pub mod rms_norm;
