use crate::{Code, QuantFormat, RECORD_VALUES, RecordIntegers, ScaleType, Scales};

/// The planes of a matrix, or of some of its whole groups (or records), as little-endian bytes.
#[derive(Clone, Copy)]
pub struct QuantPlanes<'a> {
    /// Format of the planes.
    pub format: QuantFormat,
    /// Element type of scales and biases.
    pub stored: ScaleType,
    /// Packed values.
    pub quants: &'a [u8],
    /// Scales, or scale records.
    pub scales: &'a [u8],
    /// Biases; empty if the format has none.
    pub biases: &'a [u8],
}

impl QuantPlanes<'_> {
    /// Dequantises the values from `first` on; `first` and the length of `out` are multiples of the group size.
    ///
    /// The results equal those of MLX and GGUF bit for bit: the product is rounded to f32, then the sum of
    /// [`Code::Bias`].
    pub fn read(&self, first: usize, out: &mut [f32]) {
        let (bits, group) = (self.format.bits, self.format.group as usize);
        let group_bytes = group * bits as usize / 8;
        for (g, out) in out.chunks_exact_mut(group).enumerate() {
            let g = first / group + g;
            let quants = &self.quants[g * group_bytes..][..group_bytes];
            let (scale, bias) = self.parameters(g);
            match self.format.code {
                Code::Centred => {
                    let middle = (1 << (bits - 1)) as f32;
                    unpack(bits, quants, out, |q| scale * (f32::from(q) - middle));
                }
                Code::Signed => unpack(bits, quants, out, |q| scale * f32::from(q as i8)),
                Code::Bias => unpack(bits, quants, out, |q| scale * f32::from(q) + bias),
                Code::Book(book) => unpack(bits, quants, out, |q| scale * f32::from(book[usize::from(q & 15)])),
            }
        }
    }

    /// Returns scale and bias of a group, which is numbered over the whole matrix.
    fn parameters(&self, group: usize) -> (f32, f32) {
        let Scales::Records(records) = self.format.scales else {
            let read = |plane: &[u8]| self.stored.read(&plane[group * self.stored.size()..]);
            let bias = if self.format.has_biases() {
                read(self.biases)
            } else {
                0.0
            };
            return (read(self.scales), bias);
        };
        let per_record = RECORD_VALUES / self.format.group as usize;
        let size = 4 * records.words as usize;
        let record = &self.scales[group / per_record * size..][..size];
        let (d, m) = (ScaleType::F16.read(record), ScaleType::F16.read(&record[2..]));
        let (bytes, g) = (&record[4..], group % per_record);
        match records.integers {
            RecordIntegers::Nibbles => (d * f32::from(bytes[g] & 15), -(m * f32::from(bytes[g] >> 4))),
            RecordIntegers::Bytes => (d * f32::from(bytes[g]), -(m * f32::from(bytes[8 + g]))),
            RecordIntegers::Signed => (d * f32::from(bytes[g] as i8), 0.0),
        }
    }
}

/// Unpacks values of `bits` bits. Words are little-endian, so `bits` bytes hold eight values, the first in the lowest
/// bits.
fn unpack(bits: u32, quants: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    match bits {
        4 => nibbles(quants, out, value),
        8 => bytes(quants, out, value),
        _ => {
            let mask = (1 << bits) - 1;
            for (out, quants) in out.chunks_exact_mut(8).zip(quants.chunks_exact(bits as usize)) {
                let eight = quants.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
                for (k, out) in out.iter_mut().enumerate() {
                    *out = value((eight >> (k as u32 * bits) & mask) as u8);
                }
            }
        }
    }
}

fn nibbles(quants: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    for (out, &byte) in out.chunks_exact_mut(2).zip(quants) {
        out[0] = value(byte & 15);
        out[1] = value(byte >> 4);
    }
}

fn bytes(quants: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    for (out, &byte) in out.iter_mut().zip(quants) {
        *out = value(byte);
    }
}
