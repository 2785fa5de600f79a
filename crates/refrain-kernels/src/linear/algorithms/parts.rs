//! Sums over k that several workgroups share (split-K), where results are too few to keep a device busy.

use crate::kit::arguments::PushArguments;
use crate::kit::text::Text;
use crate::kit::tickets;
use crate::{Push, Traits};

/// How many workgroups share each result's sums, and what they leave for the one that adds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SumParts {
    /// Workgroups to a result.
    pub count: usize,
    /// Sums of all invocations of a workgroup, fours for each.
    pub sums: usize,
    /// Results: what one workgroup computes where none shares it.
    pub results: usize,
}

impl SumParts {
    /// One workgroup to a result.
    pub(crate) const ALONE: SumParts = SumParts {
        count: 1,
        sums: 0,
        results: 0,
    };

    /// At most `wanted` workgroups to a result whose sums come in `pieces`; one where the device keeps no tickets.
    pub(crate) fn most(traits: &Traits, wanted: u32, pieces: usize) -> usize {
        if traits.tickets {
            (wanted as usize).min(pieces).max(1)
        } else {
            1
        }
    }

    /// Words of memory that they take.
    pub(crate) fn words(&self) -> usize {
        if self.count > 1 {
            self.count * self.sums * self.results
        } else {
            0
        }
    }

    /// Counters that they need, zero before and after.
    pub(crate) fn tickets(&self) -> usize {
        if self.count > 1 { self.results } else { 0 }
    }

    /// Adds where the sums are left, `bytes` (fours of sums) into the operand `workspace`, and the counters in the one behind it.
    pub(crate) fn arguments(&self, workspace: usize, bytes: u64, arguments: &mut PushArguments) {
        let names = ["sums_ref left_sums", "counters_ref tickets"];
        for (name, address) in names.into_iter().zip(self.addresses(workspace, bytes)) {
            arguments.address(name, address);
        }
    }

    /// The addresses alone; none where nothing is shared.
    pub(crate) fn addresses(&self, workspace: usize, bytes: u64) -> impl Iterator<Item = Push> {
        let at = |operand, bytes| Push::Address { operand, bytes };
        let both = [at(workspace, bytes), at(workspace + 1, 0)];
        both.into_iter().take(if self.count > 1 { 2 } else { 0 })
    }

    /// How invocations know their part, and which comes last: behind the arguments and what else lies in shared memory.
    pub(crate) fn joined<'t>(&self, text: Text<'t>) -> Text<'t> {
        let tickets = if self.count > 1 { tickets::TEXT } else { "" };
        text.body(tickets).body(include_str!("parts.glsl"))
    }

    /// What the arguments refer to.
    pub(crate) fn define<'t>(&self, text: Text<'t>) -> Text<'t> {
        let text = text.define("K_PARTS", self.count);
        if self.count == 1 {
            return text;
        }
        text.body(
            "layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer sums_ref { vec4 at[]; };\n",
        )
        .body(tickets::COUNTERS)
    }
}
