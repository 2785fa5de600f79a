//! Downloads from a fake hub with faults, and the resulting cache.

mod cache;
mod fake;
mod network;
mod outline;
mod refusals;
mod support;
