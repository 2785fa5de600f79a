//! Records of the measurements behind the tuning table.

/// The measurement behind a row's sizes for one kernel family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Measurement {
    /// The kernel family.
    pub family: KernelFamily,
    /// Device name as the driver reports it.
    pub device: &'static str,
    /// Driver and version.
    pub driver: &'static str,
    /// Date as YYYY-MM-DD.
    pub date: &'static str,
    /// Time or throughput that was reached.
    pub result: &'static str,
}

/// Kernel families with sizes in the tuning table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelFamily {
    /// Small-M GEMV.
    Gemv,
    /// Tiled GEMM without matrix cores.
    Tile,
    /// GEMM on matrix cores.
    Matrix,
    /// Grouped GEMM over experts.
    Experts,
    /// Prefill attention.
    Attention,
    /// Decode attention.
    Decode,
    /// The gated delta rule.
    Delta,
    /// The causal convolution.
    Convolution,
    /// Norms and other row reductions.
    Rows,
}

impl KernelFamily {
    /// All families.
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

/// A measurement on an H200.
const fn on_h200(family: KernelFamily, result: &'static str) -> Measurement {
    Measurement {
        family,
        device: "NVIDIA H200",
        driver: "NVIDIA 580.159.04",
        date: "2026-11-23",
        result,
    }
}

/// Measured with `refrain explain --profile`. The read bandwidth was 4.57 to 4.67 TB/s.
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
        "gate and up of Qwen3.5-35B-A3B, MLX 4-bit, one token: 10.2 µs; 512 tokens: 87 µs per matrix",
    ),
    on_h200(
        KernelFamily::Attention,
        "512 tokens of Qwen3-8B: 31.4 µs; after 16,384: 705 µs, 198 TFLOP/s",
    ),
    on_h200(
        KernelFamily::Decode,
        "Qwen3-8B after 16,384 tokens: 53.3 µs, 1.26 TB/s of keys and values",
    ),
    on_h200(KernelFamily::Delta, "512 tokens of Qwen3.5-35B-A3B: 184 µs"),
    on_h200(KernelFamily::Convolution, "512 tokens of 8,192 channels: 20.5 µs"),
    on_h200(
        KernelFamily::Rows,
        "512 tokens' queries or keys of Qwen3-8B, per head: 6.7 µs on average",
    ),
];
