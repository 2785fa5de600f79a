//! Fragments: small matrices that a subgroup holds together, multiplied by its matrix cores
//! (`GL_KHR_cooperative_matrix`).
//!
//! Vulkan does not say which lane holds which elements. Where a probe finds an order that kernels know, they
//! set and read elements one by one, and weights go from memory to the cores without a way through shared
//! memory. Elsewhere products pass their fragments through it.

use crate::kit::glsl;
use crate::kit::text::Text;
pub use crate::vocabulary::{FragmentOrder, MatrixCores};
use crate::{Call, Push, Traits, tuning};

impl MatrixCores {
    /// Adds what shaders call the size and the order.
    pub(crate) fn define<'t>(self, traits: &Traits, text: Text<'t>) -> Text<'t> {
        text.define("FRAGMENT", format!("{}u", self.size))
            .define("LANES_PER_ROW", format!("{}u", self.lanes_per_row()))
            .define("SUBGROUP", format!("{}u", traits.subgroup_size))
            .define("VALUES", self.values())
            .define("PART_ROWS", format!("{}u", self.shape[0]))
            .define("PART_COLUMNS", format!("{}u", self.shape[1]))
            .define("PART_DEPTH", format!("{}u", self.shape[2]))
            .flag("HIDDEN_ORDER", self.is_hidden())
            .flag("LOCKSTEP", self.is_hidden() && traits.vendor == tuning::MESA_SOFTWARE)
            .body(&format!("#define COLUMN_OF(lane, value) ({})\n", self.order.column()))
            .body(include_str!("fragments/order.glsl"))
    }
}

/// Elements that a lane holds of a fragment whose order is known.
const ELEMENTS: u32 = 8;

/// Words that [`probe`] writes.
pub fn probe_words(traits: &Traits, [rows, columns, _]: [u32; 3]) -> usize {
    (3 * traits.subgroup_size * ELEMENTS + rows * columns) as usize
}

/// The call that tells how lanes hold what an instruction multiplies (rows, columns and depth), and whether it does: of
/// matrices whose elements are numbered row by row it writes (operand 0, u32 `[3, lanes, 8]`) the numbers that each lane
/// holds as A, as B and as sums, then (i32 `[rows, columns]`) a product.
pub fn probe(traits: &Traits, [rows, columns, depth]: [u32; 3]) -> Call {
    let text = Text::with_fragments(traits, "fragments.probe")
        .define("ROWS", format!("{rows}u"))
        .define("COLUMNS", format!("{columns}u"))
        .define("DEPTH", format!("{depth}u"))
        .define("LANES", traits.subgroup_size)
        .body(include_str!("fragments/probe.comp"));
    Call {
        kernel: text.kernel(Vec::new()),
        groups: [1, 1, 1],
        push: vec![Push::Address { operand: 0, bytes: 0 }],
    }
}

/// What [`probe`] writes last, where instructions do what they are to: its own numbers multiplied.
fn product([rows, columns, depth]: [u32; 3]) -> impl Iterator<Item = u32> {
    let a = |i: u32| (i * 7 % 5) as i32 - 2;
    let b = |i: u32| (i * 3 % 7) as i32 - 3;
    (0..rows * columns).map(move |at| {
        let (row, column) = (at / columns, at % columns);
        let products = (0..depth).map(|k| a(row * depth + k) * b(k * columns + column));
        (at as i32 + products.sum::<i32>()) as u32
    })
}

/// The fragments of a device, from what [`probe`] of one of its shapes wrote: of hidden order if it is not one that kernels
/// know. None if kernels are made for no such parts of fragments, or products are wrong.
pub fn found(traits: &Traits, shape: [u32; 3], written: &[u32]) -> Option<MatrixCores> {
    let lanes = traits.subgroup_size;
    let held = (3 * lanes * ELEMENTS) as usize;
    if written.len() != probe_words(traits, shape) || !product(shape).eq(written[held..].iter().copied()) {
        return None;
    }
    let size = shape[0];
    let is = |order: &FragmentOrder| {
        (0..lanes * ELEMENTS).all(|at| {
            let (row, column) = order.place(size, lanes, at / ELEMENTS, at % ELEMENTS);
            let of = |matrix: u32| written[(matrix * lanes * ELEMENTS + at) as usize];
            let (straight, across) = (row * size + column, column * size + row);
            [of(0), of(1), of(2)] == [straight, across, straight]
        })
    };
    let may_be_known = shape == [size; 3] && size * size == lanes * ELEMENTS;
    let known = FragmentOrder::ALL.into_iter().find(|order| may_be_known && is(order));
    match known {
        Some(order) => Some(MatrixCores::known(size, order)),
        None => MatrixCores::hidden(shape, lanes),
    }
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

    fn of_lanes(subgroup_size: u32) -> Traits {
        Traits {
            subgroup_size,
            ..Traits::minimal()
        }
    }

    #[test]
    fn an_order_is_known_by_what_lanes_hold_and_any_other_is_hidden() {
        for (order, size, lanes) in [(FragmentOrder::Quads, 16, 32), (FragmentOrder::Columns, 8, 8)] {
            let traits = of_lanes(lanes);
            let mut written = Vec::new();
            for is_b in [false, true, false] {
                for at in 0..lanes * ELEMENTS {
                    let (row, column) = order.place(size, lanes, at / ELEMENTS, at % ELEMENTS);
                    written.push(if is_b { column * size + row } else { row * size + column });
                }
            }
            written.extend(product([size; 3]));
            assert_eq!(
                found(&traits, [size; 3], &written),
                Some(MatrixCores::known(size, order))
            );
            written.swap(0, 1);
            assert_eq!(
                found(&traits, [size; 3], &written),
                MatrixCores::hidden([size; 3], lanes)
            );
            *written.last_mut().expect("some") += 1;
            assert_eq!(found(&traits, [size; 3], &written), None, "products are wrong");
        }
    }

    #[test]
    fn fragments_of_hidden_order_have_parts_of_any_shape() {
        let size = |shape, lanes| {
            let traits = of_lanes(lanes);
            let mut written = vec![u32::MAX; (3 * lanes * ELEMENTS) as usize];
            written.extend(product(shape));
            found(&traits, shape, &written).map(|cores| cores.size)
        };
        assert_eq!(size([16, 16, 16], 32), Some(16));
        assert_eq!(size([16, 16, 16], 64), Some(32), "eight elements a lane at least");
        assert_eq!(size([16, 8, 16], 32), Some(16));
        assert_eq!(size([8, 16, 16], 16), Some(16));
        assert_eq!(size([8, 8, 16], 8), Some(16));
        assert_eq!(size([8, 8, 8], 32), Some(16));
        assert_eq!(size([64, 64, 16], 32), None);
        assert_eq!(size([12, 16, 16], 32), None);
    }
}
