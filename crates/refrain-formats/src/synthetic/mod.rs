//! Checkpoints of random weights in the shapes of real models: for measurements and tests without a
//! download.
//!
//! [`Checkpoint::synthetic`](crate::Checkpoint::synthetic) makes one on the spot; [`write()`] writes
//! the same weights to disk, in the layout that its format has everywhere.

mod architectures;
mod format;
mod random;
mod scales;
mod shapes;
mod spec;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use random::RandomTensor;
pub(crate) use spec::Spec;
pub use write::write;

/// The known architectures, as `ARCH` of `ARCH:FORMAT` names them.
pub fn architectures() -> Vec<&'static str> {
    architectures::ALL.iter().map(|(name, _)| *name).collect()
}

/// The known formats, as `FORMAT` of `ARCH:FORMAT` names them: safetensors (`f32`, `f16`, `bf16`), GGUF
/// (`q8_0` to `q4_k_m`), and MLX's of 2 to 8 bits (`mlx4` in groups of 64, or of another size as in
/// `mlx4-g32`).
pub fn formats() -> Vec<&'static str> {
    format::names()
}
