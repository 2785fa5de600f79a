//! Sessions: loading, prefill, paged KV cache, decode and sampling
