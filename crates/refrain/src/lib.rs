//! Lazy arrays, primitives, lowering passes, plans and their executors
