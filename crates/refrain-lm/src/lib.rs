//! The operations of language models: attention over a paged cache, rotations, recurrences, products with experts,
//! sampling. Each is an [`Operation`](refrain::operation::Operation) like a user's own; those that are faster together
//! bring the passes that join them ([`refrain::rewrite`]).
//!
//! ```
//! use refrain::{Array, Device};
//! use refrain_lm::{RopeParams, rope};
//!
//! let device = Device::cpu();
//! let x = Array::from_slice(&device, &[1.0f32, 0.0], &[1, 1, 2]);
//! let positions = Array::from_slice(&device, &[1], &[1]);
//! let frequencies = Array::from_slice(&device, &[std::f32::consts::FRAC_PI_2], &[1]);
//! let turned = rope(&x, &positions, &frequencies, RopeParams::new(2)).to_vec::<f32>()?;
//! assert!(turned[0].abs() < 1e-6 && (turned[1] - 1.0).abs() < 1e-6);
//! # Ok::<(), refrain::Error>(())
//! ```

mod allowed;
mod attention;
mod experts;
mod likelihood;
mod recurrence;
mod rope;
mod sampling;
pub mod self_test;
mod slots;
mod tokens;

pub use allowed::{only_allowed, words_of_bits};
pub use attention::{paged_attention, paged_attention_with_sinks};
pub use experts::expert_matmul;
pub use likelihood::{Likelihoods, likelihoods};
pub use recurrence::{causal_conv, gated_delta};
pub use refrain_kernels::{attention::AttentionParams, rope::RopeParams, sample};
pub use rope::rope;
pub use sampling::{Sequences, sample};
pub use slots::slots;
pub use tokens::BatchTokens;
