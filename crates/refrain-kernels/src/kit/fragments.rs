//! Fragments: small matrices that a subgroup holds jointly and multiplies on matrix cores
//! (`GL_KHR_cooperative_matrix`).
//!
//! Vulkan does not specify which lane holds which elements. If a probe finds a layout that kernels know, they access
//! elements directly, and weights go from memory to the matrix cores without shared memory. Otherwise fragments pass
//! through shared memory.

use crate::kit::glsl;
use crate::kit::text::SourceBuilder;
pub use crate::vocabulary::{FragmentOrder, MatrixCores};
use crate::{Call, Push, Traits, tuning};

impl MatrixCores {
    /// Defines the fragment size and layout for shaders.
    pub(crate) fn define<'t>(self, traits: &Traits, text: SourceBuilder<'t>) -> SourceBuilder<'t> {
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
            .flag("OPAQUE_LAYOUT", self.is_opaque())
            .flag("LOCKSTEP", traits.vendor == tuning::MESA_SOFTWARE)
            .body(&format!("#define COLUMN_OF(lane, value) ({})\n", self.order.column()))
            .body(include_str!("fragments/order.glsl"))
    }
}

/// Elements per lane of a square fragment with a known layout.
const ELEMENTS: u32 = 8;

/// Number of words that [`probe`] writes.
pub fn probe_words(traits: &Traits, [rows, columns, _]: [u32; 3]) -> usize {
    (3 * traits.subgroup_size * ELEMENTS + rows * columns) as usize
}

/// Returns the call that probes the layout of an instruction's matrices (M, N, K), and its correctness.
///
/// It numbers the elements of each matrix row by row. Operand 0 receives u32 `[3, lanes, 8]`: the numbers that each
/// lane holds of A, of B and of the accumulator, all bits set where it has fewer. Then it receives i32 `[M, N]`, a
/// product.
pub fn probe(traits: &Traits, [rows, columns, depth]: [u32; 3]) -> Call {
    let text = SourceBuilder::with_fragments(traits, "fragments.probe")
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

/// The product that [`probe`] must write.
fn product([rows, columns, depth]: [u32; 3]) -> impl Iterator<Item = u32> {
    let a = |i: u32| (i * 7 % 5) as i32 - 2;
    let b = |i: u32| (i * 3 % 7) as i32 - 3;
    (0..rows * columns).map(move |at| {
        let (row, column) = (at / columns, at % columns);
        let products = (0..depth).map(|k| a(row * depth + k) * b(k * columns + column));
        (at as i32 + products.sum::<i32>()) as u32
    })
}

/// Detects the matrix cores of a device whose instructions multiply `shapes`. Returns the first shape that works, with
/// its layout if kernels know it and `may_use_layout` is set.
///
/// `run` runs [`probe`] with a shape and returns its output, or `None` if it fails.
pub fn detect(
    traits: &Traits,
    shapes: &[[u32; 3]],
    may_use_layout: bool,
    mut run: impl FnMut([u32; 3]) -> Option<Vec<u32>>,
) -> Option<MatrixCores> {
    let mut works = |shape: [u32; 3]| run(shape).filter(|written| multiplies(traits, shape, written));
    let known = |[size, columns, depth]: [u32; 3], written: &[u32]| {
        let orders = FragmentOrder::ALL
            .into_iter()
            .filter(|_| may_use_layout && columns == size && depth == size);
        let mut orders = orders.map(|order| MatrixCores::with_order(size, order));
        orders.find(|cores| is_held(traits, *cores, written))
    };
    let cores = shapes.iter().find_map(|&shape| {
        let written = works(shape)?;
        known(shape, &written).or_else(|| MatrixCores::opaque(shape, traits.subgroup_size))
    })?;
    let narrowed = cores.narrowed();
    let offered = !cores.is_opaque() && cores.values() > 1 && shapes.contains(&narrowed.shape);
    let narrow = offered && works(narrowed.shape).is_some_and(|written| is_held(traits, narrowed, &written));
    Some(MatrixCores { narrow, ..cores })
}

/// Whether the probe's output has the right product.
fn multiplies(traits: &Traits, shape: [u32; 3], written: &[u32]) -> bool {
    let held = (3 * traits.subgroup_size * ELEMENTS) as usize;
    written.len() == probe_words(traits, shape) && product(shape).eq(written[held..].iter().copied())
}

/// Whether the probe's output has the given layout.
fn is_held(traits: &Traits, cores: MatrixCores, written: &[u32]) -> bool {
    cores.size * cores.size == traits.subgroup_size * ELEMENTS && written.starts_with(&held(traits, cores))
}

/// The element numbers that [`probe`] writes for the given layout: of A, of B and of the accumulator.
fn held(traits: &Traits, cores: MatrixCores) -> Vec<u32> {
    let (lanes, size, columns, values) = (traits.subgroup_size, cores.size, cores.columns(), cores.values());
    let mut numbers = Vec::with_capacity((3 * lanes * ELEMENTS) as usize);
    // B is narrow and stored by its rows; narrow accumulators have fewer values of each row per lane.
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
            let [row, column] = cores.order.position(size, lanes, values, lane, number);
            numbers.push([row * size + column, column * columns + row, row * columns + column][matrix]);
        }
    }
    numbers
}

/// The head of kernels with fragments: the common head with more extensions.
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

    /// The probe's output for the given layout, with correct products.
    fn answer(traits: &Traits, cores: MatrixCores) -> Vec<u32> {
        held(traits, cores).into_iter().chain(product(cores.shape)).collect()
    }

    #[test]
    fn quads_layout_has_two_pairs_per_row_and_one_in_narrow_accumulators() {
        let cores = MatrixCores::with_order(16, FragmentOrder::Quads);
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
    fn detect_recognises_known_layouts_and_treats_others_as_opaque() {
        for (order, size, lanes) in [(FragmentOrder::Quads, 16, 32), (FragmentOrder::Columns, 8, 8)] {
            let traits = of_lanes(lanes);
            let cores = MatrixCores::with_order(size, order);
            let of = |written: &[u32], may_use_layout| {
                detect(&traits, &[cores.shape], may_use_layout, |_| Some(written.to_vec()))
            };
            let opaque = MatrixCores::opaque([size; 3], lanes);
            let mut written = answer(&traits, cores);
            assert_eq!(of(&written, true), Some(cores));
            assert_eq!(of(&written, false), opaque, "the layout may not be used");
            written.swap(0, 1);
            assert_eq!(of(&written, true), opaque);
            *written.last_mut().expect("some") += 1;
            assert_eq!(of(&written, true), None, "wrong products");
        }
    }

    #[test]
    fn narrow_fragments_are_detected_if_their_layout_matches() {
        let traits = of_lanes(32);
        let cores = MatrixCores::with_order(16, FragmentOrder::Quads);
        let narrowed = cores.narrowed();
        let is_narrow = |shapes: &[[u32; 3]], swapped: bool| {
            let found = detect(&traits, shapes, true, |shape| {
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
    fn opaque_fragments_support_instructions_of_any_shape() {
        let size = |shape, lanes| {
            let traits = of_lanes(lanes);
            let mut written = vec![u32::MAX; (3 * lanes * ELEMENTS) as usize];
            written.extend(product(shape));
            detect(&traits, &[shape], true, |_| Some(written.clone())).map(|cores| cores.size)
        };
        assert_eq!(size([16, 16, 16], 32), Some(16));
        assert_eq!(size([16, 16, 16], 64), Some(32), "at least eight elements per lane");
        assert_eq!(size([16, 8, 16], 32), Some(16));
        assert_eq!(size([8, 16, 16], 16), Some(16));
        assert_eq!(size([8, 8, 16], 8), Some(16));
        assert_eq!(size([8, 8, 8], 32), Some(16));
        assert_eq!(size([64, 64, 16], 32), None);
        assert_eq!(size([12, 16, 16], 32), None);
    }
}
