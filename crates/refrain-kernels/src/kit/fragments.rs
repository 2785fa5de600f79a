//! Fragments: small matrices that a subgroup holds together, multiplied by its matrix cores
//! (`GL_KHR_cooperative_matrix`).
//!
//! Vulkan does not say which lane holds which elements. Where a probe finds an order that kernels know, they
//! set and read elements one by one, and weights go from memory to the cores without a way through shared
//! memory. Elsewhere products pass their fragments through it.

use crate::kit::glsl;
use crate::kit::text::Text;
pub use crate::vocabulary::{FragmentOrder, MatrixCores};
use crate::{Call, Push, Traits};

impl MatrixCores {
    /// Adds what shaders call the size and the order.
    pub(crate) fn define<'t>(self, traits: &Traits, text: Text<'t>) -> Text<'t> {
        text.define("FRAGMENT", format!("{}u", self.size))
            .define("LANES_PER_ROW", format!("{}u", self.lanes_per_row()))
            .define("SUBGROUP", format!("{}u", traits.subgroup_size))
            .define("VALUES", self.values())
            .flag("HIDDEN_ORDER", self.is_hidden())
            .body(&format!("#define COLUMN_OF(lane, value) ({})\n", self.order.column()))
            .body(include_str!("fragments/order.glsl"))
    }
}

/// Elements of a fragment that a lane holds.
pub const ELEMENTS: u32 = 8;

/// Words that [`probe`] writes.
pub fn probe_words(traits: &Traits) -> usize {
    (3 * traits.subgroup_size * ELEMENTS) as usize
}

/// The call that tells the order: of a matrix `[size, size]` whose elements are numbered row by row it
/// writes (operand 0, u32 `[3, lanes, 8]`) the numbers that each lane holds as A, as B and as sums.
pub fn probe(traits: &Traits, size: u32) -> Call {
    let text = Text::with_fragments(traits, "fragments.probe")
        .define("SIZE", size)
        .define("LANES", traits.subgroup_size)
        .body(include_str!("fragments/probe.comp"));
    Call {
        kernel: text.kernel(Vec::new()),
        groups: [1, 1, 1],
        push: vec![Push::Address { operand: 0, bytes: 0 }],
    }
}

/// The order in which a device holds fragments, from what [`probe`] wrote: hidden if it is not one that kernels
/// know, none if its lanes do not share fragments as kernels do.
pub fn order(traits: &Traits, size: u32, written: &[u32]) -> Option<FragmentOrder> {
    let lanes = traits.subgroup_size;
    if size * size != lanes * ELEMENTS || written.len() != probe_words(traits) {
        return None;
    }
    let is = |order: &FragmentOrder| {
        (0..lanes * ELEMENTS).all(|at| {
            let (row, column) = order.place(size, lanes, at / ELEMENTS, at % ELEMENTS);
            let of = |matrix: u32| written[(matrix * lanes * ELEMENTS + at) as usize];
            let (straight, across) = (row * size + column, column * size + row);
            [of(0), of(1), of(2)] == [straight, across, straight]
        })
    };
    let known = FragmentOrder::ALL.into_iter().find(is);
    Some(known.unwrap_or(FragmentOrder::Hidden))
}

/// What kernels with fragments need beside the usual head.
pub(crate) fn head(traits: &Traits) -> String {
    let extensions = [
        "GL_KHR_cooperative_matrix",
        "GL_KHR_shader_subgroup_basic",
        "GL_KHR_shader_subgroup_shuffle",
        "GL_EXT_shader_explicit_arithmetic_types_float16",
    ];
    let required = extensions.map(|name| format!("#extension {name} : require\n")).concat();
    glsl::head_with(traits, &format!("#pragma use_vulkan_memory_model\n{required}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_known_by_what_lanes_hold_and_any_other_is_hidden() {
        for (order, size, lanes) in [(FragmentOrder::Quads, 16, 32), (FragmentOrder::Columns, 8, 8)] {
            let traits = Traits {
                subgroup_size: lanes,
                ..Traits::minimal()
            };
            let mut written = Vec::new();
            for is_b in [false, true, false] {
                for at in 0..lanes * ELEMENTS {
                    let (row, column) = order.place(size, lanes, at / ELEMENTS, at % ELEMENTS);
                    written.push(if is_b { column * size + row } else { row * size + column });
                }
            }
            assert_eq!(super::order(&traits, size, &written), Some(order));
            written.swap(0, 1);
            assert_eq!(super::order(&traits, size, &written), Some(FragmentOrder::Hidden));
            assert_eq!(super::order(&traits, 2 * size, &written), None);
        }
    }
}
