//! Checkpoints of random weights in the shapes of real models: for measurements and tests without a
//! download.
//!
//! [`Checkpoint::synthetic`](crate::Checkpoint::synthetic) makes one on the spot; [`write()`] writes
//! the same weights to disk, in the layout that its format has everywhere.

mod architectures;
mod random;
mod spec;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use random::Random;
pub(crate) use spec::Spec;
pub use write::write;

pub use crate::write::Progress;

/// The known architectures, as `ARCH` of `ARCH:FORMAT` names them.
pub fn architectures() -> Vec<&'static str> {
    architectures::ALL.iter().map(|(name, _)| *name).collect()
}

/// The known formats, as `FORMAT` of `ARCH:FORMAT` names them: `f16`, `q8_0` and `q4_0` (GGUF) and
/// `mlx4` (MLX, 4 bits, groups of 64).
pub fn formats() -> Vec<&'static str> {
    spec::FORMATS.iter().map(|(name, _)| *name).collect()
}
