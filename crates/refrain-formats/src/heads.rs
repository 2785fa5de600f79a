//! Projections to several heads that are stored as two tensors, one matrix per head in each.
//!
//! mlx-lm splits the projection to keys and values of multi-head latent attention this way, and transposes the keys'
//! part. Quantised, that part has its groups along the other axis, so the joined tensor has no quantised form: it
//! appears as F32, which holds every quantised value exactly. It is a small share of such a model.

use half::{bf16, f16};

use crate::blocks::RowOrder;
use crate::storage::TensorStorage;
use crate::{CheckpointFiles, Encoding, Error, Tensor, TensorInfo};

/// The two tensors of a projection.
#[derive(Debug, Clone)]
pub(crate) struct HeadPair {
    /// `[heads, inputs, first outputs]`.
    transposed: (TensorInfo, TensorStorage),
    /// `[heads, second outputs, inputs]`.
    straight: (TensorInfo, TensorStorage),
}

impl HeadPair {
    /// The two tensors.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &(TensorInfo, TensorStorage)> {
        [&self.transposed, &self.straight].into_iter()
    }

    /// Heads, inputs, and outputs of a head in either tensor; `None` if the shapes do not match.
    fn sizes(&self) -> Option<[usize; 4]> {
        let [heads, inputs, first] = self.transposed.0.shape[..] else {
            return None;
        };
        match self.straight.0.shape[..] {
            [count, second, columns] if count == heads && columns == inputs => Some([heads, inputs, first, second]),
            _ => None,
        }
    }

    /// Encoding of the joined values: that of both tensors, or one that holds the values of both.
    fn encoding(&self) -> Encoding {
        let [one, other] = [&self.transposed, &self.straight].map(|part| part.0.encoding);
        match one {
            Encoding::F16 | Encoding::BF16 if one == other => one,
            _ => Encoding::F32,
        }
    }
}

impl Tensor<'_> {
    /// Copies bytes of joined tensors, starting at byte `start`.
    pub(crate) fn write_joined(&self, pair: &HeadPair, start: usize, mut out: &mut [u8]) -> Result<(), Error> {
        let Some([_, inputs, first, second]) = pair.sizes() else {
            return Err(self.error("has parts of other shapes"));
        };
        let size = self.info.encoding.value_bytes().unwrap_or(1);
        let bytes = size * inputs * (first + second);
        let mut at = start;
        while !out.is_empty() {
            let within = at % bytes;
            let length = out.len().min(bytes - within);
            let (piece, rest) = out.split_at_mut(length);
            let head = self.joined_head(pair, at / bytes, [inputs, first, second])?;
            piece.copy_from_slice(&narrow(self.info.encoding, &head)[within..within + length]);
            (at, out) = (at + length, rest);
        }
        Ok(())
    }

    /// The rows of one head.
    fn joined_head(&self, pair: &HeadPair, number: usize, sizes: [usize; 3]) -> Result<Vec<f32>, Error> {
        let [inputs, first, second] = sizes;
        let part = |(info, storage): &(TensorInfo, TensorStorage), rows: usize, columns: usize| {
            let tensor = Tensor {
                info,
                storage,
                columns: RowOrder::AsStored,
                files: self.files,
                labels: self.labels,
            };
            let mut values = vec![0.0; rows * columns];
            tensor.dequantise_rows(number * rows, &mut values)?;
            Ok::<_, Error>(values)
        };
        let transposed = part(&pair.transposed, inputs, first)?;
        let rows = (0..first).flat_map(|row| (0..inputs).map(move |column| (row, column)));
        let mut head = Vec::with_capacity(inputs * (first + second));
        head.extend(rows.map(|(row, column)| transposed[column * first + row]));
        head.extend(part(&pair.straight, second, inputs)?);
        Ok(head)
    }
}

/// The bytes of values that `encoding` holds exactly.
fn narrow(encoding: Encoding, values: &[f32]) -> Vec<u8> {
    let values = values.iter();
    match encoding {
        Encoding::F16 => values.flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        Encoding::BF16 => values.flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
        _ => values.flat_map(|v| v.to_le_bytes()).collect(),
    }
}

impl CheckpointFiles {
    /// Replaces the tensors `transposed` `[H, K, A]` and `straight` `[H, B, K]` by `name` `[H · (A + B), K]`: for each of
    /// H heads A rows of the first, then B rows of the second. Does nothing if neither exists.
    ///
    /// # Errors
    /// If only one of them exists, their shapes do not match, or one does not hold real numbers.
    pub fn join_heads(&mut self, name: &str, [transposed, straight]: [&str; 2]) -> Result<(), Error> {
        let (first, second) = match (self.stored(transposed), self.stored(straight)) {
            (None, None) => return Ok(()),
            (Some(first), Some(second)) => (first.clone(), second.clone()),
            (found, _) => {
                let (found, missing) = match found {
                    Some(_) => (transposed, straight),
                    None => (straight, transposed),
                };
                return Err(Error::tensor(
                    self.name(),
                    found,
                    format!("{missing}, which belongs to it, is missing"),
                ));
            }
        };
        let bytes = first.0.bytes + second.0.bytes;
        let pair = HeadPair {
            transposed: first,
            straight: second,
        };
        let Some([heads, inputs, first, second]) = pair.sizes() else {
            let [one, other] = [&pair.transposed.0.shape, &pair.straight.0.shape];
            let reason = format!("has shape {one:?}, which does not match {other:?} of {straight}");
            return Err(Error::tensor(self.name(), transposed, reason));
        };
        let readable = |encoding| {
            matches!(
                encoding,
                Encoding::F32 | Encoding::F16 | Encoding::BF16 | Encoding::Quantised(_)
            )
        };
        if let Some((info, _)) = pair.parts().find(|(info, _)| !readable(info.encoding)) {
            let reason = format!("weights stored as {} are not supported", info.encoding);
            return Err(Error::tensor(self.name(), &info.name, reason));
        }
        let info = TensorInfo {
            name: name.to_owned(),
            shape: vec![heads * (first + second), inputs],
            encoding: pair.encoding(),
            bytes,
        };
        self.replace([transposed, straight], info, TensorStorage::Joined(Box::new(pair)));
        Ok(())
    }
}
