//! Converts one tensor: a few rows at a time, on any thread, to f32 values and on to the new encoding.

use std::ops::Range;
use std::sync::Mutex;

use rayon::prelude::*;
use refrain_quant::{QuantFormat, QuantPlanes, ScaleType};

use refrain_formats::{Encoding, Error, RowOrder, Tensor, widen};

use super::{Item, ListedTensor};
use crate::quantise;

/// How far a tensor's values are from the original ones.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Deviation {
    /// Sum of the squared differences.
    squares: f64,
    /// Sum of the squared original values.
    reference: f64,
    /// Largest absolute difference.
    largest: f64,
}

impl Deviation {
    /// Returns the root mean square of the differences divided by that of the original values; 0 if both are zero.
    pub fn relative_rms(&self) -> f64 {
        match (self.squares, self.reference) {
            (0.0, _) => 0.0,
            (squares, reference) => (squares / reference).sqrt(),
        }
    }

    /// Returns the largest absolute difference.
    pub fn largest(&self) -> f64 {
        self.largest
    }

    /// Combines two deviations.
    pub fn merge(self, other: Deviation) -> Deviation {
        Deviation {
            squares: self.squares + other.squares,
            reference: self.reference + other.reference,
            largest: self.largest.max(other.largest),
        }
    }

    fn between(values: &[f32], now: &[f32]) -> Deviation {
        let pairs = values.iter().zip(now);
        pairs.fold(Deviation::default(), |sum, (&value, &now)| {
            let difference = f64::from(now) - f64::from(value);
            sum.merge(Deviation {
                squares: difference * difference,
                reference: f64::from(value) * f64::from(value),
                largest: difference.abs(),
            })
        })
    }
}

/// The result of converting a tensor.
#[derive(Debug, Clone)]
pub struct ConvertedTensor {
    /// Its Hugging Face name.
    pub name: String,
    /// Its shape, outermost axis first.
    pub shape: Vec<usize>,
    /// The source encoding.
    pub from: Encoding,
    /// The new encoding.
    pub to: Encoding,
    /// Its new size in bytes.
    pub bytes: u64,
    /// The deviation of its values.
    pub deviation: Deviation,
}

/// Rows of a tensor.
pub struct TensorRows<'a> {
    /// The tensor.
    pub tensor: Tensor<'a>,
    /// The range of rows.
    pub rows: Range<usize>,
}

/// How values change between formats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueChange {
    /// x + a: formats differ in whether norm weights include their offset of 1.
    Added(f32),
    /// −exp(x): the logarithm of a decay becomes a rate.
    NegatedExp,
    /// ln(−x): the inverse.
    LogOfNegated,
}

impl ValueChange {
    /// No change.
    pub const NONE: ValueChange = ValueChange::Added(0.0);

    fn apply(self, values: &mut [f32]) {
        if self == ValueChange::NONE {
            return;
        }
        for value in values {
            *value = match self {
                ValueChange::Added(added) => *value + added,
                ValueChange::NegatedExp => -value.exp(),
                ValueChange::LogOfNegated => (-*value).ln(),
            };
        }
    }
}

/// A tensor of the new checkpoint, and the source rows that it consists of, in order.
pub struct Conversion<'a> {
    sources: Vec<TensorRows<'a>>,
    /// The first row of each source.
    starts: Vec<usize>,
    /// Its Hugging Face name.
    label: String,
    /// Its name in the new checkpoint.
    pub name: String,
    /// Its shape in the new file, outermost axis first.
    pub shape: Vec<usize>,
    /// Its encoding in the new file.
    pub to: Encoding,
    /// The encoding of scales and biases of MLX's quantisation.
    pub scales: Encoding,
    /// Order of the rows in the new file.
    pub order: RowOrder,
    /// Order of the columns of each row in the new file.
    pub columns: RowOrder,
    /// Change of each value.
    pub change: ValueChange,
    /// Index at which the new shape gets an extra axis of length 1.
    pub extra_axis: Option<usize>,
    deviation: Mutex<Deviation>,
}

/// Buffers for one row.
#[derive(Default)]
struct RowBuffer {
    values: Vec<f32>,
    now: Vec<f32>,
}

impl<'a> Conversion<'a> {
    /// Copies `tensor` under the name `name`, with rows and values unchanged.
    pub fn new(tensor: Tensor<'a>, name: String, to: Encoding) -> Self {
        let rows = 0..tensor.info.rows();
        let (label, shape) = (tensor.info.name.clone(), tensor.info.shape.clone());
        Self::joined(vec![TensorRows { tensor, rows }], label, shape, name, to)
    }

    /// Concatenates the rows of `sources` (at least one) to a tensor of `shape` with the Hugging Face name `label`.
    pub fn joined(sources: Vec<TensorRows<'a>>, label: String, shape: Vec<usize>, name: String, to: Encoding) -> Self {
        let mut rows = 0;
        let starts = sources.iter().map(|source| {
            rows += source.rows.len();
            rows - source.rows.len()
        });
        Conversion {
            starts: starts.collect(),
            sources,
            label,
            name,
            shape,
            to,
            scales: Encoding::F16,
            order: RowOrder::AsStored,
            columns: RowOrder::AsStored,
            change: ValueChange::NONE,
            extra_axis: None,
            deviation: Mutex::default(),
        }
    }

    /// Returns the tensor that holds row `row` in source order, and the row's index in it.
    fn source(&self, row: usize) -> (&Tensor<'a>, usize) {
        let index = self.starts.partition_point(|&start| start <= row).max(1) - 1;
        let source = &self.sources[index];
        (&source.tensor, source.rows.start + row - self.starts[index])
    }

    fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Returns the number of rows in the new file.
    fn rows(&self) -> usize {
        self.shape[..self.shape.len().saturating_sub(1)].iter().product()
    }

    /// Returns the result, once the tensor has been written.
    pub fn outcome(&self) -> ConvertedTensor {
        let deviation = match self.deviation.lock() {
            Ok(deviation) => *deviation,
            Err(poisoned) => *poisoned.into_inner(),
        };
        ConvertedTensor {
            name: self.label.clone(),
            shape: self.shape.clone(),
            from: self.sources[0].tensor.info.encoding,
            to: self.to,
            bytes: self.item().total(),
            deviation,
        }
    }

    /// Returns the item to write.
    pub fn item(&self) -> Item<'_> {
        let (rows, columns) = (self.rows(), self.columns());
        let part = |name: String, encoding: Encoding, columns: usize, row_bytes: usize| {
            let mut shape = self.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = columns;
            }
            if let Some(axis) = self.extra_axis {
                shape.insert(axis, 1);
            }
            let bytes = (rows * row_bytes) as u64;
            ListedTensor {
                name,
                encoding,
                shape,
                bytes,
            }
        };
        let Some(affine) = self.to.quantised().filter(|record| record.is_mlx_affine()) else {
            let row_bytes = match self.to.block_bytes() {
                Some(block) => columns / self.to.block_values() * block,
                None => columns * self.to.value_bytes().unwrap_or(4),
            };
            let part = part(self.name.clone(), self.to, columns, row_bytes);
            return Item::single(part, rows, move |rows, out| match self.order {
                RowOrder::Transposed {
                    rows: height, columns, ..
                } => self.make_columns([height, columns], rows, out),
                _ => self.make_rows(rows, out),
            });
        };
        let layer = self.name.strip_suffix(".weight").unwrap_or(&self.name);
        let format = affine.format;
        let (words, groups) = (format.words(columns), format.scales(columns));
        let factors = groups * self.scales.value_bytes().unwrap_or(2);
        Item {
            parts: vec![
                part(self.name.clone(), Encoding::U32, words, 4 * words),
                part(format!("{layer}.scales"), self.scales, groups, factors),
                part(format!("{layer}.biases"), self.scales, groups, factors),
            ],
            rows,
            make: Box::new(move |rows, out| match out {
                [quants, scales, biases] => self.make_affine_rows(format, rows, [quants, scales, biases]),
                _ => Ok(()),
            }),
        }
    }

    fn make_rows(&self, rows: Range<usize>, out: &mut [u8]) -> Result<(), Error> {
        let (row_bytes, last) = (out.len() / rows.len().max(1), rows.end);
        if row_bytes == 0 {
            return Ok(());
        }
        let made = out
            .par_chunks_exact_mut(row_bytes)
            .zip(rows)
            .map_init(RowBuffer::default, |memory, (out, row)| {
                self.read(row, memory)?;
                if self.copy(row, out) {
                    return Ok(Deviation::between(&memory.values, &memory.values));
                }
                self.store(memory, out).ok_or_else(|| self.out_of_range(row))
            });
        self.count(made.collect::<Result<_, _>>()?);
        self.discard(last);
        Ok(())
    }

    /// Encodes the values of a row and returns their deviation; `None` if a value cannot be encoded.
    fn store(&self, memory: &mut RowBuffer, out: &mut [u8]) -> Option<Deviation> {
        quantise::row(self.to, &memory.values, out)?;
        match self.to.quantised() {
            None => widen(self.to, out, &mut memory.now),
            Some(record) => {
                let values = memory.now.chunks_exact_mut(self.to.block_values());
                let bytes = self.to.block_bytes().unwrap_or(1);
                for (block, values) in out.chunks_exact(bytes).zip(values) {
                    record.dequantise_block(block, values);
                }
            }
        }
        Some(Deviation::between(&memory.values, &memory.now))
    }

    /// Encodes columns of matrices of `height` rows and `width` columns. Each matrix is read as a whole.
    fn make_columns(&self, [height, width]: [usize; 2], columns: Range<usize>, out: &mut [u8]) -> Result<(), Error> {
        let (column_bytes, end) = (out.len() / columns.len().max(1), columns.end);
        let row = self.sources[0].tensor.info.columns().max(1);
        let mut rest = out;
        let mut first = columns.start;
        while first < end {
            let matrix = first / width;
            let last = end.min((matrix + 1) * width);
            let (piece, others) = rest.split_at_mut((last - first) * column_bytes);
            let mut values = vec![0.0; height * width];
            let rows = values.par_chunks_exact_mut(row).enumerate();
            rows.try_for_each(|(index, values)| {
                let (tensor, row) = self.source(matrix * (height * width / row) + index);
                tensor.dequantise_rows(row, values)
            })?;
            let made = piece
                .par_chunks_exact_mut(column_bytes)
                .zip(first - matrix * width..last - matrix * width)
                .map_init(RowBuffer::default, |memory, (out, column)| {
                    let stored = (0..height).map(|row| values[self.order.logical(row) * width + column]);
                    memory.values.clear();
                    memory.values.extend(stored);
                    memory.now.resize(height, 0.0);
                    self.store(memory, out)
                        .ok_or_else(|| self.out_of_range(matrix * height))
                });
            self.count(made.collect::<Result<_, _>>()?);
            (rest, first) = (others, last);
        }
        self.discard(end);
        Ok(())
    }

    fn make_affine_rows(
        &self,
        format: QuantFormat,
        rows: Range<usize>,
        [quants, scales, biases]: [&mut [u8]; 3],
    ) -> Result<(), Error> {
        let (count, last) = (rows.len().max(1), rows.end);
        let (words, factors) = (quants.len() / count, scales.len() / count);
        let stored = self.scales.to_scale_type().unwrap_or(ScaleType::F16);
        let parts = quants
            .par_chunks_exact_mut(words)
            .zip(scales.par_chunks_exact_mut(factors))
            .zip(biases.par_chunks_exact_mut(factors));
        let made = parts
            .zip(rows)
            .map_init(RowBuffer::default, |memory, (((quants, scales), biases), row)| {
                self.read(row, memory)?;
                let (tensor, row) = self.source(row);
                if tensor.info.encoding == self.to && tensor.scale_encoding() == Some(self.scales) {
                    tensor.write_quants((row * words) as u64, quants)?;
                    tensor.write_scales((row * factors) as u64, scales)?;
                    tensor.write_biases((row * factors) as u64, biases)?;
                    return Ok(Deviation::between(&memory.values, &memory.values));
                }
                let parts = [&mut *quants, &mut *scales, &mut *biases];
                refrain_quant::quantise_affine(format, stored, &memory.values, parts)
                    .ok_or_else(|| self.out_of_range(row))?;
                let planes = QuantPlanes {
                    format,
                    stored,
                    quants,
                    scales,
                    biases,
                };
                planes.read(0, &mut memory.now);
                Ok(Deviation::between(&memory.values, &memory.now))
            });
        self.count(made.collect::<Result<_, _>>()?);
        self.discard(last);
        Ok(())
    }

    /// Releases the source's pages once its last row, `end` − 1, has been read.
    fn discard(&self, end: usize) {
        if end == self.rows() {
            self.sources.iter().for_each(|source| source.tensor.discard());
        }
    }

    /// Copies row `row` of the new file from the source, if both store it in the same blocks.
    fn copy(&self, row: usize, out: &mut [u8]) -> bool {
        let (tensor, row) = self.source(self.order.logical(row));
        tensor.info.encoding == self.to && tensor.copy_blocks(row, self.columns, out)
    }

    /// Reads the values of row `row` of the new file.
    fn read(&self, row: usize, memory: &mut RowBuffer) -> Result<(), Error> {
        let columns = self.columns();
        memory.values.resize(columns, 0.0);
        memory.now.resize(columns, 0.0);
        if self.shape.len() == 1 {
            // A vector is one row here; the order applies to its values.
            self.sources[0].tensor.dequantise_rows(0, &mut memory.now)?;
            for (index, value) in memory.values.iter_mut().enumerate() {
                *value = memory.now[self.order.logical(index)];
            }
        } else {
            let (tensor, row) = self.source(self.order.logical(row));
            match self.columns {
                RowOrder::AsStored => tensor.dequantise_rows(row, &mut memory.values)?,
                order => {
                    tensor.dequantise_rows(row, &mut memory.now)?;
                    for (column, value) in memory.values.iter_mut().enumerate() {
                        *value = memory.now[order.logical(column)];
                    }
                }
            }
        }
        self.change.apply(&mut memory.values);
        Ok(())
    }

    fn count(&self, rows: Vec<Deviation>) {
        let sum = rows.into_iter().fold(Deviation::default(), Deviation::merge);
        let mut deviation = match self.deviation.lock() {
            Ok(deviation) => deviation,
            Err(poisoned) => poisoned.into_inner(),
        };
        *deviation = deviation.merge(sum);
    }

    fn out_of_range(&self, row: usize) -> Error {
        let (tensor, row) = self.source(self.order.logical(row));
        tensor.error(format!(
            "row {row} holds a value that is NaN or too large for {}",
            self.to
        ))
    }
}
