//! Projections of many tokens on matrix cores: x is packed into fragments of halves, normalised on the way,
//! and each kind of sections is one product.
//!
//! x is rounded to f16, times a power of two for each token that keeps any f32 in range, or taken as the sum of
//! two halves where products cost less than the weights' bytes; weights are rounded to f16 where they have more
//! bits; sums are in f32.

use super::arguments::{Inputs, arguments};
use super::problem::{Planes, Problem, SectionPlan};
use super::source::{declared_input, declared_sections, generated};
use super::{OP, ProjectionCalls};
use crate::arguments::Arguments;
use crate::fragments::MatrixCores;
use crate::text::{Text, grid, hash};
use crate::tuning::{MatrixTile, SharedBy, Tuning};
use crate::{Call, DType, Operand, Push, Traits, Unsupported, tuning};

/// The arguments hold these references; the bodies behind them define what they are to.
const REFERENCES: &str = "layout(buffer_reference) buffer packed_ref;\nlayout(buffer_reference) buffer factors_ref;\n";

/// Whether a device may compute products with such weights here.
pub(super) fn takes(traits: &Traits) -> bool {
    traits.matrix_cores.is_some() && traits.storage16
}

/// Fails where the operands are not what fragments are made from.
pub(super) fn check(problem: &Problem<'_>) -> Result<(), Unsupported> {
    let parts = problem.sections.iter().flat_map(|s| &s.parts);
    for part in parts {
        let takes = match &part.planes {
            Planes::Dense { dtype, wide, .. } => *wide && dtype.size() == 2,
            Planes::Quantised(_) => true,
        };
        let whole = problem.columns > 0 && problem.columns.is_multiple_of(chunk(&part.planes));
        if !takes || !whole || problem.batch.is_some() {
            let what = format!(
                "no fragments of {} columns and {}",
                problem.columns,
                part.planes.weights()
            );
            return Err(Unsupported::Size { op: OP, what });
        }
    }
    Ok(())
}

/// Neighbouring values of a row that a lane takes at once.
fn chunk(planes: &Planes<'_>) -> usize {
    match planes {
        Planes::Quantised(weights) if weights.format.bits < 8 => 32,
        _ => 16,
    }
}

/// Sizes of a product's fragments.
struct Fragments {
    cores: MatrixCores,
    /// Lanes of a subgroup.
    lanes: u32,
    /// Values of a row that a lane takes at once.
    chunk: usize,
    /// Such chunks, times the lanes that share a row, that a row has.
    blocks: usize,
    /// Fragments of tokens, whole tiles of them.
    tiles: usize,
    tile: MatrixTile,
}

impl Fragments {
    /// Elements of x that lie together: those of a lane are 16 bytes.
    fn packed_words(&self) -> usize {
        let depth = self.blocks * self.chunk * self.cores.lanes_per_row() as usize;
        self.tile.halves as usize * self.tiles * self.cores.size as usize * depth / 2
    }

    fn tokens(&self) -> usize {
        self.tiles * self.cores.size as usize
    }

    fn steps(&self) -> u32 {
        self.chunk as u32 / self.cores.values()
    }

    /// What the order and the sizes are called in shaders.
    fn define<'t>(&self, traits: &Traits, text: Text<'t>) -> Text<'t> {
        self.cores
            .define(
                traits,
                text.define("CHUNK", self.chunk).define("HALVES", self.tile.halves),
            )
            .body(include_str!("../shaders/projection/matrix/blocks.glsl"))
    }
}

/// The device's matrix cores.
fn cores_of(traits: &Traits) -> Result<MatrixCores, Unsupported> {
    let what = || "this device has no matrix cores whose order is known".to_string();
    traits
        .matrix_cores
        .ok_or_else(|| Unsupported::Size { op: OP, what: what() })
}

impl Problem<'_> {
    /// Fails as [`Problem::matrix_calls`] would, without building texts.
    pub(super) fn check_matrix(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        check(self)?;
        let cores = cores_of(traits)?;
        for sections in self.alike() {
            let fragments = self.fragments(tuning, traits, cores, &sections);
            self.pack_arguments(&fragments, self.operands)?;
            self.product_arguments(&fragments, &sections, self.operands)?;
        }
        Ok(())
    }

    /// How the product of sections that are alike is divided.
    fn fragments(
        &self,
        tuning: &Tuning,
        traits: &Traits,
        cores: MatrixCores,
        sections: &[&SectionPlan<'_>],
    ) -> Fragments {
        let rows = sections.iter().map(|s| s.rows).sum();
        let tile = tuning.matrix_tile(traits, cores.size, [self.tokens, rows, sections[0].parts.len()]);
        let chunk = chunk(&sections[0].parts[0].planes);
        let block = chunk * cores.lanes_per_row() as usize;
        let tokens = self.tokens.div_ceil(cores.size as usize);
        Fragments {
            cores,
            lanes: traits.subgroup_size,
            chunk,
            blocks: self.columns.div_ceil(block),
            tiles: tokens.next_multiple_of(tile.tokens as usize),
            tile,
        }
    }

    /// The arguments of the call that packs x.
    fn pack_arguments(&self, fragments: &Fragments, workspace: usize) -> Result<Arguments, Unsupported> {
        let mut arguments = Arguments::default();
        arguments.address("x_ref x", self.x.address.clone());
        if let Some((_, Some(gain))) = &self.norm {
            arguments.address("gain_ref gain", gain.address.clone());
        }
        workspace_addresses(&mut arguments, fragments, workspace);
        arguments.number("COLUMNS", self.columns);
        arguments.number("TOKENS", self.tokens);
        arguments.number("TILES", fragments.tiles);
        arguments.number("BLOCKS", fragments.blocks);
        arguments.stride("X_STRIDE", self.x.strides[0]);
        arguments.stride("X_WITHIN", self.x.strides[1]);
        if let Some((eps, _)) = self.norm {
            arguments.number("EPS", eps.to_bits() as usize);
        }
        arguments.check(OP)?;
        Ok(arguments)
    }

    /// The arguments of the product.
    fn product_arguments(
        &self,
        fragments: &Fragments,
        sections: &[&SectionPlan<'_>],
        workspace: usize,
    ) -> Result<Arguments, Unsupported> {
        let packed = |arguments: &mut Arguments| {
            workspace_addresses(arguments, fragments, workspace);
            arguments.number("TOKENS", self.tokens);
            arguments.number("TILES", fragments.tiles);
            arguments.number("BLOCKS", fragments.blocks);
        };
        arguments(self, sections, Inputs::Packed(&packed))
    }

    /// The calls on matrix cores, for each kind of sections one that packs x and one product.
    pub(super) fn matrix_calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        check(self)?;
        let cores = cores_of(traits)?;
        let workspace = self.operands;
        let mut calls = Vec::new();
        let (mut packed, mut words) = (None, 0);
        for sections in self.alike() {
            let fragments = self.fragments(tuning, traits, cores, &sections);
            let shape = (fragments.chunk, fragments.tiles, fragments.tile.halves);
            if packed != Some(shape) {
                calls.push(self.pack(tuning, traits, &fragments, workspace)?);
                packed = Some(shape);
            }
            calls.push(self.multiply(traits, &fragments, &sections, workspace)?);
            words = words.max(fragments.packed_words() + fragments.tokens());
        }
        Ok(ProjectionCalls {
            chained: true,
            calls,
            workspace: Some(Operand::contiguous(DType::U32, &[words])),
        })
    }

    /// The call that packs x, and behind it a factor for each token.
    fn pack(
        &self,
        tuning: &Tuning,
        traits: &Traits,
        fragments: &Fragments,
        workspace: usize,
    ) -> Result<Call, Unsupported> {
        let arguments = self.pack_arguments(fragments, workspace)?;
        let wanted = (self.columns / 8).next_power_of_two() as u32;
        let lanes = tuning.row_threads.min(wanted).max(tuning::lanes(traits));
        let text = Text::with_fragments(traits, &format!("{OP}.pack"));
        let text = fragments.define(traits, declared_input(text, self, 8).define("LANE_VALUE", "float"));
        let declaration = arguments.declaration();
        let kernel = text
            .define("ARGUMENTS", format!("{:016x}", hash(&declaration)))
            .body(REFERENCES)
            .body(&declaration)
            .body(include_str!("../shaders/lanes.glsl"))
            .body(include_str!("../shaders/projection/matrix/pack.comp"))
            .kernel(vec![(0, lanes), (3, lanes), (4, 1)]);
        Ok(Call {
            kernel,
            groups: grid(OP, fragments.tokens())?,
            push: arguments.push(),
        })
    }

    /// The product of what was packed with sections that are alike.
    fn multiply(
        &self,
        traits: &Traits,
        fragments: &Fragments,
        sections: &[&SectionPlan<'_>],
        workspace: usize,
    ) -> Result<Call, Unsupported> {
        let MatrixTile {
            subgroups,
            rows,
            tokens,
            unrolled,
            shared,
            ..
        } = fragments.tile;
        let parts = sections[0].parts.len() as u32;
        let each = rows / parts;
        let arguments = self.product_arguments(fragments, sections, workspace)?;
        let generated = generated(self, sections, &arguments)?;
        let stage = fragments.steps().min(4);
        let (together, body) = match shared {
            SharedBy::Tokens => (subgroups, include_str!("../shaders/projection/matrix/matrix.comp")),
            SharedBy::Sums => (1, include_str!("../shaders/projection/matrix/split.comp")),
        };
        let text = Text::with_fragments(traits, &format!("{OP}.{shared:?}.{:016x}", hash(&generated)))
            .define("SUBGROUPS", format!("{subgroups}u"))
            .define("MATRICES", format!("{}u", each * parts))
            .define("TOKEN_TILES", format!("{tokens}u"))
            .define("STAGE", format!("{stage}u"))
            .define("UNROLLED", u32::from(unrolled))
            .body(include_str!("../shaders/unroll.glsl"))
            .body(&format!(
                "const uint ROWS = {together}u, EACH = {}u;\n",
                each * fragments.cores.size
            ));
        let planes = &sections[0].parts[0].planes;
        let bfloat = matches!(planes, Planes::Dense { dtype: DType::BF16, .. });
        let text = fragments.define(
            traits,
            declared_sections(text, self, sections, fragments.chunk).flag("BFLOAT16", bfloat),
        );
        let text = text.body(REFERENCES).body(&generated);
        let text = match planes {
            Planes::Dense { .. } => text.body(include_str!("../shaders/projection/matrix/dense.glsl")),
            Planes::Quantised(_) => text
                .body(include_str!("../shaders/projection/quantised.glsl"))
                .body(include_str!("../shaders/projection/matrix/quantised.glsl")),
        };
        let kernel = text
            .body(include_str!("../shaders/projection/matrix/product.glsl"))
            .body(body)
            .kernel(vec![(0, subgroups * fragments.lanes), (8, planes.weights().group())]);
        let per_block = (together * each * fragments.cores.size) as usize;
        let blocks = sections.iter().map(|s| s.rows.div_ceil(per_block)).sum::<usize>();
        Ok(Call {
            kernel,
            groups: grid(OP, blocks * (fragments.tiles / tokens as usize))?,
            push: arguments.push(),
        })
    }
}

/// Where the workspace holds x, and each token's factor.
fn workspace_addresses(arguments: &mut Arguments, fragments: &Fragments, operand: usize) {
    arguments.address("packed_ref packed", Push::Address { operand, bytes: 0 });
    let bytes = 4 * fragments.packed_words() as u64;
    arguments.address("factors_ref factors", Push::Address { operand, bytes });
}
