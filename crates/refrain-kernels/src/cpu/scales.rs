use super::f32x8::{BLOCK, F32x8};
use crate::DType;
use crate::quantised::{Code, QuantFormat, QuantRows, RECORD_VALUES, ScaleType};

/// Blocks whose parameters are read at once: those of a record.
pub(super) const CHUNK: usize = RECORD_VALUES / BLOCK;

/// Scales of a chunk's blocks, and biases (the value of a stored 0). If a block holds two groups, both have 16 entries.
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    pub scales: [F32x8; 2],
    pub biases: [F32x8; 2],
}

impl Parameters {
    /// Parameters of values that are centred on `middle`.
    #[inline(always)]
    fn centred(middle: f32, scales: [F32x8; 2]) -> Parameters {
        let bias = |scales: F32x8| F32x8::new(|l| -middle * scales.0[l]);
        let biases = [bias(scales[0]), bias(scales[1])];
        Parameters { scales, biases }
    }
}

/// Storage of a matrix's parameters. It is a type, so that the loop over blocks does not branch on it.
pub(super) trait StoredParameters<'a>: Copy + Sync {
    /// Whether a block holds two groups.
    const TWO_GROUPS: bool;

    fn new(rows: &QuantRows<'a>) -> Self;

    /// Reads chunk `chunk` of row `row`, which has `length` blocks, with zeros beyond its end. `middle` is the centre
    /// of centred values. `f16x8` converts eight f16.
    fn read(
        self,
        row: usize,
        length: usize,
        chunk: usize,
        middle: f32,
        f16x8: impl Fn(F16Bytes) -> F32x8,
    ) -> Parameters;
}

/// The bytes of eight f16. Processors convert them in different ways.
pub(super) type F16Bytes = [u8; 2 * F32x8::LANES];

/// A scale record: two factors, and integers for the groups of a chunk.
type Record = [u8; 20];

/// Splits a record into its factors and integers.
#[inline(always)]
fn parts(record: &Record, f16x8: impl Fn(F16Bytes) -> F32x8) -> (f32, f32, &[u8; 16]) {
    let [a, b, c, d, bytes @ ..] = record;
    let [first, second, ..] = f16x8([*a, *b, *c, *d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).0;
    (first, second, bytes)
}

/// The record of a chunk.
#[inline(always)]
fn record(records: &[Record], row: usize, length: usize, chunk: usize) -> &Record {
    &records[row * (length / CHUNK) + chunk]
}

/// Records with a scale byte and a bias byte per block: Q4_K, Q5_K.
#[derive(Clone, Copy)]
pub(super) struct BlockRecords<'a>(&'a [Record]);

impl<'a> StoredParameters<'a> for BlockRecords<'a> {
    const TWO_GROUPS: bool = false;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(self, row: usize, length: usize, chunk: usize, _: f32, f16x8: impl Fn(F16Bytes) -> F32x8) -> Parameters {
        let (d, m, bytes) = parts(record(self.0, row, length, chunk), f16x8);
        Parameters {
            scales: [F32x8::new(|g| d * f32::from(bytes[g])), F32x8::ZERO],
            biases: [F32x8::new(|g| -m * f32::from(bytes[8 + g])), F32x8::ZERO],
        }
    }
}

/// Records with a scale nibble and a bias nibble per half block: Q2_K.
#[derive(Clone, Copy)]
pub(super) struct NibbleRecords<'a>(&'a [Record]);

impl<'a> StoredParameters<'a> for NibbleRecords<'a> {
    const TWO_GROUPS: bool = true;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(self, row: usize, length: usize, chunk: usize, _: f32, f16x8: impl Fn(F16Bytes) -> F32x8) -> Parameters {
        let (d, m, bytes) = parts(record(self.0, row, length, chunk), f16x8);
        let scales = |first: usize| F32x8::new(|g| d * f32::from(bytes[first + g] & 15));
        let biases = |first: usize| F32x8::new(|g| -m * f32::from(bytes[first + g] >> 4));
        Parameters {
            scales: [scales(0), scales(8)],
            biases: [biases(0), biases(8)],
        }
    }
}

/// Records with a signed scale byte per half block: Q3_K, Q6_K.
#[derive(Clone, Copy)]
pub(super) struct SignedRecords<'a>(&'a [Record]);

impl<'a> StoredParameters<'a> for SignedRecords<'a> {
    const TWO_GROUPS: bool = true;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(
        self,
        row: usize,
        length: usize,
        chunk: usize,
        middle: f32,
        f16x8: impl Fn(F16Bytes) -> F32x8,
    ) -> Parameters {
        let (d, _, bytes) = parts(record(self.0, row, length, chunk), f16x8);
        let scales = |first: usize| F32x8::new(|g| d * f32::from(bytes[first + g] as i8));
        Parameters::centred(middle, [scales(0), scales(8)])
    }
}

/// Records of any size with a signed scale byte per block: IQ4_XS.
#[derive(Clone, Copy)]
pub(super) struct SignedBlocks<'a> {
    records: &'a [u8],
    size: usize,
}

impl<'a> StoredParameters<'a> for SignedBlocks<'a> {
    const TWO_GROUPS: bool = false;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self {
            records: rows.stored_parameters()[0],
            size: 4 * rows.format().scales(RECORD_VALUES),
        }
    }

    #[inline(always)]
    fn read(
        self,
        row: usize,
        length: usize,
        chunk: usize,
        middle: f32,
        f16x8: impl Fn(F16Bytes) -> F32x8,
    ) -> Parameters {
        let record = &self.records[(row * (length / CHUNK) + chunk) * self.size..][..4 + CHUNK];
        let [d, ..] = f16x8([record[0], record[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).0;
        let scales = F32x8::new(|g| d * f32::from(record[4 + g] as i8));
        Parameters::centred(middle, [scales, F32x8::ZERO])
    }
}

/// A byte per block, a power of two: MXFP4.
#[derive(Clone, Copy)]
pub(super) struct Exponents<'a>(&'a [[u8; 1]]);

impl<'a> StoredParameters<'a> for Exponents<'a> {
    const TWO_GROUPS: bool = false;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(self, row: usize, length: usize, chunk: usize, middle: f32, _: impl Fn(F16Bytes) -> F32x8) -> Parameters {
        let stored = padded::<1, CHUNK>(&self.0[row * length..][..length], chunk);
        let scales = F32x8::new(|l| ScaleType::U8.read(&stored[l]));
        Parameters::centred(middle, [scales, F32x8::ZERO])
    }
}

/// An f16 scale per block of centred values: Q4_0, Q5_0, Q8_0.
#[derive(Clone, Copy)]
pub(super) struct BlockF16<'a>(&'a [[u8; 2]]);

impl<'a> StoredParameters<'a> for BlockF16<'a> {
    const TWO_GROUPS: bool = false;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(
        self,
        row: usize,
        length: usize,
        chunk: usize,
        middle: f32,
        f16x8: impl Fn(F16Bytes) -> F32x8,
    ) -> Parameters {
        let stored = padded::<2, CHUNK>(&self.0[row * length..][..length], chunk);
        let scales = f16x8(bytemuck::cast(stored));
        Parameters::centred(middle, [scales, F32x8::ZERO])
    }
}

/// Floats of any type, each for one or more blocks.
#[derive(Clone, Copy)]
pub(super) struct AnyFloats<'a> {
    format: QuantFormat,
    dtype: DType,
    planes: [&'a [u8]; 2],
}

impl<'a> StoredParameters<'a> for AnyFloats<'a> {
    const TWO_GROUPS: bool = false;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self {
            format: rows.format(),
            dtype: rows.parameter_dtype(),
            planes: rows.stored_parameters(),
        }
    }

    #[inline(always)]
    fn read(
        self,
        row: usize,
        length: usize,
        chunk: usize,
        middle: f32,
        f16x8: impl Fn(F16Bytes) -> F32x8,
    ) -> Parameters {
        let [scales, biases] = self.planes;
        let scales = [self.floats(scales, row, length, chunk, &f16x8), F32x8::ZERO];
        match self.format.code {
            Code::Bias => Parameters {
                scales,
                biases: [self.floats(biases, row, length, chunk, &f16x8), F32x8::ZERO],
            },
            _ => Parameters::centred(middle, scales),
        }
    }
}

impl AnyFloats<'_> {
    #[inline(always)]
    fn floats(
        &self,
        plane: &[u8],
        row: usize,
        length: usize,
        chunk: usize,
        f16x8: impl Fn(F16Bytes) -> F32x8,
    ) -> F32x8 {
        let blocks = self.format.group as usize / BLOCK;
        let size = length / blocks * self.dtype.size();
        let row = &plane[row * size..][..size];
        match self.dtype {
            DType::F32 => F32x8(by_block(row, blocks, chunk).map(f32::from_le_bytes)),
            DType::F16 => f16x8(bytemuck::cast(by_block::<2>(row, blocks, chunk))),
            _ => F32x8(
                by_block(row, blocks, chunk).map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)),
            ),
        }
    }
}

/// Expands elements that are shared by `blocks` blocks each to one per block.
#[inline(always)]
fn by_block<const SIZE: usize>(row: &[u8], blocks: usize, chunk: usize) -> [[u8; SIZE]; CHUNK] {
    let (elements, _) = row.as_chunks::<SIZE>();
    match blocks {
        1 => padded::<SIZE, CHUNK>(elements, chunk),
        2 => {
            let [a, b, c, d] = padded::<SIZE, { CHUNK / 2 }>(elements, chunk);
            [a, a, b, b, c, c, d, d]
        }
        _ => {
            let [a, b] = padded::<SIZE, { CHUNK / 4 }>(elements, chunk);
            [a, a, a, a, b, b, b, b]
        }
    }
}

/// The `COUNT` elements of a chunk, with zeros beyond the end.
#[inline(always)]
fn padded<const SIZE: usize, const COUNT: usize>(elements: &[[u8; SIZE]], chunk: usize) -> [[u8; SIZE]; COUNT] {
    let left = &elements[chunk * COUNT..];
    if let Some(whole) = left.first_chunk() {
        return *whole;
    }
    let mut padded = [[0; SIZE]; COUNT];
    padded[..left.len()].copy_from_slice(left);
    padded
}
