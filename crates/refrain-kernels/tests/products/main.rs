//! Compares products, norms, rotary embedding and attention on the Vulkan device with their references, and validates
//! the source of every kernel variant.

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
mod vec4_stores;
