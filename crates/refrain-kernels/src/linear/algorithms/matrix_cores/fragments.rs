//! Sizes of the fragments of a product.

use crate::kit::text::SourceBuilder;
use crate::linear::problem::SectionPlan;
use crate::tuning::MatrixTile;
use crate::vocabulary::MatrixCores;
use crate::{Traits, tuning};

/// Runs of eight values per invocation that packs x. Fewer runs make the kernel shorter. On an H100 with six, two and
/// one runs, 512 tokens of Qwen3-0.6B F16 reach 112,130, 116,480 and 116,780 tokens/s; 8 sequences of Qwen3-8B Q4_K_M
/// reach 1,901, 1,937 and 1,945.
const RUNS_HELD: usize = 1;

/// Fragments and tile of a product.
pub(crate) struct Fragments {
    pub cores: MatrixCores,
    /// Lanes per subgroup.
    pub(super) lanes: u32,
    /// Consecutive values of a row that a lane loads at once.
    pub(super) chunk: usize,
    /// Blocks of K. A block is a chunk for each lane that shares a row.
    pub blocks: usize,
    pub tile: MatrixTile,
}

impl Fragments {
    /// f16 values per packed vector of x: whole blocks for each term.
    pub(crate) fn depth(&self) -> usize {
        let row = self.blocks * self.chunk * self.cores.lanes_per_row() as usize;
        self.tile.x_terms as usize * row
    }

    /// Tokens per tile.
    pub(crate) fn tile_tokens(&self) -> usize {
        (self.tile.tokens * self.cores.columns()) as usize
    }

    /// Fragments of rows per subgroup, for all matrices of a section.
    pub(super) fn matrices(&self, sections: &[&SectionPlan<'_>]) -> u32 {
        let parts = sections[0].parts.len() as u32;
        self.tile.rows / parts * parts
    }

    /// Number of workgroups along the rows of a group of sections.
    pub(super) fn row_blocks(&self, sections: &[&SectionPlan<'_>]) -> usize {
        let each = self.matrices(sections) / sections[0].parts.len() as u32;
        let rows = (self.tile.row_subgroups() * each * self.cores.size) as usize;
        sections.iter().map(|s| s.rows.div_ceil(rows)).sum()
    }

    /// Fragments along k per chunk.
    pub(super) fn steps(&self) -> u32 {
        self.chunk as u32 / self.cores.values()
    }

    /// Returns invocations per vector of x and runs of eight values per invocation, for packing.
    pub(crate) fn packing(&self, traits: &Traits) -> [u32; 2] {
        let row = self.blocks * self.chunk * self.cores.lanes_per_row() as usize;
        let runs = row.div_ceil(8);
        let wanted = runs.div_ceil(RUNS_HELD).next_power_of_two() as u32;
        let lanes = wanted.min(traits.max_invocations).max(tuning::lanes(traits));
        [lanes, runs.div_ceil(lanes as usize) as u32]
    }

    /// Defines the fragment layout and the sizes for shaders.
    pub(crate) fn define<'t>(&self, traits: &Traits, text: SourceBuilder<'t>) -> SourceBuilder<'t> {
        self.cores
            .define(
                traits,
                text.define("CHUNK", self.chunk).define("X_TERMS", self.tile.x_terms),
            )
            .body(include_str!("blocks.glsl"))
    }
}
