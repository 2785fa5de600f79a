//! MLX's affine quantisation in safetensors: a layer `X` is three tensors, `X.weight` (u32 words of
//! packed quants), `X.scales` and `X.biases`.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Quantisation;
use crate::tensor::{Span, TensorInfo, TensorStorage};
use crate::{Encoding, Error};

/// Values that share a scale and a bias where nothing else is said.
pub(crate) const USUAL_GROUP: u16 = 64;

/// What names of formats may end in, and the size of groups that it means.
const GROUPS: [(&str, u16); 4] = [("", USUAL_GROUP), ("-g32", 32), ("-g64", 64), ("-g128", 128)];

/// Bits and group size of the format of a name, such as `mlx4` or `mlx4-g32`.
pub(crate) fn by_name(name: &str) -> Option<(u8, u16)> {
    let (bits, rest) = name.strip_prefix("mlx")?.split_at_checked(1)?;
    let bits = bits.parse().ok().filter(|bits| [2, 3, 4, 5, 6, 8].contains(bits))?;
    let (_, group) = GROUPS.into_iter().find(|(suffix, _)| *suffix == rest)?;
    Some((bits, group))
}

/// The shortest name of a format.
pub(crate) fn name(bits: u8, group: u16) -> String {
    match group {
        USUAL_GROUP => format!("mlx{bits}"),
        _ => format!("mlx{bits}-g{group}"),
    }
}

/// A tensor as its file has it, before MLX's triples are put together.
#[derive(Debug, Clone)]
pub(crate) struct RawTensor {
    pub info: TensorInfo,
    pub span: Span,
}

/// Put the triples of quantised layers together into one tensor each, and pass the others through.
///
/// # Errors
/// If scales or biases are missing, or their shapes or types do not fit the quants and the
/// configuration.
pub(crate) fn assemble(
    mut raw: BTreeMap<String, RawTensor>,
    quantisation: &Quantisation,
    labels: &[String],
) -> Result<Vec<(TensorInfo, TensorStorage)>, Error> {
    let layers: BTreeSet<String> = raw
        .keys()
        .filter_map(|name| name.strip_suffix(".scales").map(str::to_owned))
        .collect();
    let mut tensors = Vec::with_capacity(raw.len());
    for layer in layers {
        tensors.push(assemble_layer(&mut raw, &layer, quantisation, labels)?);
    }
    for tensor in raw.into_values() {
        let layer = tensor.info.name.strip_suffix(".weight");
        if tensor.info.encoding == Encoding::U32 && layer.is_some_and(|layer| quantisation.of(layer).is_some()) {
            return Err(Error::tensor(
                &labels[tensor.span.file],
                &tensor.info.name,
                "is quantised, but has no scales beside it",
            ));
        }
        tensors.push(tensor.plain());
    }
    Ok(tensors)
}

impl RawTensor {
    /// The tensor as it is, when nothing is quantised.
    pub(crate) fn plain(self) -> (TensorInfo, TensorStorage) {
        let rows = crate::blocks::RowOrder::AsStored;
        let data = self.span;
        (self.info, TensorStorage::Plain { data, rows })
    }
}

fn assemble_layer(
    raw: &mut BTreeMap<String, RawTensor>,
    layer: &str,
    quantisation: &Quantisation,
    labels: &[String],
) -> Result<(TensorInfo, TensorStorage), Error> {
    let mut take = |part: &str, beside: Option<&RawTensor>| {
        let name = format!("{layer}.{part}");
        raw.remove(&name).ok_or_else(|| {
            let file = beside.map_or(0, |tensor| tensor.span.file);
            Error::tensor(
                &labels[file],
                format!("{layer}.scales"),
                format!("{name}, which belongs to it, is missing"),
            )
        })
    };
    let scales = take("scales", None)?;
    let weight = take("weight", Some(&scales))?;
    let biases = take("biases", Some(&scales))?;
    let error =
        |tensor: &RawTensor, reason: String| Error::tensor(&labels[tensor.span.file], &tensor.info.name, reason);
    let Some((bits, group)) = quantisation.of(layer) else {
        return Err(error(
            &scales,
            "has scales, but config.json says that the layer is not quantised".to_owned(),
        ));
    };
    if weight.info.encoding != Encoding::U32 {
        return Err(error(
            &weight,
            format!("is quantised, but stored as {}, not U32", weight.info.encoding),
        ));
    }
    if !matches!(scales.info.encoding, Encoding::F16 | Encoding::BF16 | Encoding::F32) {
        return Err(error(
            &scales,
            format!("scales in {} are not supported", scales.info.encoding),
        ));
    }
    if biases.info.encoding != scales.info.encoding || biases.info.shape != scales.info.shape {
        return Err(error(
            &biases,
            format!(
                "is {} of shape {:?}, but the scales beside it are {} of shape {:?}",
                biases.info.encoding, biases.info.shape, scales.info.encoding, scales.info.shape
            ),
        ));
    }
    let mut shape = weight.info.shape.clone();
    let words = shape.pop().unwrap_or(0);
    let columns = words * 32 / usize::from(bits);
    let mut scales_shape = shape.clone();
    scales_shape.push(columns / usize::from(group));
    if !columns.is_multiple_of(usize::from(group)) || scales.info.shape != scales_shape {
        return Err(error(
            &scales,
            format!(
                "has shape {:?}, but {bits}-bit weights of shape {:?} (in words) with groups of \
                 {group} call for {scales_shape:?}",
                scales.info.shape, weight.info.shape
            ),
        ));
    }
    shape.push(columns);
    let info = TensorInfo {
        name: weight.info.name,
        shape,
        encoding: Encoding::MlxAffine { bits, group },
        bytes: weight.info.bytes + scales.info.bytes + biases.info.bytes,
    };
    let storage = TensorStorage::Affine {
        quants: weight.span,
        scales: scales.span,
        biases: biases.span,
        scale_encoding: scales.info.encoding,
    };
    Ok((info, storage))
}
