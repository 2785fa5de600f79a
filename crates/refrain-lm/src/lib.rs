//! The operations of language models: attention over a paged KV cache, RoPE, recurrences, mixture of experts, sampling.
//!
//! Each is an [`Operation`](refrain::operation::Operation), like a user's own. Operations that are faster when fused
//! come with graph rewrites that fuse them ([`refrain::rewrite`]). This crate knows nothing of models, checkpoints or
//! requests.
//!
//! ```
//! use refrain::{Array, Device}; use refrain_lm::{RopeParams, rope};
//!
//! let device = Device::cpu(); let x = Array::from_slice(&device, &[1.0f32, 0.0], &[1, 1, 2]); let positions =
//! Array::from_slice(&device, &[1], &[1]); let frequencies = Array::from_slice(&device, &[std::f32::consts::FRAC_PI_2],
//! &[1]); let rotated = rope(&x, &positions, &frequencies, RopeParams::new(2)).to_vec::<f32>()?;
//! assert!(rotated[0].abs() < 1e-6 && (rotated[1] - 1.0).abs() < 1e-6);
//! # Ok::<(), refrain::Error>(())
//! ```

mod attention;
mod experts;
mod logprob;
mod recurrence;
mod rope;
mod sampling;
pub mod self_test;
mod slots;
mod token_bitmask;
mod tokens;

pub use attention::{paged_attention, paged_attention_with_sinks, store_rows};
pub use experts::expert_matmul;
pub use logprob::{Logprobs, logprobs};
pub use recurrence::{
    MAX_DEPTHWISE_TAPS, causal_conv, causal_conv_results, causal_conv_state, depthwise_conv, gated_delta,
    gated_delta_decode, gated_delta_from, gated_delta_results, gated_delta_state,
};
pub use refrain_kernels::{
    attention::{AttentionParams, BlockFormat},
    rope::RopeParams,
    sample,
};
pub use rope::rope;
pub use sampling::{Sequences, sample};
pub use slots::slots;
pub use token_bitmask::{apply_token_bitmask, token_bitmask_words};
pub use tokens::BatchTokens;
