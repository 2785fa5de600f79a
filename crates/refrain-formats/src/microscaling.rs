//! MXFP4 in safetensors, as in gpt-oss: a tensor `X` is stored as `X_blocks` (16 bytes per 32 values) and `X_scales`
//! (one byte per 32 values).

use std::collections::BTreeMap;

use crate::blocks::RowOrder;
use crate::mlx::RawTensor;
use crate::storage::TensorStorage;
use crate::tensor::TensorInfo;
use crate::{Encoding, Error};

/// Suffixes of the two tensors.
const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";

/// Removes such pairs from `raw` and joins each into one tensor.
///
/// # Errors
/// If blocks and scales do not match.
pub(crate) fn join(
    raw: &mut BTreeMap<String, RawTensor>,
    labels: &[String],
) -> Result<Vec<(TensorInfo, TensorStorage)>, Error> {
    let bytes = |name: &str| raw.get(name).is_some_and(|tensor| tensor.info.encoding == Encoding::U8);
    let is_pair = |name: &&str| bytes(&format!("{name}{BLOCKS}")) && bytes(&format!("{name}{SCALES}"));
    let names = raw.keys().filter_map(|name| name.strip_suffix(BLOCKS)).filter(is_pair);
    let names = Vec::from_iter(names.map(str::to_owned));
    let mut joined = Vec::with_capacity(names.len());
    for name in names {
        let parts = [BLOCKS, SCALES].map(|part| raw.remove(&format!("{name}{part}")));
        let [Some(blocks), Some(scales)] = parts else { continue };
        let mut shape = scales.info.shape.clone();
        let mut wanted = shape.clone();
        wanted.push(16);
        if blocks.info.shape != wanted {
            let reason = format!(
                "has shape {:?}, but the scales beside it, of shape {shape:?}, require {wanted:?}",
                blocks.info.shape
            );
            return Err(Error::tensor(&labels[blocks.span.file], blocks.info.name, reason));
        }
        if let Some(last) = shape.last_mut() {
            *last *= 32;
        }
        let info = TensorInfo {
            name,
            shape,
            encoding: Encoding::named("mxfp4"),
            bytes: blocks.info.bytes + scales.info.bytes,
        };
        let storage = TensorStorage::Planes {
            quants: blocks.span,
            scales: scales.span,
            biases: None,
            scale_encoding: Encoding::U8,
            rows: RowOrder::AsStored,
        };
        joined.push((info, storage));
    }
    Ok(joined)
}
