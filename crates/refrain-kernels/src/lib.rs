//! Shaders, and beside each family its contract and its plain-Rust reference
