//! Model architectures, written only with arrays
