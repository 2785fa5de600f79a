//! Options for lowering.

/// Options for lowering a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LowerOptions {
    /// Whether nodes that one dispatch can compute are joined ([`super::regions()`]).
    pub regions: bool,
    /// Whether every result keeps its own memory, so that all can be inspected after a run.
    pub keep: bool,
}

impl Default for LowerOptions {
    fn default() -> LowerOptions {
        LowerOptions {
            regions: true,
            keep: false,
        }
    }
}
