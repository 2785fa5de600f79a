//! Kernel sizes that depend on the device and do not change results (beyond rounding).
//!
//! [`TABLE`] has a [`Tuning`] row for each kind of device; [`choose`] picks the first row that matches and fits.
//! Kernel families take a row explicitly in `call_tuned`, so tests can run every row on any device.

mod decode;
mod gemv;
mod matrix;
mod matrix_tiles;
mod measurement;
mod settings;
mod table;
mod tile;

pub use decode::{DecodeTuning, SHORT_CACHE};
pub use gemv::{GemvTuning, ShapedGemv};
pub use matrix::{ExpertTuning, MatrixTile, SubgroupSplit};
pub use measurement::{KernelFamily, Measurement};
pub use settings::{TuningError, read};
pub(crate) use table::MESA_SOFTWARE;
pub use table::TABLE;
pub use tile::{Tile, TileSize};

use std::fmt;

use refrain_quant::QuantFormat;

use crate::{Architecture, Traits};

/// A number of workgroups, which is either fixed or scales linearly with the number of compute units.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupCount {
    groups: usize,
    units: Option<u32>,
}

impl GroupCount {
    /// The same number on every device.
    pub const fn fixed(groups: usize) -> GroupCount {
        GroupCount { groups, units: None }
    }

    /// Scales linearly with the number of compute units: `groups` on a device with `units` of them. Used as is if the
    /// driver does not report the device's number.
    pub const fn scaled(groups: usize, units: u32) -> GroupCount {
        GroupCount {
            groups,
            units: Some(units),
        }
    }

    /// The number of workgroups on the given device.
    pub fn on(self, traits: &Traits) -> usize {
        match (self.units, traits.compute_units) {
            (Some(reference), Some(units)) => (self.groups * units as usize).div_ceil(reference as usize),
            _ => self.groups,
        }
    }
}

/// Sizes of prefill attention. A workgroup computes one query head of one token. If that fills the device several times
/// over, it computes several heads that share a key head; if it does not fill the device, it computes a split of a
/// head's positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttentionTuning {
    /// Invocations of a workgroup with one head.
    pub threads: u32,
    /// Invocations of a workgroup with several heads.
    pub grouped_threads: u32,
    /// Invocations of a workgroup with a split of the positions.
    pub threads_split: u32,
    /// Maximum number of query heads of a workgroup with a split of the positions.
    pub max_heads_split: u32,
    /// Maximum number of splits of a head's positions. At most 64.
    pub max_splits: u32,
    /// Maximum number of query heads of a workgroup.
    pub max_heads: u32,
    /// Workgroups that fill the device.
    pub target_groups: GroupCount,
    /// Minimum number of tokens for matrix cores.
    pub min_matrix_tokens: usize,
    /// Maximum number of fragments of positions per step of a workgroup on matrix cores. It is fewer if shared memory
    /// has no room for their keys and values.
    pub matrix_fragments: usize,
    /// As `matrix_fragments`, for workgroups of `matrix_subgroups_few` subgroups.
    pub matrix_fragments_few: usize,
    /// Subgroups of a workgroup on matrix cores.
    pub matrix_subgroups: u32,
    /// Subgroups if there would be fewer than `target_matrix_groups` workgroups otherwise.
    pub matrix_subgroups_few: u32,
    /// Workgroups on matrix cores that fill the device.
    pub target_matrix_groups: GroupCount,
}

/// Sizes of the gated delta rule. A row of invocations computes some values of a head.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeltaTuning {
    /// Values per row of invocations, which share its loads of keys and queries, for at least `min_tokens` tokens.
    pub values: u32,
    /// Minimum number of tokens for more than one value. There must also be more tokens than sequences.
    pub min_tokens: usize,
    /// Lanes that share the state of a value if several such rows fit a subgroup; otherwise the whole subgroup does.
    pub lanes: u32,
    /// Tokens whose keys, queries and values a workgroup loads at once, if shared memory has room. A power of two.
    pub tile: u32,
    /// Invocations of the workgroup that computes a head; more if registers do not hold the head's state.
    pub head_threads: u32,
    /// The same if sequences have one token each: their states pass through registers in parts.
    pub head_threads_in_parts: u32,
    /// Minimum number of tokens for the chunked algorithm on matrix cores. There must also be more tokens than
    /// sequences.
    pub min_chunked_tokens: usize,
    /// Tokens per chunk, if shared memory has room. A power of two.
    pub chunk: u32,
    /// Invocations of a workgroup that computes a chunk.
    pub chunk_threads: u32,
}

/// One row of the tuning table: all sizes for one kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuning {
    /// PCI vendor id; `None` for any vendor.
    pub vendor: Option<u32>,
    /// Device architecture; `None` for any.
    pub architecture: Option<Architecture>,
    /// Measurements behind the sizes, one per family; empty if the row was not measured.
    pub measured: &'static [Measurement],
    /// Minimum subgroup size for which the row is used.
    pub min_subgroup_size: u32,
    /// Small-M GEMV with float weights.
    pub dense: GemvTuning,
    /// Small-M GEMV with weights of at most 4 bits.
    pub four_bit: GemvTuning,
    /// Small-M GEMV by shape. The first entry that applies takes precedence over the fields by weight type.
    pub by_shape: &'static [ShapedGemv],
    /// Small-M GEMV with weights of 5 to 8 bits.
    pub eight_bit: GemvTuning,
    /// Whether small-M GEMV with quantised weights uses fixed-point activations: for devices with fast integer dot
    /// products.
    pub fixed_point: bool,
    /// Tiled GEMM without matrix cores.
    pub tile: Tile,
    /// Tiles of GEMM on matrix cores; the first that applies is used. The last applies to every product.
    pub matrix: &'static [MatrixTile],
    /// Grouped GEMM over experts on matrix cores.
    pub experts: ExpertTuning,
    /// Prefill attention.
    pub attention: AttentionTuning,
    /// Decode attention.
    pub decode: DecodeTuning,
    /// Decode attention of many sequences. The first entry whose workgroups fill the device is used.
    pub decode_many: &'static [DecodeTuning],
    /// The same for few sequences in caches of at most [`SHORT_CACHE`] positions each, if they have settings of their own.
    pub decode_short: Option<DecodeTuning>,
    /// The gated delta rule.
    pub delta: DeltaTuning,
    /// Maximum number of tokens that one invocation of the causal convolution computes one after another.
    pub max_serial_conv_tokens: usize,
    /// Invocations per workgroup for norms and other reductions over a row.
    pub row_threads: u32,
}

impl Tuning {
    /// Sizes for a small-M GEMV. `sizes` is K, rows of weights and number of vectors, or of tokens if the matrices are
    /// those of experts (`routed`); `format` is `None` for float weights.
    pub fn gemv(&self, format: Option<QuantFormat>, sizes: [usize; 3], routed: bool) -> &GemvTuning {
        let mut shapes = self.by_shape.iter();
        let found = shapes.find(|shape| shape.fits(format, sizes, routed));
        found.map_or_else(|| self.gemv_kind(format), |shape| &shape.gemv)
    }

    /// Sizes for a weight format regardless of the shape; `None` for float weights.
    pub(crate) fn gemv_kind(&self, format: Option<QuantFormat>) -> &GemvTuning {
        match format {
            None => &self.dense,
            Some(format) if format.bits <= 4 => &self.four_bit,
            Some(_) => &self.eight_bit,
        }
    }

    /// Tile for a GEMM of `tokens` tokens with K = `depth` and `rows` rows of each of `matrices` matrices; fragments
    /// have `size` rows.
    ///
    /// Three quarters of a power of two of tokens use the tile of that power with a quarter fewer tokens: as many
    /// workgroups have less work each.
    pub(crate) fn matrix_tile(
        &self,
        traits: &Traits,
        size: u32,
        [tokens, depth, rows, matrices]: [usize; 4],
    ) -> MatrixTile {
        let whole = tokens.next_power_of_two();
        if 4 * tokens == 3 * whole {
            let tile = self.matrix_tile(traits, size, [whole, depth, rows, matrices]);
            if let Some(tile) = tile.three_quarters(traits) {
                return tile;
            }
        }
        let tiles = self.matrix.iter();
        let tiles =
            tiles.filter(|tile| tokens <= tile.max_tokens && (tile.min_depth..=tile.max_depth).contains(&depth));
        let tiles = tiles.map(|tile| tile.narrowed(traits, size, tokens));
        let tiles = tiles.map(|tile| tile.shrunk_to_fit(traits, size, tokens, matrices as u32));
        let groups = |tile: &MatrixTile| {
            let each = (tile.rows / matrices as u32 * tile.row_subgroups() * size) as usize;
            rows.div_ceil(each) * tokens.div_ceil((tile.tokens * tile.columns(size)) as usize)
        };
        let mut tiles = tiles.skip_while(|tile| groups(tile) < tile.min_groups.on(traits));
        tiles.next().expect("the last tile of a row applies to every product")
    }

    /// Tile for a grouped GEMM of so many (token, expert) pairs, experts, and matrices of each; `None` for few pairs.
    pub(crate) fn expert_tile(&self, traits: &Traits, size: u32, of: [usize; 3]) -> Option<MatrixTile> {
        let [pairs, experts, matrices] = of;
        let ExpertTuning {
            max_experts_per_pair,
            tiles,
            ..
        } = self.experts;
        let tile = tiles
            .iter()
            .find(|tile| pairs <= tile.max_tokens.saturating_mul(experts))?;
        let enough = experts > 0 && experts < pairs.saturating_mul(max_experts_per_pair);
        enough.then(|| tile.shrunk_to_fit(traits, size, pairs, matrices as u32))
    }

    /// Whether the device can run the row's kernels.
    pub fn fits(&self, traits: &Traits) -> bool {
        let threads = [
            self.dense.threads,
            self.four_bit.threads,
            self.eight_bit.threads,
            self.attention.threads,
            self.attention.grouped_threads,
            self.attention.threads_split,
            self.decode.threads,
            self.row_threads,
        ];
        let tile = self.tile.sizes.last().is_some_and(|size| size.fits_device(traits));
        let attention = [
            self.attention.threads,
            self.attention.grouped_threads,
            self.attention.threads_split,
        ];
        let shared = attention.map(attention_bytes).into_iter().max();
        let fits = |&t: &u32| t <= traits.max_invocations && t >= lanes(traits);
        tile && threads.iter().all(fits) && shared <= Some(traits.shared_bytes)
    }
}

/// Bytes of shared memory of an attention workgroup: a vec4 per invocation, and the maxima and sums of the rows.
pub(crate) fn attention_bytes(threads: u32) -> u32 {
    24 * threads
}

/// Returns the row for a device: the user's if there is one, otherwise the first row of the table that matches.
pub fn choose(traits: &Traits) -> &Tuning {
    if let Some(tuning) = &traits.tuning {
        return tuning;
    }
    let matches = |row: &&Tuning| {
        row.vendor.is_none_or(|vendor| vendor == traits.vendor)
            && row
                .architecture
                .is_none_or(|architecture| architecture == traits.architecture)
            && row.min_subgroup_size <= traits.subgroup_size
            && (traits.integer_dot || !row.fixed_point)
            && row.fits(traits)
    };
    TABLE.iter().find(matches).unwrap_or(&TABLE[TABLE.len() - 1])
}

/// Invocations that share a row: a subgroup, or without subgroup arithmetic 32, for a tree reduction in shared memory.
pub(crate) fn lanes(traits: &Traits) -> u32 {
    if traits.subgroup_arithmetic {
        traits.subgroup_size
    } else {
        32
    }
}

/// Returns invocations per row and rows per workgroup for a reduction over rows of `columns` values. Each invocation
/// gets a few values.
pub(crate) fn row_lanes(traits: &Traits, columns: usize) -> (u32, u32) {
    let (threads, lanes) = (choose(traits).row_threads, lanes(traits));
    if columns > 16 * lanes as usize {
        let wanted = columns.div_ceil(4).next_power_of_two();
        (threads.min(wanted as u32), 1)
    } else {
        (lanes, threads.min(256) / lanes)
    }
}

impl fmt::Display for GroupCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.groups.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::table::{AMD, H200, INTEL, NVIDIA};
    use super::*;
    use crate::MemoryKind;

    #[test]
    fn sizes_for_one_vector_do_not_apply_to_several() {
        let few_rows = |format, vectors| H200.gemv(Some(format), [4096, 6144, vectors], false).threads;
        for format in QuantFormat::ALL {
            let suits_one = format.bits <= 4 && !format.has_records();
            assert_eq!(few_rows(format, 1), if suits_one { 256 } else { 512 }, "{format}");
            assert_eq!(few_rows(format, 2), 512, "{format}");
        }
    }

    #[test]
    fn three_quarters_of_a_power_of_two_use_its_tile_with_fewer_tokens() {
        let traits = Traits {
            compute_units: Some(132),
            subgroup_size: 32,
            shared_bytes: 48 << 10,
            ..Traits::minimal()
        };
        let tile = |tokens, rows| H200.matrix_tile(&traits, 16, [tokens, 4096, rows, 1]);
        for (rows, whole, fewer) in [(24_576, 8, 6), (4096, 4, 3)] {
            let tiles = [512, 384].map(|tokens| tile(tokens, rows));
            assert_eq!(tiles.map(|tile| tile.tokens), [whole, fewer]);
            assert_eq!(
                tiles[0],
                MatrixTile {
                    tokens: whole,
                    ..tiles[1]
                }
            );
        }
    }

    #[test]
    fn the_last_row_fits_the_minimal_device() {
        let minimal = Traits::minimal();
        assert!(TABLE[TABLE.len() - 1].fits(&minimal));
        assert_eq!(choose(&minimal), &TABLE[TABLE.len() - 1]);
    }

    #[test]
    fn measured_rows_are_complete_and_for_one_architecture() {
        for (number, row) in TABLE.iter().enumerate() {
            for measured in row.measured {
                let fields = [measured.device, measured.driver, measured.date, measured.result];
                assert!(fields.iter().all(|field| !field.is_empty()), "row {number}");
                let architecture = Architecture::of(row.vendor.unwrap_or(0), measured.device, 32);
                assert_eq!(row.architecture, Some(architecture), "row {number}");
            }
            let families: Vec<KernelFamily> = row.measured.iter().map(|measured| measured.family).collect();
            assert!(
                families.is_empty() || families == KernelFamily::ALL,
                "row {number}: each family once"
            );
        }
    }

    #[test]
    fn group_counts_scale_with_compute_units_if_the_device_reports_them() {
        let on = |compute_units| Traits {
            compute_units,
            ..Traits::minimal()
        };
        let count = GroupCount::scaled(264, 132);
        assert_eq!(
            [None, Some(132), Some(66), Some(24)].map(|units| count.on(&on(units))),
            [264, 264, 132, 48]
        );
        assert_eq!(GroupCount::fixed(3).on(&on(Some(24))), 3);
    }

    #[test]
    fn a_vendor_row_is_used_only_for_that_vendor() {
        let traits = Traits {
            vendor: NVIDIA,
            architecture: Architecture::Hopper,
            compute_units: Some(132),
            memory: MemoryKind::Discrete,
            subgroup_size: 32,
            subgroup_required: false,
            full_subgroups: true,
            subgroup_uniform_flow: true,
            subgroup_arithmetic: true,
            subgroup_shuffle: true,
            storage16: true,
            storage8: true,
            integer_dot: true,
            exact_halves: true,
            tickets: true,
            max_invocations: 1024,
            push_bytes: 256,
            shared_bytes: 49152,
            matrix_cores: None,
            tuning: None,
        };
        assert_eq!(choose(&traits), &H200);
        let without_dots = Traits {
            integer_dot: false,
            ..traits.clone()
        };
        assert!(choose(&without_dots).vendor == Some(NVIDIA) && !choose(&without_dots).fixed_point);
        let card = Traits {
            architecture: Architecture::Unknown,
            ..traits.clone()
        };
        assert!(choose(&card).vendor == Some(NVIDIA) && choose(&card).measured.is_empty());
        let amd = |architecture| Traits {
            vendor: AMD,
            architecture,
            subgroup_size: 64,
            ..traits.clone()
        };
        for architecture in [Architecture::Gcn, Architecture::Rdna] {
            let row = *choose(&amd(architecture));
            assert_eq!((row.vendor, row.architecture), (Some(AMD), Some(architecture)));
            assert!(row.measured.is_empty());
        }
        let other = Traits { vendor: 1, ..traits };
        assert_eq!(choose(&other).vendor, None);
        let intel = Traits {
            vendor: INTEL,
            subgroup_size: 16,
            ..other
        };
        assert_eq!(choose(&intel).vendor, Some(INTEL));
    }
}
