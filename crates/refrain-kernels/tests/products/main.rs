//! Products, norms, rotations and attention on the Vulkan device agree with their references, and
//! every variant's text is valid.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod decode;
mod delta_chunks;
mod delta_nets;
mod delta_rules;
mod dummy_format;
mod expert_projections;
mod experts;
mod fours;
mod matmul;
mod norms;
mod prepare;
mod projections;
mod quantised;
mod recurrences;
mod routers;
mod support;
mod texts;
mod tiles;
