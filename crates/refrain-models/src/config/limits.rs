//! Limits of hyperparameters. No model exceeds them; larger values mean a corrupt file.

use refrain_formats::Error;

/// Maximum width of the residual stream and of an MLP.
pub(crate) const MAX_WIDTH: usize = 1 << 20;
/// Maximum number of layers.
pub const MAX_LAYERS: usize = 1 << 12;
/// Maximum number of heads.
pub(crate) const MAX_HEADS: usize = 1 << 12;
/// Maximum number of experts.
pub(crate) const MAX_EXPERTS: usize = 1 << 12;
/// Maximum vocabulary size.
pub(crate) const MAX_VOCABULARY: usize = 1 << 24;
/// Maximum context length in tokens.
pub(crate) const MAX_POSITION: usize = 1 << 31;
/// Maximum size of a Gated DeltaNet head, which the kernels keep in registers.
pub(crate) const MAX_HEAD_DIM: usize = 512;
/// Maximum kernel size of a short convolution, which the kernels keep in registers.
pub(crate) const MAX_CONV_KERNEL: usize = 16;

/// Returns an error for a count that is zero or above its limit.
pub(crate) fn check_counts(file: &str, counts: &[(&str, usize, usize)]) -> Result<(), Error> {
    match counts.iter().find(|(_, value, limit)| *value == 0 || value > limit) {
        None => Ok(()),
        Some((name, value, limit)) => Err(Error::file(
            file,
            format!("{name} is {value}, which is not between 1 and {limit}"),
        )),
    }
}
