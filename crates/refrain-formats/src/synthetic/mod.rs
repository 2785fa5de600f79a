//! Random weights for benchmarks and tests without a download: deterministic, and generated on each read.

mod format;
mod random;
mod scales;

pub use format::SyntheticFormat;
pub use random::RandomTensor;

/// Names of the formats, used as `FORMAT` in `ARCH:FORMAT`: safetensors (`f32`, `f16`, `bf16`), GGUF (`q8_0` to
/// `q4_k_m`), and MLX with 2 to 8 bits (`mlx4` with groups of 64, or another size as in `mlx4-g32`).
pub fn formats() -> Vec<&'static str> {
    format::names()
}
