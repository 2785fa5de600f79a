//! What the sizes of a row were measured with.

/// What a row's sizes for a family of kernels were found with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Measurement {
    /// The family.
    pub family: KernelFamily,
    /// The device by its driver's name.
    pub device: &'static str,
    /// The driver.
    pub driver: &'static str,
    /// Year, month and day.
    pub date: &'static str,
    /// What was reached.
    pub figure: &'static str,
}

/// Kernels whose sizes are a part of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelFamily {
    /// Matrix times few vectors.
    Gemv,
    /// Tiled products without matrix cores.
    Tile,
    /// Products on matrix cores.
    Matrix,
    /// Products with the matrices of experts.
    Experts,
    /// Attention of many tokens.
    Attention,
    /// Attention of single tokens.
    Decode,
    /// The gated delta rule.
    Delta,
    /// The causal convolution.
    Convolution,
    /// Norms and other reductions over a row.
    Rows,
}

impl KernelFamily {
    /// All of them.
    pub const ALL: [KernelFamily; 9] = [
        KernelFamily::Gemv,
        KernelFamily::Tile,
        KernelFamily::Matrix,
        KernelFamily::Experts,
        KernelFamily::Attention,
        KernelFamily::Decode,
        KernelFamily::Delta,
        KernelFamily::Convolution,
        KernelFamily::Rows,
    ];
}

/// What a family reached on an H200.
const fn on_h200(family: KernelFamily, figure: &'static str) -> Measurement {
    Measurement {
        family,
        device: "NVIDIA H200",
        driver: "NVIDIA 580.159.04",
        date: "2026-11-23",
        figure,
    }
}

/// By `refrain explain --profile`: the read bandwidth was 4.57 to 4.67 TB/s.
pub(super) const H200_MEASURED: &[Measurement] = &[
    on_h200(
        KernelFamily::Gemv,
        "gate and up of Qwen3-8B: Q4_0 22.1 µs, Q8_0 31.5 µs, BF16 50.9 µs",
    ),
    on_h200(
        KernelFamily::Tile,
        "512 tokens of Qwen3-8B's gate and up, Q4_0: 2,937 µs, 35 TFLOP/s",
    ),
    on_h200(
        KernelFamily::Matrix,
        "gate and up of Qwen3-8B Q4_0, 512 tokens: 305 µs, 338 TFLOP/s",
    ),
    on_h200(
        KernelFamily::Experts,
        "gate and up of Qwen3.5-35B-A3B, MLX 4-bit, a token: 10.2 µs; 512 tokens: 87 µs a matrix",
    ),
    on_h200(
        KernelFamily::Attention,
        "512 tokens of Qwen3-8B: 31.4 µs; behind 16,384: 705 µs, 198 TFLOP/s",
    ),
    on_h200(
        KernelFamily::Decode,
        "Qwen3-8B behind 16,384 tokens: 53.3 µs, 1.26 TB/s of keys and values",
    ),
    on_h200(KernelFamily::Delta, "512 tokens of Qwen3.5-35B-A3B: 184 µs"),
    on_h200(KernelFamily::Convolution, "512 tokens of 8,192 channels: 20.5 µs"),
    on_h200(
        KernelFamily::Rows,
        "512 tokens' queries or keys of Qwen3-8B, head by head: 6.7 µs on average",
    ),
];
