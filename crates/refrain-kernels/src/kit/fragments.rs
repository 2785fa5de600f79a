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
            .define("TOKEN_COLUMNS", format!("{}u", self.columns()))
            .define("WORD_HALVES", format!("{}u", 8 * self.columns() / self.size))
            .define("X_WORD", if self.columns() < self.size { "uvec2" } else { "uvec4" })
            .define("PART_ROWS", format!("{}u", self.shape[0]))
            .define("PART_COLUMNS", format!("{}u", self.shape[1]))
            .define("PART_DEPTH", format!("{}u", self.shape[2]))
            .flag("HIDDEN_ORDER", self.is_hidden())
            .flag("LOCKSTEP", traits.vendor == tuning::MESA_SOFTWARE)
            .body(&format!("#define COLUMN_OF(lane, value) ({})\n", self.order.column()))
            .body(include_str!("fragments/order.glsl"))
    }
}

/// Elements that a lane holds of a fragment whose order is known, if it is square.
const ELEMENTS: u32 = 8;

/// Words that [`probe`] writes.
pub fn probe_words(traits: &Traits, [rows, columns, _]: [u32; 3]) -> usize {
    (3 * traits.subgroup_size * ELEMENTS + rows * columns) as usize
}

/// The call that tells how lanes hold what an instruction multiplies (rows, columns and depth), and whether it does: of
/// matrices whose elements are numbered row by row it writes (operand 0, u32 `[3, lanes, 8]`) the numbers that each lane
/// holds as A, as B and as sums, all bits set where it has fewer, then (i32 `[rows, columns]`) a product.
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

/// The matrix cores of a device whose instructions multiply `shapes`: of the first that works, in the order in which lanes
/// hold its fragments if kernels know it and may (`told`) use it. `run` answers what [`probe`] writes of a shape, if it
/// runs.
pub fn found(
    traits: &Traits,
    shapes: &[[u32; 3]],
    told: bool,
    mut run: impl FnMut([u32; 3]) -> Option<Vec<u32>>,
) -> Option<MatrixCores> {
    let mut works = |shape: [u32; 3]| run(shape).filter(|written| multiplies(traits, shape, written));
    let known = |[size, columns, depth]: [u32; 3], written: &[u32]| {
        let orders = FragmentOrder::ALL
            .into_iter()
            .filter(|_| told && columns == size && depth == size);
        let mut orders = orders.map(|order| MatrixCores::known(size, order));
        orders.find(|cores| is_held(traits, *cores, written))
    };
    let cores = shapes.iter().find_map(|&shape| {
        let written = works(shape)?;
        known(shape, &written).or_else(|| MatrixCores::hidden(shape, traits.subgroup_size))
    })?;
    let narrowed = cores.narrowed();
    let offered = !cores.is_hidden() && cores.values() > 1 && shapes.contains(&narrowed.shape);
    let narrow = offered && works(narrowed.shape).is_some_and(|written| is_held(traits, narrowed, &written));
    Some(MatrixCores { narrow, ..cores })
}

/// Whether products of a shape, of which [`probe`] wrote this, are right.
fn multiplies(traits: &Traits, shape: [u32; 3], written: &[u32]) -> bool {
    let held = (3 * traits.subgroup_size * ELEMENTS) as usize;
    written.len() == probe_words(traits, shape) && product(shape).eq(written[held..].iter().copied())
}

/// Whether lanes hold fragments as they are said to.
fn is_held(traits: &Traits, cores: MatrixCores, written: &[u32]) -> bool {
    cores.size * cores.size == traits.subgroup_size * ELEMENTS && written.starts_with(&held(traits, cores))
}

/// What [`probe`] writes first where they do: the numbers of A, of B and of sums.
fn held(traits: &Traits, cores: MatrixCores) -> Vec<u32> {
    let (lanes, size, columns, values) = (traits.subgroup_size, cores.size, cores.columns(), cores.values());
    let mut numbers = Vec::with_capacity((3 * lanes * ELEMENTS) as usize);
    // Narrow are B, which lies across, by its rows, and sums, of whose rows a lane has fewer values.
    for (matrix, held_columns, values) in [
        (0, size, values),
        (1, columns, values),
        (2, columns, values * columns / size),
    ] {
        for at in 0..lanes * ELEMENTS {
            let (lane, number) = (at / ELEMENTS, at % ELEMENTS);
            if number >= size * held_columns / lanes {
                numbers.push(u32::MAX);
                continue;
            }
            let [row, column] = cores.order.place(size, lanes, values, lane, number);
            numbers.push([row * size + column, column * columns + row, row * columns + column][matrix]);
        }
    }
    numbers
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

    /// What [`probe`] writes where lanes hold fragments as they are said to, and multiply them.
    fn answer(traits: &Traits, cores: MatrixCores) -> Vec<u32> {
        held(traits, cores).into_iter().chain(product(cores.shape)).collect()
    }

    #[test]
    fn lanes_of_quads_hold_two_pairs_of_a_row_and_of_narrow_sums_one() {
        let cores = MatrixCores::known(16, FragmentOrder::Quads);
        let none = u32::MAX;
        let of = |cores, matrix: usize| held(&of_lanes(32), cores)[(matrix * 32 + 5) * 8..][..8].to_vec();
        assert_eq!(of(cores, 0), [18, 19, 26, 27, 146, 147, 154, 155]);
        assert_eq!(of(cores, 1), [33, 49, 161, 177, 41, 57, 169, 185]);
        assert_eq!(of(cores, 2), of(cores, 0));
        assert_eq!(of(cores.narrowed(), 0), of(cores, 0));
        assert_eq!(of(cores.narrowed(), 1), [17, 25, 81, 89, none, none, none, none]);
        assert_eq!(of(cores.narrowed(), 2), [10, 11, 74, 75, none, none, none, none]);
    }

    #[test]
    fn an_order_is_known_by_what_lanes_hold_and_any_other_is_hidden() {
        for (order, size, lanes) in [(FragmentOrder::Quads, 16, 32), (FragmentOrder::Columns, 8, 8)] {
            let traits = of_lanes(lanes);
            let cores = MatrixCores::known(size, order);
            let of = |written: &[u32], told| found(&traits, &[cores.shape], told, |_| Some(written.to_vec()));
            let hidden = MatrixCores::hidden([size; 3], lanes);
            let mut written = answer(&traits, cores);
            assert_eq!(of(&written, true), Some(cores));
            assert_eq!(of(&written, false), hidden, "it is not to be used");
            written.swap(0, 1);
            assert_eq!(of(&written, true), hidden);
            *written.last_mut().expect("some") += 1;
            assert_eq!(of(&written, true), None, "products are wrong");
        }
    }

    #[test]
    fn fragments_are_narrow_where_a_device_has_such_in_the_same_order() {
        let traits = of_lanes(32);
        let cores = MatrixCores::known(16, FragmentOrder::Quads);
        let narrowed = cores.narrowed();
        let is_narrow = |shapes: &[[u32; 3]], swapped: bool| {
            let found = found(&traits, shapes, true, |shape| {
                let of = [cores, narrowed].into_iter().find(|cores| cores.shape == shape)?;
                let mut written = answer(&traits, of);
                if swapped && of == narrowed {
                    written.swap(0, 1);
                }
                Some(written)
            });
            found.expect("matrix cores").narrow
        };
        assert!(is_narrow(&[cores.shape, narrowed.shape], false));
        assert!(!is_narrow(&[cores.shape, narrowed.shape], true));
        assert!(!is_narrow(&[cores.shape], false));
    }

    #[test]
    fn fragments_of_hidden_order_have_parts_of_any_shape() {
        let size = |shape, lanes| {
            let traits = of_lanes(lanes);
            let mut written = vec![u32::MAX; (3 * lanes * ELEMENTS) as usize];
            written.extend(product(shape));
            found(&traits, &[shape], true, |_| Some(written.clone())).map(|cores| cores.size)
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
