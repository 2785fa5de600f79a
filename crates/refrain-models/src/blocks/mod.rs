//! What architectures are made of.

mod attention;
mod delta_net;
mod embedding;
mod feed_forward;
mod frequencies;
mod latent;
mod mixture;
mod mlp;
mod norm;
mod rope;
mod router;

pub use attention::{Attention, AttentionStyle, QkNorm, QkvStyle};
pub use delta_net::DeltaNet;
pub use embedding::{Embedding, Head};
pub use feed_forward::FeedForward;
pub(crate) use frequencies::frequencies;
pub use latent::LatentProjections;
pub use mixture::Mixture;
pub use mlp::{Mlp, MlpStyle};
pub use norm::{BlockNorm, NormKind};
pub use refrain::nn::{Linear, Weight};
pub use rope::{Rope, Ropes};
pub use router::Router;
