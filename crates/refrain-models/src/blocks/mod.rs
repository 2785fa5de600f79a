//! What architectures are made of.

mod attention;
mod frequencies;
mod linear;
mod mlp;
mod norm;
mod rope;

pub use attention::{Attention, QkNorm};
pub use linear::{Embedding, Head, Linear, Weight};
pub use mlp::Mlp;
pub use norm::Norm;
pub use rope::{Rope, Ropes};
