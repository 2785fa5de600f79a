//! Random weights in place of a file's, for measurements and tests without a download: always the same, made when they
//! are read.

mod format;
mod random;
mod scales;

pub use format::SyntheticFormat;
pub use random::RandomTensor;

/// The known formats, as `FORMAT` of `ARCH:FORMAT` names them: safetensors (`f32`, `f16`, `bf16`), GGUF
/// (`q8_0` to `q4_k_m`), and MLX's of 2 to 8 bits (`mlx4` in groups of 64, or of another size as in
/// `mlx4-g32`).
pub fn formats() -> Vec<&'static str> {
    format::names()
}
