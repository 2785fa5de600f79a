//! Where the bytes of a tensor are.

use std::ops::Range;

use crate::Encoding;
use crate::blocks::RowOrder;
use crate::heads::HeadPair;
use crate::small_floats::SmallFloats;
use crate::synthetic::RandomTensor;

/// A byte range of one of the checkpoint's files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub file: usize,
    pub range: Range<usize>,
}

/// Location and order of a tensor's bytes.
#[derive(Debug, Clone)]
pub(crate) enum TensorStorage {
    /// Unquantised values.
    Plain { data: Span, rows: RowOrder },
    /// Unquantised F64 values, which appear as F32.
    Doubles { data: Span, rows: RowOrder },
    /// GGUF blocks of scale and quants.
    Blocks { data: Span, rows: RowOrder },
    /// Separate planes of quants, scales and optional biases.
    Planes {
        quants: Span,
        scales: Span,
        biases: Option<Span>,
        scale_encoding: Encoding,
        rows: RowOrder,
    },
    /// Floats of a few bits with a scale per group, which appear as BF16.
    SmallFloats {
        quants: Span,
        scales: Span,
        kind: SmallFloats,
    },
    /// Two tensors that appear as one.
    Joined(Box<HeadPair>),
    /// No file: generated on each read.
    Synthetic(RandomTensor),
}

impl TensorStorage {
    /// The byte ranges that hold the tensor.
    pub(crate) fn spans(&self) -> Vec<&Span> {
        match self {
            TensorStorage::Plain { data, .. }
            | TensorStorage::Doubles { data, .. }
            | TensorStorage::Blocks { data, .. } => vec![data],
            TensorStorage::Planes {
                quants, scales, biases, ..
            } => [quants, scales].into_iter().chain(biases).collect(),
            TensorStorage::SmallFloats { quants, scales, .. } => vec![quants, scales],
            TensorStorage::Joined(pair) => pair.parts().flat_map(|(_, storage)| storage.spans()).collect(),
            TensorStorage::Synthetic(_) => Vec::new(),
        }
    }
}
