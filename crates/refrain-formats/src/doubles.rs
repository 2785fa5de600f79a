//! Tensors stored as F64. No kernel reads doubles, so they appear as F32 and are rounded while they are read.

use crate::Encoding;
use crate::blocks::{RowOrder, for_units, in_chunks};
use crate::storage::{Span, TensorStorage};
use crate::tensor::{Tensor, TensorInfo};

/// Bytes of a value as it appears.
const FLOAT_BYTES: usize = 4;

/// Bytes of a value in the file.
pub(crate) const DOUBLE_BYTES: usize = 8;

/// Returns an unquantised tensor with values at `data`.
pub(crate) fn unquantised(mut info: TensorInfo, data: Span) -> (TensorInfo, TensorStorage) {
    let rows = RowOrder::AsStored;
    if info.encoding == Encoding::F64 {
        info.encoding = Encoding::F32;
        return (info, TensorStorage::Doubles { data, rows });
    }
    (info, TensorStorage::Plain { data, rows })
}

impl Tensor<'_> {
    /// Fills `out` with values rounded to F32, starting at byte `start` of the rounded tensor.
    pub(crate) fn write_rounded(&self, data: &Span, rows: RowOrder, start: usize, out: &mut [u8]) {
        in_chunks(start, out, |start, piece| {
            let first = start / FLOAT_BYTES;
            let values = (start + piece.len()).div_ceil(FLOAT_BYTES) - first;
            let mut stored = vec![0; values * DOUBLE_BYTES];
            self.copy_rows(data, rows, first * DOUBLE_BYTES, &mut stored);
            let (stored, _) = stored.as_chunks::<DOUBLE_BYTES>();
            for_units(FLOAT_BYTES, start, piece, |index, unit| {
                let rounded = f64::from_le_bytes(stored[index - first]) as f32;
                unit.copy_from_slice(&rounded.to_le_bytes());
            });
        });
    }
}
