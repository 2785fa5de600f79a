//! Downloads from a hub that misbehaves, and the cache that they leave.

mod cache;
mod fake;
mod network;
mod outline;
mod refusals;
mod support;
