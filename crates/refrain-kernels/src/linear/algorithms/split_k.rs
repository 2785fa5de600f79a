//! Split-K: several workgroups share the sums of a tile if there are too few tiles to fill the device.

use crate::kit::arguments::PushArguments;
use crate::kit::text::SourceBuilder;
use crate::kit::tickets;
use crate::{Push, Traits};

/// Number of splits per tile, and the workspace for their partial sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SplitK {
    /// Workgroups per tile.
    pub splits: usize,
    /// Partial sums of a workgroup, in floats. Each invocation stores vectors of four.
    pub sums: usize,
    /// Number of tiles.
    pub tiles: usize,
}

impl SplitK {
    /// One workgroup per tile.
    pub(crate) const NONE: SplitK = SplitK {
        splits: 1,
        sums: 0,
        tiles: 0,
    };

    /// Returns the number of splits for a wanted number, if K has `pieces` pieces. It is 1 without
    /// [`Traits::tickets`].
    pub(crate) fn clamp_splits(traits: &Traits, wanted: u32, pieces: usize) -> usize {
        if traits.tickets {
            (wanted as usize).min(pieces).max(1)
        } else {
            1
        }
    }

    /// Size of the workspace in words.
    pub(crate) fn words(&self) -> usize {
        if self.splits > 1 {
            self.splits * self.sums * self.tiles
        } else {
            0
        }
    }

    /// Number of ticket counters, which are zero before and after.
    pub(crate) fn tickets(&self) -> usize {
        if self.splits > 1 { self.tiles } else { 0 }
    }

    /// Adds the addresses of the partial sums, `bytes` into the operand `workspace`, and of the counters, which are the
    /// next operand.
    pub(crate) fn arguments(&self, workspace: usize, bytes: u64, arguments: &mut PushArguments) {
        let names = ["sums_ref partial_sums", "counters_ref tickets"];
        for (name, address) in names.into_iter().zip(self.addresses(workspace, bytes)) {
            arguments.address(name, address);
        }
    }

    /// The addresses of [`SplitK::arguments`]; none without splits.
    pub(crate) fn addresses(&self, workspace: usize, bytes: u64) -> impl Iterator<Item = Push> {
        let at = |operand, bytes| Push::Address { operand, bytes };
        let both = [at(workspace, bytes), at(workspace + 1, 0)];
        both.into_iter().take(if self.splits > 1 { 2 } else { 0 })
    }

    /// Adds the functions that return a workgroup's split and find the last one to arrive. They must follow the
    /// arguments and other declarations of shared memory.
    pub(crate) fn functions<'t>(&self, text: SourceBuilder<'t>) -> SourceBuilder<'t> {
        let tickets = if self.splits > 1 { tickets::TEXT } else { "" };
        text.body(tickets).body(include_str!("split_k.glsl"))
    }

    /// Declares the types that the arguments refer to.
    pub(crate) fn define<'t>(&self, text: SourceBuilder<'t>) -> SourceBuilder<'t> {
        let text = text.define("K_SPLITS", self.splits);
        if self.splits == 1 {
            return text;
        }
        text.body(
            "layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer sums_ref { vec4 at[]; };\n",
        )
        .body(tickets::COUNTERS)
    }
}
