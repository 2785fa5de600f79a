//! MLX's quantisation in safetensors: a layer `X` is stored as `X.weight` (u32 words of packed quants), `X.scales`
//! and, for affine modes, `X.biases`.

use std::collections::{BTreeMap, BTreeSet};

use refrain_quant::QuantFormat;

use crate::blocks::RowOrder;
use crate::config::{LayerFormat, Quantisation};
use crate::storage::{Span, TensorStorage};
use crate::tensor::TensorInfo;
use crate::{Encoding, Error};
use crate::{doubles, small_floats};

/// A tensor as its file has it, before quantised layers are assembled.
#[derive(Debug, Clone)]
pub(crate) struct RawTensor {
    pub info: TensorInfo,
    pub span: Span,
}

/// Assembles the tensors of each quantised layer into one tensor. Passes other tensors through.
///
/// # Errors
/// If scales or biases are missing, or their shapes or types do not match the quants and the configuration.
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
    /// The tensor as an unquantised one.
    pub(crate) fn plain(self) -> (TensorInfo, TensorStorage) {
        doubles::unquantised(self.info, self.span)
    }
}

/// The tensors of a quantised layer.
struct QuantisedLayer {
    weight: RawTensor,
    scales: RawTensor,
    biases: Option<RawTensor>,
}

impl QuantisedLayer {
    /// Removes the tensors of `layer` from `raw`.
    fn take(
        raw: &mut BTreeMap<String, RawTensor>,
        layer: &str,
        has_biases: bool,
        labels: &[String],
    ) -> Result<QuantisedLayer, Error> {
        let mut take = |part: &str, beside: Option<&RawTensor>| {
            let name = format!("{layer}.{part}");
            raw.remove(&name).ok_or_else(|| {
                let file = beside.map_or(0, |tensor| tensor.span.file);
                Error::tensor(&labels[file], format!("{layer}.scales"), format!("{name} is missing"))
            })
        };
        let scales = take("scales", None)?;
        let weight = take("weight", Some(&scales))?;
        let biases = if has_biases {
            Some(take("biases", Some(&scales))?)
        } else {
            None
        };
        Ok(QuantisedLayer { weight, scales, biases })
    }

    /// Checks the tensors. The error names the invalid one.
    fn mismatch(&self, format: QuantFormat) -> Result<(), (&RawTensor, String)> {
        let (weight, scales) = (&self.weight.info, &self.scales.info);
        if weight.encoding != Encoding::U32 {
            let reason = format!("is quantised, but stored as {}, not U32", weight.encoding);
            return Err((&self.weight, reason));
        }
        let stored = scales.encoding.to_scale_type();
        if !stored.is_some_and(|stored| format.takes_scales(stored)) {
            return Err((&self.scales, format!("scales in {} are not supported", scales.encoding)));
        }
        if let Some(biases) = &self.biases
            && (biases.info.encoding != scales.encoding || biases.info.shape != scales.shape)
        {
            let reason = format!(
                "is {} of shape {:?}, but the scales beside it are {} of shape {:?}",
                biases.info.encoding, biases.info.shape, scales.encoding, scales.shape
            );
            return Err((biases, reason));
        }
        let mut wanted = self.shape(format);
        let columns = wanted.pop().unwrap_or(0);
        let (bits, group) = (format.bits, format.group as usize);
        wanted.push(columns / group);
        if !columns.is_multiple_of(group) || scales.shape != wanted {
            let reason = format!(
                "has shape {:?}, but {bits}-bit weights of shape {:?} (in words) with groups of \
                 {group} require {wanted:?}",
                scales.shape, weight.shape
            );
            return Err((&self.scales, reason));
        }
        Ok(())
    }

    /// Shape of the matrix, in values.
    fn shape(&self, format: QuantFormat) -> Vec<usize> {
        let mut shape = self.weight.info.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = format.columns(*last);
        }
        shape
    }
}

fn assemble_layer(
    raw: &mut BTreeMap<String, RawTensor>,
    layer: &str,
    quantisation: &Quantisation,
    labels: &[String],
) -> Result<(TensorInfo, TensorStorage), Error> {
    let error =
        |tensor: &RawTensor, reason: String| Error::tensor(&labels[tensor.span.file], &tensor.info.name, reason);
    let format = quantisation.of(layer);
    let has_biases = match format {
        Some(LayerFormat::Quantised(record)) => record.format.has_biases(),
        Some(LayerFormat::Floats(_)) => false,
        None => true,
    };
    let parts = QuantisedLayer::take(raw, layer, has_biases, labels)?;
    let record = match format {
        Some(LayerFormat::Quantised(record)) => record,
        Some(LayerFormat::Floats(floats)) => {
            return small_floats::assemble(floats, parts.weight, parts.scales, labels);
        }
        None => {
            return Err(error(
                &parts.scales,
                "has scales, but config.json says that the layer is not quantised".to_owned(),
            ));
        }
    };
    parts
        .mismatch(record.format)
        .map_err(|(tensor, reason)| error(tensor, reason))?;
    let biases = parts.biases.as_ref().map_or(0, |biases| biases.info.bytes);
    let info = TensorInfo {
        shape: parts.shape(record.format),
        name: parts.weight.info.name,
        encoding: Encoding::Quantised(record),
        bytes: parts.weight.info.bytes + parts.scales.info.bytes + biases,
    };
    let storage = TensorStorage::Planes {
        quants: parts.weight.span,
        scales: parts.scales.span,
        biases: parts.biases.map(|biases| biases.span),
        scale_encoding: parts.scales.info.encoding,
        rows: RowOrder::AsStored,
    };
    Ok((info, storage))
}
