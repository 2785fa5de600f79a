//! Loads a checkpoint's tensors onto a device.

use std::cell::Cell;

use refrain::nn::{Linear, Weight};
use refrain::{Array, DType, Device, QuantFormat, Quantised};
use refrain_formats::{CheckpointFiles, Encoding, RowOrder, Tensor};

use crate::stacked_tensors::StackedTensors;
use crate::{Error, ModelConfig};

/// Progress of loading.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes loaded so far.
    pub done: u64,
    /// Bytes of all tensors of the checkpoint.
    pub total: u64,
}

/// Loads tensors of a checkpoint onto a device, in the resident layout of their format.
pub struct Loader<'a> {
    /// The model's hyperparameters.
    pub config: &'a ModelConfig,
    /// The target device.
    pub device: &'a Device,
    files: &'a CheckpointFiles,
    progress: &'a dyn Fn(Progress),
    done: Cell<u64>,
    total: u64,
}

type FillPlane<'t> = dyn Fn(u64, &mut [u8]) -> Result<(), refrain_formats::Error> + 't;

impl<'a> Loader<'a> {
    /// Creates a loader that calls `progress` after every chunk.
    pub fn new(
        files: &'a CheckpointFiles,
        config: &'a ModelConfig,
        device: &'a Device,
        progress: &'a dyn Fn(Progress),
    ) -> Loader<'a> {
        Loader {
            config,
            device,
            files,
            progress,
            done: Cell::new(0),
            total: files.tensors().map(|tensor| tensor.bytes).sum(),
        }
    }

    /// Whether the checkpoint has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.files.tensor(name).is_some()
    }

    /// Column order of a matrix.
    pub fn column_order(&self, name: &str) -> RowOrder {
        self.files
            .tensor(name)
            .map_or(RowOrder::AsStored, |tensor| tensor.column_order())
    }

    /// Loads a matrix `[rows, columns]`, quantised or not.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Weight, Error> {
        let tensor = self.files.expect(name, &[rows, columns])?;
        self.stacked(vec![tensor], rows, columns)
    }

    /// Loads the matrices `[rows, columns]` of all experts as one `[experts · rows, columns]`: from tensor
    /// `{name}.{part}` `[experts, rows, columns]`, or from `{name}.N.{part}.weight` of each expert.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn experts(&self, name: &str, part: &str, experts: usize, shape: [usize; 2]) -> Result<Weight, Error> {
        let [rows, columns] = shape;
        let whole = format!("{name}.{part}");
        let tensors = if self.has(&whole) {
            vec![self.files.expect(&whole, &[experts, rows, columns])?]
        } else {
            let expert = |number| {
                let name = format!("{name}.{number}.{part}.weight");
                self.files.expect(&name, &shape)
            };
            (0..experts).map(expert).collect::<Result<_, _>>()?
        };
        self.stacked(tensors, experts * rows, columns)
    }

    /// Loads an array of floats, such as the weights of a convolution.
    ///
    /// # Errors
    /// If a tensor is missing, corrupt, or has another shape or an unsupported encoding; or if memory runs out.
    pub fn array(&self, name: &str, shape: &[usize]) -> Result<Array, Error> {
        let tensor = self.files.expect(name, shape)?;
        self.dense(
            &StackedTensors::new(vec![tensor]).map_err(|other| unreadable(&other))?,
            shape,
        )
    }

    /// Loads a vector `[n]`, such as a norm's weight or a bias.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn vector(&self, name: &str, n: usize) -> Result<Array, Error> {
        self.array(name, &[n])
    }

    /// Loads consecutive tensors as one matrix `[rows, columns]`.
    fn stacked(&self, tensors: Vec<Tensor<'_>>, rows: usize, columns: usize) -> Result<Weight, Error> {
        let stack = StackedTensors::new(tensors).map_err(|other| unreadable(&other))?;
        let weight = match stack.first().info.encoding.quantised() {
            None => Weight::Dense(self.dense(&stack, &[rows, columns])?),
            Some(record) => Weight::Quantised(self.quantised(&stack, record.format, rows, columns)?),
        };
        stack.discard();
        Ok(weight)
    }

    /// Loads the projection `{name}.weight` `[outputs, inputs]`, with `{name}.bias` if `bias`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn linear(&self, name: &str, outputs: usize, inputs: usize, bias: bool) -> Result<Linear, Error> {
        let weight = self.matrix(&format!("{name}.weight"), outputs, inputs)?;
        let bias = if bias {
            Some(self.vector(&format!("{name}.bias"), outputs)?)
        } else {
            None
        };
        Ok(Linear { weight, bias })
    }

    fn dense(&self, stack: &StackedTensors<'_>, shape: &[usize]) -> Result<Array, Error> {
        let tensor = stack.first();
        let dtype = dtype_of(tensor.info.encoding).ok_or_else(|| unreadable(tensor))?;
        self.plane(dtype, shape, &|offset, piece| stack.write_data(offset, piece))
    }

    fn quantised(
        &self,
        stack: &StackedTensors<'_>,
        format: QuantFormat,
        rows: usize,
        columns: usize,
    ) -> Result<Quantised, Error> {
        let tensor = stack.first();
        let scale = tensor
            .scale_encoding()
            .and_then(scale_dtype)
            .ok_or_else(|| unreadable(tensor))?;
        let groups = [rows, format.scales(columns)];
        let words = [rows, format.words(columns)];
        let biases = if format.has_biases() {
            Some(self.plane(scale, &groups, &|offset, piece| stack.write_biases(offset, piece))?)
        } else {
            None
        };
        Ok(Quantised {
            format,
            quants: self.plane(DType::U32, &words, &|offset, piece| stack.write_quants(offset, piece))?,
            scales: self.plane(scale, &groups, &|offset, piece| stack.write_scales(offset, piece))?,
            biases,
        })
    }

    fn plane(&self, dtype: DType, shape: &[usize], write: &FillPlane<'_>) -> Result<Array, Error> {
        let mut failure = None;
        let array = Array::weight(self.device, dtype, shape, &mut |offset, piece| {
            if let Err(error) = write(offset, piece) {
                failure.get_or_insert(error);
            }
            self.done.set(self.done.get() + piece.len() as u64);
            (self.progress)(Progress {
                done: self.done.get().min(self.total),
                total: self.total,
            });
        })?;
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(array),
        }
    }
}

fn unreadable(tensor: &Tensor<'_>) -> Error {
    Error::Encoding {
        tensor: tensor.info.name.clone(),
        encoding: tensor.info.encoding,
    }
}

fn dtype_of(encoding: Encoding) -> Option<DType> {
    match encoding {
        Encoding::F32 => Some(DType::F32),
        Encoding::F16 => Some(DType::F16),
        Encoding::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// Like [`dtype_of`], with u32 for records of two-level scales, and u8 for exponents.
fn scale_dtype(encoding: Encoding) -> Option<DType> {
    match encoding {
        Encoding::U32 => Some(DType::U32),
        Encoding::U8 => Some(DType::U8),
        _ => dtype_of(encoding),
    }
}
