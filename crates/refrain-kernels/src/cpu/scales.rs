use super::octet::{BLOCK, Octet};
use crate::DType;
use crate::quantised::{Code, QuantFormat, QuantRows, RECORD_VALUES, ScaleType};

/// Blocks whose parameters are read together: those of a record.
pub(super) const CHUNK: usize = RECORD_VALUES / BLOCK;

/// The scales of a chunk's blocks and their biases (what a stored 0 stands for); where two groups make a block,
/// those of the halves of its blocks, in two octets.
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    pub scales: [Octet; 2],
    pub biases: [Octet; 2],
}

impl Parameters {
    /// Those of values around `middle`.
    #[inline(always)]
    fn around(middle: f32, scales: [Octet; 2]) -> Parameters {
        let bias = |scales: Octet| Octet::new(|l| -middle * scales.0[l]);
        let biases = [bias(scales[0]), bias(scales[1])];
        Parameters { scales, biases }
    }
}

/// The parameters of a matrix, as one way of storing them has them. A way is a type, so that none is asked for
/// where they are read.
pub(super) trait StoredParameters<'a>: Copy + Sync {
    /// Whether two groups make a block.
    const HALVES: bool;

    fn new(rows: &QuantRows<'a>) -> Self;

    /// Those of chunk `chunk` of row `row`, which has `length` blocks; zeros beyond its end. `middle` is that of
    /// values around one.
    fn read(self, row: usize, length: usize, chunk: usize, middle: f32, halves: impl Fn(Halves) -> Octet)
    -> Parameters;
}

/// The bytes of eight f16, which processors read in different ways.
pub(super) type Halves = [u8; 2 * Octet::COUNT];

/// A record: two factors, and integers for the groups of a chunk.
type Record = [u8; 20];

/// The factors and the integers of a record.
#[inline(always)]
fn parts(record: &Record, halves: impl Fn(Halves) -> Octet) -> (f32, f32, &[u8; 16]) {
    let [a, b, c, d, bytes @ ..] = record;
    let [first, second, ..] = halves([*a, *b, *c, *d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).0;
    (first, second, bytes)
}

/// The record of a chunk.
#[inline(always)]
fn record(records: &[Record], row: usize, length: usize, chunk: usize) -> &Record {
    &records[row * (length / CHUNK) + chunk]
}

/// Records with a byte for the scale and one for the bias of each block: Q4_K, Q5_K.
#[derive(Clone, Copy)]
pub(super) struct BlockRecords<'a>(&'a [Record]);

impl<'a> StoredParameters<'a> for BlockRecords<'a> {
    const HALVES: bool = false;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(self, row: usize, length: usize, chunk: usize, _: f32, halves: impl Fn(Halves) -> Octet) -> Parameters {
        let (d, m, bytes) = parts(record(self.0, row, length, chunk), halves);
        Parameters {
            scales: [Octet::new(|g| d * f32::from(bytes[g])), Octet::ZERO],
            biases: [Octet::new(|g| -m * f32::from(bytes[8 + g])), Octet::ZERO],
        }
    }
}

/// Records with four bits for the scale and four for the bias of each half of a block: Q2_K.
#[derive(Clone, Copy)]
pub(super) struct NibbleRecords<'a>(&'a [Record]);

impl<'a> StoredParameters<'a> for NibbleRecords<'a> {
    const HALVES: bool = true;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(self, row: usize, length: usize, chunk: usize, _: f32, halves: impl Fn(Halves) -> Octet) -> Parameters {
        let (d, m, bytes) = parts(record(self.0, row, length, chunk), halves);
        let scales = |first: usize| Octet::new(|g| d * f32::from(bytes[first + g] & 15));
        let biases = |first: usize| Octet::new(|g| -m * f32::from(bytes[first + g] >> 4));
        Parameters {
            scales: [scales(0), scales(8)],
            biases: [biases(0), biases(8)],
        }
    }
}

/// Records with a signed byte for the scale of each half of a block: Q3_K, Q6_K.
#[derive(Clone, Copy)]
pub(super) struct SignedRecords<'a>(&'a [Record]);

impl<'a> StoredParameters<'a> for SignedRecords<'a> {
    const HALVES: bool = true;

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
        halves: impl Fn(Halves) -> Octet,
    ) -> Parameters {
        let (d, _, bytes) = parts(record(self.0, row, length, chunk), halves);
        let scales = |first: usize| Octet::new(|g| d * f32::from(bytes[first + g] as i8));
        Parameters::around(middle, [scales(0), scales(8)])
    }
}

/// Records of any size with a signed byte for the scale of each block: IQ4_XS.
#[derive(Clone, Copy)]
pub(super) struct SignedBlocks<'a> {
    records: &'a [u8],
    size: usize,
}

impl<'a> StoredParameters<'a> for SignedBlocks<'a> {
    const HALVES: bool = false;

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
        halves: impl Fn(Halves) -> Octet,
    ) -> Parameters {
        let record = &self.records[(row * (length / CHUNK) + chunk) * self.size..][..4 + CHUNK];
        let [d, ..] = halves([record[0], record[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).0;
        let scales = Octet::new(|g| d * f32::from(record[4 + g] as i8));
        Parameters::around(middle, [scales, Octet::ZERO])
    }
}

/// A byte for each block, an exponent of two: MXFP4.
#[derive(Clone, Copy)]
pub(super) struct Exponents<'a>(&'a [[u8; 1]]);

impl<'a> StoredParameters<'a> for Exponents<'a> {
    const HALVES: bool = false;

    fn new(rows: &QuantRows<'a>) -> Self {
        Self(rows.stored_parameters()[0].as_chunks().0)
    }

    #[inline(always)]
    fn read(self, row: usize, length: usize, chunk: usize, middle: f32, _: impl Fn(Halves) -> Octet) -> Parameters {
        let stored = padded::<1, CHUNK>(&self.0[row * length..][..length], chunk);
        let scales = Octet::new(|l| ScaleType::U8.read(&stored[l]));
        Parameters::around(middle, [scales, Octet::ZERO])
    }
}

/// An f16 for each block of values around a middle: Q4_0, Q5_0, Q8_0.
#[derive(Clone, Copy)]
pub(super) struct BlockHalves<'a>(&'a [[u8; 2]]);

impl<'a> StoredParameters<'a> for BlockHalves<'a> {
    const HALVES: bool = false;

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
        halves: impl Fn(Halves) -> Octet,
    ) -> Parameters {
        let stored = padded::<2, CHUNK>(&self.0[row * length..][..length], chunk);
        let scales = halves(bytemuck::cast(stored));
        Parameters::around(middle, [scales, Octet::ZERO])
    }
}

/// Floats of any type for one or several blocks.
#[derive(Clone, Copy)]
pub(super) struct AnyFloats<'a> {
    format: QuantFormat,
    dtype: DType,
    planes: [&'a [u8]; 2],
}

impl<'a> StoredParameters<'a> for AnyFloats<'a> {
    const HALVES: bool = false;

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
        halves: impl Fn(Halves) -> Octet,
    ) -> Parameters {
        let [scales, biases] = self.planes;
        let scales = [self.floats(scales, row, length, chunk, &halves), Octet::ZERO];
        match self.format.code {
            Code::Bias => Parameters {
                scales,
                biases: [self.floats(biases, row, length, chunk, &halves), Octet::ZERO],
            },
            _ => Parameters::around(middle, scales),
        }
    }
}

impl AnyFloats<'_> {
    #[inline(always)]
    fn floats(&self, plane: &[u8], row: usize, length: usize, chunk: usize, halves: impl Fn(Halves) -> Octet) -> Octet {
        let blocks = self.format.group as usize / BLOCK;
        let size = length / blocks * self.dtype.size();
        let row = &plane[row * size..][..size];
        match self.dtype {
            DType::F32 => Octet(by_block(row, blocks, chunk).map(f32::from_le_bytes)),
            DType::F16 => halves(bytemuck::cast(by_block::<2>(row, blocks, chunk))),
            _ => Octet(
                by_block(row, blocks, chunk).map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)),
            ),
        }
    }
}

/// The elements of a chunk's blocks, so many of which share one.
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

/// The elements of a chunk that has so many, zeros beyond the end.
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
