//! What the sizes of a row were measured with.

/// What a row's sizes for a family of kernels were found with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Measurement {
    /// The family.
    pub family: Family,
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
pub enum Family {
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

impl Family {
    /// All of them.
    pub const ALL: [Family; 9] = [
        Family::Gemv,
        Family::Tile,
        Family::Matrix,
        Family::Experts,
        Family::Attention,
        Family::Decode,
        Family::Delta,
        Family::Convolution,
        Family::Rows,
    ];
}
