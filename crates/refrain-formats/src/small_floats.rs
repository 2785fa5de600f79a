//! MLX's modes `mxfp8` and `nvfp4`: floats of 8 and 4 bits with a scale per group.
//!
//! No kernel reads them. A product of such a float and its scale has at most six significant bits, so that bfloat16 holds
//! it exactly: the tensors appear as BF16, and take that much memory.

use half::bf16;

use crate::blocks::{for_units, in_chunks};
use crate::mlx::RawTensor;
use crate::storage::{Span, TensorStorage};
use crate::tensor::{Tensor, TensorInfo};
use crate::{Encoding, Error};

/// Bytes of a value as it appears.
const VALUE_BYTES: usize = 2;

/// A mode of small floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallFloats {
    /// E4M3 in groups of 32, with powers of two as scales.
    MxFp8,
    /// E2M1 in groups of 16, with scales in E4M3.
    NvFp4,
}

impl SmallFloats {
    /// All modes.
    pub const ALL: [SmallFloats; 2] = [SmallFloats::MxFp8, SmallFloats::NvFp4];

    /// Value of `mode` in an MLX directory.
    pub fn mode(self) -> &'static str {
        match self {
            SmallFloats::MxFp8 => "mxfp8",
            SmallFloats::NvFp4 => "nvfp4",
        }
    }

    /// Bits per value.
    pub fn bits(self) -> u32 {
        match self {
            SmallFloats::MxFp8 => 8,
            SmallFloats::NvFp4 => 4,
        }
    }

    /// Values that share a scale.
    pub fn group(self) -> u32 {
        match self {
            SmallFloats::MxFp8 => 32,
            SmallFloats::NvFp4 => 16,
        }
    }

    /// Value `index` of the plane `quants`, without its scale.
    fn value(self, quants: &[u8], index: usize) -> f32 {
        match self {
            SmallFloats::MxFp8 => e4m3(quants[index]),
            SmallFloats::NvFp4 => e2m1(quants[index / 2] >> (4 * (index % 2)) & 0xf),
        }
    }

    fn scale(self, byte: u8) -> f32 {
        match self {
            SmallFloats::MxFp8 => e8m0(byte),
            SmallFloats::NvFp4 => e4m3(byte),
        }
    }
}

/// A float of one sign, four exponent and three mantissa bits, without infinities.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte >> 3 & 0xf, f32::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * (f32::from(exponent) - 7.0).exp2(),
    };
    if byte >> 7 == 1 { -size } else { size }
}

/// A float of one sign, two exponent bits and one mantissa bit.
fn e2m1(nibble: u8) -> f32 {
    const SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let size = SIZES[usize::from(nibble & 7)];
    if nibble >> 3 == 1 { -size } else { size }
}

/// A power of two.
fn e8m0(byte: u8) -> f32 {
    match byte {
        255 => f32::NAN,
        // The least one is a denormal number.
        0 => f32::from_bits(1 << 22),
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

/// Makes a tensor of a layer's quants and scales.
///
/// # Errors
/// If their shapes or types do not match.
pub(crate) fn assemble(
    kind: SmallFloats,
    weight: RawTensor,
    scales: RawTensor,
    labels: &[String],
) -> Result<(TensorInfo, TensorStorage), Error> {
    let error =
        |tensor: &RawTensor, reason: String| Err(Error::tensor(&labels[tensor.span.file], &tensor.info.name, reason));
    if weight.info.encoding != Encoding::U32 {
        let reason = format!("is quantised, but stored as {}, not U32", weight.info.encoding);
        return error(&weight, reason);
    }
    if scales.info.encoding != Encoding::U8 {
        let reason = format!(
            "scales in {} are not supported for {}",
            scales.info.encoding,
            kind.mode()
        );
        return error(&scales, reason);
    }
    let mut shape = weight.info.shape.clone();
    let mut wanted = shape.clone();
    if let (Some(columns), Some(groups)) = (shape.last_mut(), wanted.last_mut()) {
        *columns = columns.saturating_mul(32 / kind.bits() as usize);
        *groups = *columns / kind.group() as usize;
    }
    if !shape
        .last()
        .is_some_and(|columns| columns.is_multiple_of(kind.group() as usize))
        || scales.info.shape != wanted
    {
        let reason = format!(
            "has shape {:?}, but {} weights of shape {:?} (in words) require {wanted:?}",
            scales.info.shape,
            kind.mode(),
            weight.info.shape
        );
        return error(&scales, reason);
    }
    let info = TensorInfo {
        name: weight.info.name,
        shape,
        encoding: Encoding::BF16,
        bytes: weight.info.bytes + scales.info.bytes,
    };
    let storage = TensorStorage::SmallFloats {
        quants: weight.span,
        scales: scales.span,
        kind,
    };
    Ok((info, storage))
}

impl Tensor<'_> {
    /// Fills `out` with values in bfloat16, starting at byte `start`.
    pub(crate) fn write_small_floats(
        &self,
        kind: SmallFloats,
        [quants, scales]: [&Span; 2],
        start: usize,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let (quants, scales) = (self.bytes(quants), self.bytes(scales));
        let group = kind.group() as usize;
        in_chunks(start, out, |start, piece| {
            for_units(VALUE_BYTES, start, piece, |index, unit| {
                let value = kind.value(quants, index) * kind.scale(scales[index / group]);
                unit.copy_from_slice(&bf16::from_f32(value).to_le_bytes());
            });
        });
        let skipped = start % VALUE_BYTES;
        let values = out.get(skipped..).unwrap_or_default().as_chunks::<VALUE_BYTES>().0;
        let Some(at) = values.iter().position(|&bytes| !bf16::from_le_bytes(bytes).is_finite()) else {
            return Ok(());
        };
        let (index, columns) = (start.div_ceil(VALUE_BYTES) + at, self.info.columns().max(1));
        Err(self.error(format!(
            "value {} of row {} is not finite: the file is corrupt, or was converted from weights that are NaN or infinite",
            index % columns,
            index / columns
        )))
    }
}
