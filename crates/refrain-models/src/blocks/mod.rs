//! What architectures are made of.

mod attention;
mod delta_net;
mod frequencies;
mod linear;
mod mixture;
mod mlp;
mod norm;
mod rope;

pub use attention::{Attention, QkNorm, QkvStyle};
pub use delta_net::DeltaNet;
pub(crate) use frequencies::frequencies;
pub use linear::{Embedding, Head, Linear, Weight};
pub use mixture::Mixture;
pub use mlp::Mlp;
pub use norm::Norm;
pub use rope::{Rope, Ropes};
