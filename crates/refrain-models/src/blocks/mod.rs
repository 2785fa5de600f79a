//! Building blocks of the architectures: attention, MLPs, norms, embeddings. Each block lists its tensors, loads
//! them, and has a `forward` on arrays.

mod attention;
mod delta_net;
mod embedding;
mod feed_forward;
mod frequencies;
mod mla;
mod mlp;
mod moe;
mod norm;
mod rope;
mod router;

pub use attention::{Attention, AttentionStyle, QkNorm, QkvStyle};
pub use delta_net::DeltaNet;
pub use embedding::{Embedding, LmHead};
pub use feed_forward::FeedForward;
pub(crate) use frequencies::frequencies;
pub use mla::MlaProjections;
pub use mlp::{Mlp, MlpStyle};
pub use moe::Moe;
pub use norm::{Norm, NormKind};
pub use refrain::nn::{Linear, Weight};
pub use rope::{Rope, Ropes};
pub use router::Router;
