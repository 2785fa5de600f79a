//! Configuration of Gated DeltaNet layers.

use refrain_formats::{Error, RowOrder};

use super::limits::{MAX_CONV_KERNEL, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, check_counts};

/// Gated DeltaNet layers (arXiv 2412.06464), which replace attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaNetConfig {
    /// Number of query and key heads; divides `value_heads`.
    pub key_heads: usize,
    /// Number of value heads, each with its own state.
    pub value_heads: usize,
    /// Size of a query or key head.
    pub key_dim: usize,
    /// Size of a value head.
    pub value_dim: usize,
    /// Kernel size of the short convolution, including the current token.
    pub conv_kernel: usize,
    /// Which layers are Gated DeltaNets; missing layers are not.
    pub layers: Vec<bool>,
    /// Whether `A_log` holds −exp(A_log), as in GGUF files.
    pub holds_decay_rates: bool,
}

impl DeltaNetConfig {
    /// Channels of the short convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Bytes of state (f32) per sequence and layer: the convolution's window, and the state of each value head.
    pub fn state_bytes(&self) -> u64 {
        let state = self.value_heads * self.value_dim * self.key_dim;
        4 * (self.conv_kernel.saturating_sub(1) * self.channels() + state) as u64
    }

    /// Order in GGUF files of the rows (or columns) of value heads: `size` per head, after the `first` ones.
    pub fn tiled(&self, first: usize, size: usize) -> RowOrder {
        match self.value_heads / self.key_heads.max(1) {
            0 | 1 => RowOrder::AsStored,
            heads => RowOrder::Tiled {
                first,
                groups: self.key_heads,
                heads,
                size,
            },
        }
    }

    pub(super) fn validate(&self, file: &str) -> Result<(), Error> {
        check_counts(
            file,
            &[
                ("linear_num_key_heads", self.key_heads, MAX_HEADS),
                ("linear_num_value_heads", self.value_heads, MAX_HEADS),
                ("linear_key_head_dim", self.key_dim, MAX_HEAD_DIM),
                ("linear_value_head_dim", self.value_dim, MAX_HEAD_DIM),
                ("linear_conv_kernel_dim", self.conv_kernel, MAX_CONV_KERNEL),
                ("the number of layer_types", self.layers.len(), MAX_LAYERS),
            ],
        )?;
        if self.value_heads.is_multiple_of(self.key_heads) {
            Ok(())
        } else {
            Err(Error::file(
                file,
                format!(
                    "linear_num_value_heads ({}) is not a multiple of linear_num_key_heads ({})",
                    self.value_heads, self.key_heads
                ),
            ))
        }
    }
}
