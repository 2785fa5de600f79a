//! Validation of attention's operands.

use super::{AttentionOperands, AttentionParams, OP};
use crate::kit::text::{require_contiguous, require_dtype, require_float, require_shape};
use crate::{DType, OperandSpec, Unsupported};

/// Extents of checked operands.
pub(super) struct AttentionSizes {
    pub tokens: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Dimension of a head of queries and keys.
    pub head_dim: usize,
    /// Dimension of a head of values and outputs.
    pub value_dim: usize,
    pub slots: usize,
    pub sequences: usize,
    /// Pages per sequence: the columns of the page table.
    pub table: usize,
    /// Positions that a row of the page table can hold.
    pub capacity: usize,
}

impl AttentionSizes {
    /// Whether heads of keys and of values have different dimensions.
    pub(super) fn values_differ(&self) -> bool {
        self.head_dim != self.value_dim
    }

    /// Returns the most positions that a token attends over.
    pub(super) fn span(&self, params: &AttentionParams) -> usize {
        params
            .window
            .map_or(self.capacity, |window| self.capacity.min(window as usize))
    }

    /// Returns the largest divisor, up to `max`, of the number of query heads per KV head.
    pub(super) fn grouped_heads(&self, max: u32) -> usize {
        let ratio = self.heads / self.kv_heads;
        (1..=max as usize).rev().find(|&n| ratio.is_multiple_of(n)).unwrap_or(1)
    }

    /// Checks that the sinks, operand `number`, hold a score for each query head.
    pub(super) fn check_sinks(&self, sinks: &OperandSpec, number: usize) -> Result<(), Unsupported> {
        require_float(OP, sinks)?;
        require_shape(OP, "the sinks", sinks, &[self.heads])?;
        require_contiguous(OP, sinks, number)
    }

    /// Checks the operands and returns their extents.
    pub(super) fn of(operands: AttentionOperands<'_>, params: &AttentionParams) -> Result<AttentionSizes, Unsupported> {
        let [q, keys, values, positions, sequences, pages, out] = operands;
        let size = |what: String| Unsupported::Size { op: OP, what };
        for operand in [q, out] {
            require_float(OP, operand)?;
        }
        for (operand, format) in [keys, values].into_iter().zip(params.blocks) {
            match format {
                Some(_) => require_dtype(OP, operand, DType::U32)?,
                None => require_float(OP, operand)?,
            }
        }
        require_dtype(OP, positions, DType::I32)?;
        require_dtype(OP, sequences, DType::U32)?;
        require_dtype(OP, pages, DType::U32)?;
        let shapes = (&q.layout.shape[..], &keys.layout.shape[..], &pages.layout.shape[..]);
        let (&[tokens, heads, head_dim], &[slots, kv_heads, _], &[rows, table]) = shapes else {
            return Err(size(format!(
                "q, keys and pages have shapes {:?}, {:?} and {:?}, expected 3, 3 and 2 dimensions",
                shapes.0, shapes.1, shapes.2
            )));
        };
        let [key_format, value_format] = params.blocks;
        let key_width = key_format.map_or(head_dim, |format| format.words(head_dim));
        require_shape(OP, "keys", keys, &[slots, kv_heads, key_width])?;
        let value_width = values.layout.shape.last().copied().unwrap_or(0);
        require_shape(OP, "values", values, &[slots, kv_heads, value_width])?;
        let value_dim = value_format.map_or(Some(value_width), |format| format.dim(value_width));
        let value_dim = value_dim.unwrap_or(0);
        require_shape(OP, "positions", positions, &[tokens])?;
        require_shape(OP, "sequences", sequences, &[tokens])?;
        require_shape(OP, "the result", out, &[tokens, heads, value_dim])?;
        for dim in [head_dim, value_dim] {
            if !dim.is_multiple_of(2) || !(2..=256).contains(&dim) {
                return Err(size(format!(
                    "heads of {dim} values; head dimensions must be even and at most 256"
                )));
            }
        }
        for (dim, format) in [head_dim, value_dim].into_iter().zip(params.blocks) {
            if let Some(format) = format.filter(|format| !format.supports(dim)) {
                let name = format.name;
                return Err(size(format!(
                    "heads of {dim} values in {name}: must be a multiple of 32"
                )));
            }
        }
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(size(format!(
                "{heads} query heads must be a multiple of {kv_heads} KV heads"
            )));
        }
        if params.page_size == 0 {
            return Err(size("page_size must not be 0".to_string()));
        }
        for (operand, number) in operands.into_iter().zip(0..) {
            let contiguous = match number {
                0 | 6 => operand.layout.strides[2] == 1,
                // Pairs of elements are loaded at once.
                1 | 2 => operand.layout.is_contiguous() && operand.layout.offset.is_multiple_of(8),
                _ => operand.layout.is_contiguous(),
            };
            if !contiguous {
                return Err(Unsupported::NeedsContiguous {
                    op: OP,
                    operand: number,
                });
            }
        }
        Ok(AttentionSizes {
            tokens,
            heads,
            kv_heads,
            head_dim,
            value_dim,
            slots,
            sequences: rows,
            table,
            capacity: (table * params.page_size as usize).min(i32::MAX as usize),
        })
    }
}
