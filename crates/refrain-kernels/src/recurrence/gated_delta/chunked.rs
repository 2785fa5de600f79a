//! Chunks of tokens on matrix cores: what tokens of a chunk mean to each other first, for all chunks at once, then what
//! they mean to the memory, chunk by chunk (Yang et al. 2024, arXiv:2412.06464, section 3.3).
//!
//! Queries and keys, none larger than an f16 may be, weights, the memory and what corrects it meet the cores as f16, the
//! latter times a power of two that keeps any f32 in range; sums and the memory itself stay f32.

use super::{GatedDeltaOperands, GatedDeltaSizes, OP};
use crate::kit::text::{Text, address, is_wide, outer_strides};
use crate::tuning::Tuning;
use crate::vocabulary::MatrixCores;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

/// The number of the workspace, behind the operands.
const WORKSPACE: usize = 9;

/// Sequences that a workgroup takes in turn: most calls have tokens of one, and to find that there are none takes time.
const SEQUENCES: usize = 8;

/// How the work is divided.
pub(super) struct Chunks {
    cores: MatrixCores,
    subgroups: u32,
    /// Tokens of a chunk.
    size: usize,
    /// How many there are.
    count: usize,
    /// Values of a head that a workgroup takes from chunk to chunk.
    slice: usize,
}

impl Chunks {
    /// The tuning's, or smaller ones where a workgroup has no room for these; none without matrix cores, of too few tokens,
    /// or where operands do not suit them.
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
        let suits = tokens >= delta.least_chunked
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

    /// Whether parts of fragments divide all that is multiplied, and the device has room.
    fn fit(&self, traits: &Traits, sizes: &GatedDeltaSizes) -> bool {
        let parts = self.cores.shape.map(|n| n as usize);
        let whole = |n: usize| parts.iter().all(|part| n.is_multiple_of(*part));
        let groups = self.groups(sizes);
        [self.size, self.slice, sizes.key_dim].into_iter().all(whole)
            && sizes.value_dim.is_multiple_of(self.slice)
            && sizes.key_dim > 0
            && self.size as u32 <= self.subgroups * traits.subgroup_size
            && self.shared_bytes(sizes) <= traits.shared_bytes as usize
            && [self.count]
                .iter()
                .chain(&groups)
                .all(|groups| (1..=65_535).contains(groups))
    }

    /// Workgroups that go from chunk to chunk.
    fn groups(&self, sizes: &GatedDeltaSizes) -> [usize; 3] {
        let slices = sizes.value_dim / self.slice;
        [slices, sizes.heads, sizes.states.div_ceil(SEQUENCES)]
    }

    /// How often a token makes an invocation loop.
    pub(super) fn work(&self) -> usize {
        self.size + 16
    }

    /// The most that one of the two calls has.
    fn shared_bytes(&self, sizes: &GatedDeltaSizes) -> usize {
        let (size, slice, keys) = (self.size, self.slice, sizes.key_dim + 8);
        let within = 4 * size * keys + 8 * size * (size + 4) + 36 * size + 16;
        let passed = if self.cores.is_hidden() || self.cores.values() == 1 {
            self.subgroups * self.cores.shape[0] * self.cores.shape[1]
        } else {
            0
        };
        let halves = (3 * size + slice) * keys + (size + slice) * (size + 8);
        let floats = 2 * slice * size + passed as usize;
        let between = 2 * halves + 4 * (floats + 4 * size) + 64;
        within.max(between)
    }

    /// Bytes of a chunk of a head in the workspace, and where its parts begin, by their names in shaders.
    fn parts(&self, sizes: &GatedDeltaSizes) -> (usize, [(&'static str, usize); 7]) {
        let keys = 2 * self.size * sizes.key_dim;
        let lengths = [
            ("CORRECTIONS", keys),
            ("QUERIES", keys),
            ("KEYS_AT", keys),
            ("WEIGHTS", 2 * self.size * self.size),
            ("CORRECTED", 4 * self.size * sizes.value_dim),
            ("KEPT", 4 * self.size),
            ("LARGEST", 16),
        ];
        let mut end = 0;
        let parts = lengths.map(|(name, bytes)| {
            end += bytes;
            (name, end - bytes)
        });
        (end, parts)
    }

    /// Both calls, and the workspace.
    pub(super) fn calls(
        &self,
        traits: &Traits,
        operands: &GatedDeltaOperands<'_>,
        sizes: &GatedDeltaSizes,
    ) -> Result<(Vec<Call>, OperandSpec), Unsupported> {
        let (bytes, _) = self.parts(sizes);
        let workspace = OperandSpec::contiguous(DType::F32, &[self.count, sizes.heads, bytes / 4]);
        let at = address(OP, WORKSPACE, &workspace)?;
        let calls = vec![
            self.within(traits, operands, sizes, &at)?,
            self.between(traits, operands, sizes, &at)?,
        ];
        Ok((calls, workspace))
    }

    fn text<'t>(&self, traits: &'t Traits, name: &str, sizes: &GatedDeltaSizes) -> Text<'t> {
        let (bytes, parts) = self.parts(sizes);
        let numbers = [
            ("CHUNK", self.size),
            ("KEY_DIM", sizes.key_dim),
            ("VALUE_DIM", sizes.value_dim),
            ("SLICE", self.slice),
            ("SEQUENCES", SEQUENCES),
            ("SUBGROUPS", self.subgroups as usize),
            ("THREADS", (self.subgroups * traits.subgroup_size) as usize),
            // Rows of keys begin in other banks than those beside them.
            ("KEY_WORDS", sizes.key_dim / 8 + 1),
        ];
        let mut text = Text::with_fragments(traits, name);
        for (name, number) in numbers {
            text = text.define(name, format!("{number}u"));
        }
        let parts = parts.into_iter().chain([("BLOCK_BYTES", bytes)]);
        let parts: String = parts.map(|(name, at)| format!("#define {name} {at}u\n")).collect();
        self.cores.define(traits, text).body(&parts)
    }

    fn kernel(&self, traits: &Traits, text: Text<'_>) -> crate::KernelText {
        text.kernel(vec![(0, self.subgroups * traits.subgroup_size)])
    }

    /// What tokens of a chunk mean to each other.
    fn within(
        &self,
        traits: &Traits,
        operands: &GatedDeltaOperands<'_>,
        sizes: &GatedDeltaSizes,
        workspace: &Push,
    ) -> Result<Call, Unsupported> {
        let mut push = Vec::new();
        let mut text = self.text(traits, "gated_delta.within", sizes);
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
            .body(include_str!("chunked/within.comp"));
        Ok(Call {
            kernel: self.kernel(traits, text),
            groups: [self.count, sizes.heads, 1].map(|n| n as u32),
            push,
        })
    }

    /// What they mean to the memory.
    fn between(
        &self,
        traits: &Traits,
        operands: &GatedDeltaOperands<'_>,
        sizes: &GatedDeltaSizes,
        workspace: &Push,
    ) -> Result<Call, Unsupported> {
        let places = [(5, operands.positions), (6, operands.sequences)];
        let ends = [(7, operands.state), (8, operands.out)];
        let mut push = vec![workspace.clone()];
        for (number, operand) in places.into_iter().chain(ends) {
            push.push(address(OP, number, operand)?);
        }
        push.extend([sizes.tokens, sizes.states].map(|v| Push::U32(v as u32)));
        push.extend(outer_strides(OP, 8, operands.out)?);
        let text = self
            .text(traits, "gated_delta.between", sizes)
            .input("positions", DType::I32)
            .input("sequences", DType::U32)
            .output("memory", DType::F32)
            .output("y", operands.out.dtype)
            .stored_fours(
                "y",
                operands.out.dtype,
                is_wide(operands.out, &operands.out.layout.strides[..2]),
            )
            .body(include_str!("../../kit/fragments/meet.glsl"))
            .body(include_str!("chunked/between.comp"));
        Ok(Call {
            kernel: self.kernel(traits, text),
            groups: self.groups(sizes).map(|n| n as u32),
            push,
        })
    }
}
