//! What architectures are made of.

mod attention;
mod linear;
mod mlp;
mod rope;

pub use attention::Attention;
pub use linear::{Embedding, Head, Linear, Weight};
pub use mlp::Mlp;
pub use rope::Rope;
