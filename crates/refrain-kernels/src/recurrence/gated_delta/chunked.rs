//! The chunked form on matrix cores: first the products within each chunk, for all chunks in parallel, then the state,
//! chunk by chunk (Yang et al. 2024, arXiv:2412.06464, section 3.3).
//!
//! Operands of the matrix cores are f16: queries and keys (clamped to f16's range), weights, the state and its
//! corrections. State and corrections are multiplied by a power of two that keeps any f32 in range. Sums and the stored
//! state are f32.

use super::{GatedDeltaOperands, GatedDeltaSizes, OP};
use crate::kit::text::{SourceBuilder, address, is_wide, outer_strides};
use crate::tuning::Tuning;
use crate::vocabulary::MatrixCores;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

/// Operand number of the workspace, after the operands.
const WORKSPACE: usize = 9;

/// Sequences of a workgroup, one after another. Most calls have tokens of a single one, and finding out that a sequence
/// has none takes time.
const SEQUENCES_PER_GROUP: usize = 8;

/// Division of the work into chunks.
pub(super) struct Chunks {
    cores: MatrixCores,
    subgroups: u32,
    /// Tokens per chunk.
    size: usize,
    /// Number of chunks.
    count: usize,
    /// Values of a head (rows of the state) per workgroup of the second call.
    slice: usize,
}

impl Chunks {
    /// Returns the tuning's chunks, or smaller ones that fit into shared memory. `None` without matrix cores, with too
    /// few tokens, or with unsuitable operands.
    pub(super) fn of(
        tuning: &Tuning,
        traits: &Traits,
        operands: &GatedDeltaOperands<'_>,
        sizes: &GatedDeltaSizes,
    ) -> Option<Chunks> {
        let cores = traits.matrix_cores?;
        let delta = &tuning.delta;
        let &GatedDeltaSizes { tokens, states, .. } = sizes;
        let subgroups = traits.workgroup(delta.chunk_threads) / traits.subgroup_size;
        let suits = tokens >= delta.min_chunked_tokens
            && tokens > states
            && traits.storage16
            && cores.shape.iter().all(|part| part.is_multiple_of(8))
            && is_wide(operands.state, &[]);
        if !suits {
            return None;
        }
        let smaller =
            std::iter::successors(Some(delta.chunk as usize), |size| Some(size / 2)).take_while(|&size| size >= 16);
        let mut all = smaller.flat_map(|size| {
            [32, 16].map(|slice| Chunks {
                cores,
                subgroups,
                size,
                count: tokens.div_ceil(size),
                slice,
            })
        });
        all.find(|chunks| chunks.fit(traits, sizes))
    }

    /// Whether fragments divide all extents and the device's limits suffice.
    fn fit(&self, traits: &Traits, sizes: &GatedDeltaSizes) -> bool {
        let fragments = self.cores.shape.map(|n| n as usize);
        let divides = |n: usize| fragments.iter().all(|extent| n.is_multiple_of(*extent));
        let groups = self.groups(sizes);
        [self.size, self.slice, sizes.key_dim].into_iter().all(divides)
            && sizes.value_dim.is_multiple_of(self.slice)
            && sizes.key_dim > 0
            && self.size as u32 <= self.subgroups * traits.subgroup_size
            && self.shared_bytes(sizes) <= traits.shared_bytes as usize
            && [self.count]
                .iter()
                .chain(&groups)
                .all(|groups| (1..=65_535).contains(groups))
    }

    /// Workgroups of the second call.
    fn groups(&self, sizes: &GatedDeltaSizes) -> [usize; 3] {
        let slices = sizes.value_dim / self.slice;
        [slices, sizes.heads, sizes.states.div_ceil(SEQUENCES_PER_GROUP)]
    }

    /// Loop iterations of an invocation per token.
    pub(super) fn iterations_per_token(&self) -> usize {
        self.size + 16
    }

    /// Bytes of shared memory of the call that needs more.
    fn shared_bytes(&self, sizes: &GatedDeltaSizes) -> usize {
        let (size, slice, keys) = (self.size, self.slice, sizes.key_dim + 8);
        let intra_chunk = 4 * size * keys + 8 * size * (size + 4) + 36 * size + 16;
        let staged = if self.cores.is_opaque() || self.cores.values() == 1 {
            self.subgroups * self.cores.shape[0] * self.cores.shape[1]
        } else {
            0
        };
        let f16s = (3 * size + slice) * keys + (size + slice) * (size + 8);
        let floats = 2 * slice * size + staged as usize;
        let inter_chunk = 2 * f16s + 4 * (floats + 4 * size) + 64;
        intra_chunk.max(inter_chunk)
    }

    /// Bytes of a head's chunk in the workspace, and the offsets of its arrays by their names in shaders.
    fn arrays(&self, sizes: &GatedDeltaSizes) -> (usize, [(&'static str, usize); 7]) {
        let keys = 2 * self.size * sizes.key_dim;
        let lengths = [
            ("W_AT", keys),
            ("Q_AT", keys),
            ("K_AT", keys),
            ("P_AT", 2 * self.size * self.size),
            ("U_AT", 4 * self.size * sizes.value_dim),
            ("DECAYS_AT", 4 * self.size),
            ("MAX_U_AT", 16),
        ];
        let mut end = 0;
        let arrays = lengths.map(|(name, bytes)| {
            end += bytes;
            (name, end - bytes)
        });
        (end, arrays)
    }

    /// Returns both calls and the workspace.
    pub(super) fn calls(
        &self,
        traits: &Traits,
        operands: &GatedDeltaOperands<'_>,
        sizes: &GatedDeltaSizes,
    ) -> Result<(Vec<Call>, OperandSpec), Unsupported> {
        let (bytes, _) = self.arrays(sizes);
        let workspace = OperandSpec::contiguous(DType::F32, &[self.count, sizes.heads, bytes / 4]);
        let at = address(OP, WORKSPACE, &workspace)?;
        let calls = vec![
            self.intra_chunk(traits, operands, sizes, &at)?,
            self.inter_chunk(traits, operands, sizes, &at)?,
        ];
        Ok((calls, workspace))
    }

    fn text<'t>(&self, traits: &'t Traits, name: &str, sizes: &GatedDeltaSizes) -> SourceBuilder<'t> {
        let (bytes, arrays) = self.arrays(sizes);
        let numbers = [
            ("CHUNK", self.size),
            ("KEY_DIM", sizes.key_dim),
            ("VALUE_DIM", sizes.value_dim),
            ("SLICE", self.slice),
            ("SEQUENCES", SEQUENCES_PER_GROUP),
            ("SUBGROUPS", self.subgroups as usize),
            ("THREADS", (self.subgroups * traits.subgroup_size) as usize),
            // A word more per row, so that neighbouring rows begin in different banks.
            ("KEY_WORDS", sizes.key_dim / 8 + 1),
        ];
        let mut text = SourceBuilder::with_fragments(traits, name);
        for (name, number) in numbers {
            text = text.define(name, format!("{number}u"));
        }
        let offsets = arrays.into_iter().chain([("BLOCK_BYTES", bytes)]);
        let offsets: String = offsets.map(|(name, at)| format!("#define {name} {at}u\n")).collect();
        self.cores.define(traits, text).body(&offsets)
    }

    fn kernel(&self, traits: &Traits, text: SourceBuilder<'_>) -> crate::KernelSource {
        text.kernel(vec![(0, self.subgroups * traits.subgroup_size)])
    }

    /// The first call: products within each chunk.
    fn intra_chunk(
        &self,
        traits: &Traits,
        operands: &GatedDeltaOperands<'_>,
        sizes: &GatedDeltaSizes,
        workspace: &Push,
    ) -> Result<Call, Unsupported> {
        let mut push = Vec::new();
        let mut text = self.text(traits, "gated_delta.intra_chunk", sizes);
        for (number, (name, operand)) in operands.inputs().into_iter().enumerate() {
            push.push(address(OP, number, operand)?);
            text = text.input(name, operand.dtype);
        }
        push.push(workspace.clone());
        push.extend([sizes.tokens, sizes.states, sizes.heads / sizes.key_heads].map(|v| Push::U32(v as u32)));
        for (number, (name, operand)) in operands.inputs().into_iter().enumerate().take(3) {
            push.extend(outer_strides(OP, number, operand)?);
            if name != "v" {
                text = text.runs(name, operand.dtype, 8, is_wide(operand, &operand.layout.strides[..2]));
            }
        }
        let all: String = (0..self.size).map(|i| format!("SOLVE({i}u) ")).collect();
        let text = text
            .body(&format!("#define SOLVE_ALL {all}\n"))
            .body(include_str!("chunked/intra_chunk.comp"));
        Ok(Call {
            kernel: self.kernel(traits, text),
            groups: [self.count, sizes.heads, 1].map(|n| n as u32),
            push,
        })
    }

    /// The second call: the state, chunk by chunk.
    fn inter_chunk(
        &self,
        traits: &Traits,
        operands: &GatedDeltaOperands<'_>,
        sizes: &GatedDeltaSizes,
        workspace: &Push,
    ) -> Result<Call, Unsupported> {
        let indices = [(5, operands.positions), (6, operands.sequences)];
        let outputs = [(7, operands.state), (8, operands.out)];
        let mut push = vec![workspace.clone()];
        for (number, operand) in indices.into_iter().chain(outputs) {
            push.push(address(OP, number, operand)?);
        }
        push.extend([sizes.tokens, sizes.states].map(|v| Push::U32(v as u32)));
        push.extend(outer_strides(OP, 8, operands.out)?);
        let text = self
            .text(traits, "gated_delta.inter_chunk", sizes)
            .input("positions", DType::I32)
            .input("sequences", DType::U32)
            .output("state", DType::F32)
            .output("y", operands.out.dtype)
            .store_vec4(
                "y",
                operands.out.dtype,
                is_wide(operands.out, &operands.out.layout.strides[..2]),
            )
            .body(include_str!("../../kit/fragments/meet.glsl"))
            .body(include_str!("chunked/inter_chunk.comp"));
        Ok(Call {
            kernel: self.kernel(traits, text),
            groups: self.groups(sizes).map(|n| n as u32),
            push,
        })
    }
}
