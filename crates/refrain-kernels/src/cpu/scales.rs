use multiversion::multiversion;

use super::octet::{BLOCK, Octet, half_to_f32};
use crate::DType;
use crate::quantised::{QuantRows, RECORD_WORDS, Zero};

/// Writes the scales and the biases (what a stored 0 stands for) of the blocks of row `number`, or of the
/// halves of its blocks where two groups make one.
#[multiversion(targets("x86_64+avx2+fma"))]
pub(super) fn read(rows: &QuantRows<'_>, number: usize, scales: &mut [f32], biases: &mut [f32]) {
    let [stored, stored_biases] = rows.stored_parameters(number);
    let (format, dtype) = (rows.format(), rows.parameter_dtype());
    match (format.nested, format.zero, format.group) {
        (false, zero, group) => {
            floats(dtype, stored, scales);
            spread(scales, group as usize / BLOCK);
            if zero == Zero::Bias {
                floats(dtype, stored_biases, biases);
                spread(biases, group as usize / BLOCK);
            }
        }
        (_, Zero::Bias, 32) => {
            let groups = scales.chunks_exact_mut(8).zip(biases.chunks_exact_mut(8));
            for ((d, m, bytes), (scales, biases)) in records(stored).zip(groups) {
                scales.copy_from_slice(&Octet::new(|g| d * f32::from(bytes[g])).0);
                biases.copy_from_slice(&Octet::new(|g| -(m * f32::from(bytes[8 + g]))).0);
            }
        }
        (_, Zero::Bias, _) => {
            let groups = scales.chunks_exact_mut(16).zip(biases.chunks_exact_mut(16));
            for ((d, m, bytes), (scales, biases)) in records(stored).zip(groups) {
                scales
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(scale, byte)| *scale = d * f32::from(byte & 15));
                biases
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(bias, byte)| *bias = -(m * f32::from(byte >> 4)));
            }
        }
        _ => {
            for ((d, _, bytes), scales) in records(stored).zip(scales.chunks_exact_mut(16)) {
                scales
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(scale, &byte)| *scale = d * f32::from(byte as i8));
            }
        }
    }
    if format.zero != Zero::Bias {
        let middle = (1 << (format.bits - 1)) as f32;
        biases
            .iter_mut()
            .zip(scales)
            .for_each(|(bias, scale)| *bias = -middle * *scale);
    }
}

/// The two factors and the integers of each record.
#[inline(always)]
fn records(stored: &[u8]) -> impl Iterator<Item = (f32, f32, &[u8; 16])> {
    let half = |low: &u8, high: &u8| half_to_f32(u16::from_le_bytes([*low, *high]));
    let (records, _) = stored.as_chunks::<{ 4 * RECORD_WORDS }>();
    records
        .iter()
        .map(move |[a, b, c, d, bytes @ ..]| (half(a, b), half(c, d), bytes))
}

/// Repeats each of the first parameters for so many blocks.
fn spread(parameters: &mut [f32], blocks: usize) {
    if blocks > 1 {
        for block in (0..parameters.len()).rev() {
            parameters[block] = parameters[block / blocks];
        }
    }
}

/// Decodes floats of `dtype` into as many of the first parameters.
#[inline(always)]
fn floats(dtype: DType, bytes: &[u8], parameters: &mut [f32]) {
    match dtype {
        DType::F32 => each(bytes, parameters, f32::from_le_bytes),
        DType::F16 => each(bytes, parameters, |bytes| half_to_f32(u16::from_le_bytes(bytes))),
        _ => each(bytes, parameters, |bytes| {
            f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
        }),
    }
}

#[inline(always)]
fn each<const SIZE: usize>(bytes: &[u8], parameters: &mut [f32], float: impl Fn([u8; SIZE]) -> f32) {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    let (whole, rest) = elements.as_chunks::<{ Octet::COUNT }>();
    let (first, last) = parameters.split_at_mut(elements.len() - rest.len());
    for (elements, parameters) in whole.iter().zip(first.as_chunks_mut().0) {
        *parameters = Octet::new(|l| float(elements[l])).0;
    }
    for (&element, parameter) in rest.iter().zip(last) {
        *parameter = float(element);
    }
}
