use std::cell::Cell;

use refrain::{Array, DType, Device, QuantFormat, Quantised};
use refrain_formats::{Encoding, RowOrder, Tensor};

use crate::blocks::{Linear, Weight};
use crate::stack::Stack;
use crate::{Checkpoint, Error, ModelConfig};

/// How far loading has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes on the device so far.
    pub done: u64,
    /// Bytes of all tensors of the checkpoint.
    pub total: u64,
}

/// Brings tensors of a checkpoint onto a device, in the resident layout of their format.
pub struct Loader<'a> {
    /// The model's hyperparameters.
    pub config: &'a ModelConfig,
    /// Where the weights go.
    pub device: &'a Device,
    checkpoint: &'a Checkpoint,
    progress: &'a dyn Fn(Progress),
    done: Cell<u64>,
    total: u64,
}

type Write<'t> = dyn Fn(u64, &mut [u8]) -> Result<(), refrain_formats::Error> + 't;

impl<'a> Loader<'a> {
    /// A loader from `checkpoint` to `device` that tells `progress` after every piece.
    pub fn new(checkpoint: &'a Checkpoint, device: &'a Device, progress: &'a dyn Fn(Progress)) -> Loader<'a> {
        let total = checkpoint.tensors().map(|t| t.bytes).sum();
        Loader {
            config: checkpoint.config(),
            device,
            checkpoint,
            progress,
            done: Cell::new(0),
            total,
        }
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.checkpoint.tensor(name).is_some()
    }

    /// The order in which a matrix has its columns.
    pub fn column_order(&self, name: &str) -> RowOrder {
        self.checkpoint
            .tensor(name)
            .map_or(RowOrder::AsStored, |tensor| tensor.column_order())
    }

    /// A matrix `[rows, columns]`, quantised or not.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Weight, Error> {
        let tensor = self.checkpoint.expect(name, &[rows, columns])?;
        self.stacked(vec![tensor], rows, columns)
    }

    /// The matrices `[rows, columns]` of all experts as one `[experts · rows, columns]`: from tensor
    /// `{name}.{part}` `[experts, rows, columns]`, or from one `{name}.N.{part}.weight` for each.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn experts(&self, name: &str, part: &str, experts: usize, shape: [usize; 2]) -> Result<Weight, Error> {
        let [rows, columns] = shape;
        let whole = format!("{name}.{part}");
        let tensors = match self.has(&whole) {
            true => vec![self.checkpoint.expect(&whole, &[experts, rows, columns])?],
            false => (0..experts)
                .map(|number| {
                    self.checkpoint
                        .expect(&format!("{name}.{number}.{part}.weight"), &shape)
                })
                .collect::<Result<_, _>>()?,
        };
        self.stacked(tensors, experts * rows, columns)
    }

    /// An array of floats, such as the weights of a convolution.
    ///
    /// # Errors
    /// A tensor that is missing, damaged, of another shape or of an encoding that no kernel reads; too little memory.
    pub fn array(&self, name: &str, shape: &[usize]) -> Result<Array, Error> {
        let tensor = self.checkpoint.expect(name, shape)?;
        self.dense(&Stack::new(vec![tensor]).map_err(|other| unreadable(&other))?, shape)
    }

    /// A vector `[n]`, such as a norm's weight or a bias.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn vector(&self, name: &str, n: usize) -> Result<Array, Error> {
        self.array(name, &[n])
    }

    /// Tensors one after the other as a matrix `[rows, columns]`.
    fn stacked(&self, tensors: Vec<Tensor<'_>>, rows: usize, columns: usize) -> Result<Weight, Error> {
        let stack = Stack::new(tensors).map_err(|other| unreadable(&other))?;
        let weight = match stack.first().info.encoding.quantised() {
            None => Weight::Dense(self.dense(&stack, &[rows, columns])?),
            Some(record) => Weight::Quantised(self.quantised(&stack, record.format, rows, columns)?),
        };
        stack.discard();
        Ok(weight)
    }

    /// The projection `{name}.weight` `[outputs, inputs]`, with `{name}.bias` if `bias`.
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

    fn dense(&self, stack: &Stack<'_>, shape: &[usize]) -> Result<Array, Error> {
        let tensor = stack.first();
        let dtype = dtype_of(tensor.info.encoding).ok_or_else(|| unreadable(tensor))?;
        self.plane(dtype, shape, &|offset, piece| stack.write_data(offset, piece))
    }

    fn quantised(
        &self,
        stack: &Stack<'_>,
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

    fn plane(&self, dtype: DType, shape: &[usize], write: &Write<'_>) -> Result<Array, Error> {
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

/// As [`dtype_of`], words for records of scales in two levels, and bytes for exponents.
fn scale_dtype(encoding: Encoding) -> Option<DType> {
    match encoding {
        Encoding::U32 => Some(DType::U32),
        Encoding::U8 => Some(DType::U8),
        _ => dtype_of(encoding),
    }
}
