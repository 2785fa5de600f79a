//! Quantised matrices as MLX stores them: values in u32 words, scales and biases per group of a row.

mod products;

use refrain::{Array, QuantFormat};

use super::low_precision::{MAX_FP4, MAX_FP8, fp8_codes, fp8_values, from_e8m0, from_fp4, to_e8m0, to_fp4};
use crate::lowering::as_rounded;
use crate::shape::{signed, tuple};
use crate::{DType, Error, Result, Value};

pub use products::{gather_qmm, quantized_matmul};

/// How values are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Unsigned integers with a float scale and bias per group.
    Affine,
    /// FP4 with a power of two per group.
    Mxfp4,
    /// FP8 with a power of two per group.
    Mxfp8,
    /// FP4 with an FP8 scale per group.
    Nvfp4,
}

/// The settings of a mode.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    kind: Kind,
    /// Values that share a scale.
    group: usize,
    bits: usize,
}

impl Mode {
    /// Checks the settings; `None` takes the mode's default.
    pub(super) fn of(op: &str, group: Option<i64>, bits: Option<i64>, mode: &str) -> Result<Mode> {
        let (kind, default) = match mode {
            "affine" => (Kind::Affine, [64, 4]),
            "mxfp4" => (Kind::Mxfp4, [32, 4]),
            "mxfp8" => (Kind::Mxfp8, [32, 8]),
            "nvfp4" => (Kind::Nvfp4, [16, 4]),
            _ => return Err(Error::value(format!("[{op}] Invalid quantization mode '{mode}'."))),
        };
        let (group, bits) = (group.unwrap_or(default[0]), bits.unwrap_or(default[1]));
        let fits = match kind {
            Kind::Affine => [32, 64, 128].contains(&group) && [2, 3, 4, 5, 6, 8].contains(&bits),
            _ => [group, bits] == default,
        };
        if !fits {
            let message = format!("[{op}] Mode {mode} does not support group size {group} with {bits} bits.");
            return Err(Error::value(message));
        }
        Ok(Mode {
            kind,
            group: group as usize,
            bits: bits as usize,
        })
    }

    pub(super) fn check(&self, op: &str, w: &Value, scales: &Value, biases: Option<&Value>) -> Result<()> {
        if w.dtype() != DType::U32 || w.ndim() < 2 {
            let message = format!("[{op}] The weight matrix should be uint32 with at least two dimensions.");
            return Err(Error::value(message));
        }
        if (self.kind == Kind::Affine) != biases.is_some() {
            let what = if self.kind == Kind::Affine {
                "needs biases"
            } else {
                "has no biases"
            };
            return Err(Error::value(format!("[{op}] This quantization mode {what}.")));
        }
        // Scales of the other modes are stored as uint8.
        let mut planes = [scales].into_iter().chain(biases);
        if self.kind == Kind::Affine && !planes.all(|plane| plane.dtype().is_floating()) {
            let message = format!("[{op}] Scales and biases must be floating-point numbers in affine mode.");
            return Err(Error::value(message));
        }
        let groups = self.columns(w) / self.group;
        let words = w.shape()[w.ndim() - 1];
        let is_whole = (words * 32).is_multiple_of(self.bits) && self.columns(w).is_multiple_of(self.group);
        let fits = |plane: &Value| {
            plane.ndim() == w.ndim()
                && plane.shape()[..w.ndim() - 1] == w.shape()[..w.ndim() - 1]
                && plane.shape()[w.ndim() - 1] == groups
        };
        if is_whole && fits(scales) && biases.is_none_or(fits) {
            return Ok(());
        }
        let message = format!(
            "[{op}] The shapes of the quantized matrix {} and its scales {} do not match for group size {} and {} bits.",
            tuple(w.shape()),
            tuple(scales.shape()),
            self.group,
            self.bits
        );
        Err(Error::value(message))
    }

    /// Values of a row.
    pub(super) fn columns(&self, w: &Value) -> usize {
        w.shape().last().copied().unwrap_or(0) * 32 / self.bits
    }

    /// The dtype of dequantised values.
    pub(super) fn dtype(&self, scales: &Value) -> DType {
        if self.kind == Kind::Affine {
            scales.dtype()
        } else {
            DType::BF16
        }
    }

    /// The format of the kernels that multiply with such matrices as they are stored, if there are any.
    pub(super) fn format(&self, scales: &Value, biases: Option<&Value>) -> Option<QuantFormat> {
        let format = match self.kind {
            Kind::Affine => QuantFormat::mlx(self.bits as u32, self.group as u32),
            Kind::Mxfp4 => QuantFormat::MXFP4,
            Kind::Mxfp8 | Kind::Nvfp4 => return None,
        };
        let takes = (scales.stored().to_scale_type()).is_some_and(|scale_type| format.takes_scales(scale_type));
        let same_plane = biases.is_none_or(|biases| biases.dtype() == scales.dtype());
        (takes && same_plane).then_some(format)
    }
}

/// The stored integers: `[.., words]` u32 → `[.., columns]` u32. Value k of a row is at bit k · bits, low bits first.
fn unpacked(w: &Array, bits: usize) -> Array {
    let device = w.device();
    let mut shape: Vec<isize> = w.shape().iter().map(|&n| n as isize).collect();
    let words = shape.pop().unwrap_or(0);
    let index = |n: usize| Array::arange(device, refrain::DType::U32, n);
    let mask = (1i64 << bits) - 1;
    if 32 % bits == 0 {
        let shifts = index(32 / bits) * bits as i64;
        let values = w.expand_dims(-1).shift_right(&shifts).bit_and(mask);
        shape.push(words * 32 / bits as isize);
        return values.reshape(&shape);
    }
    // `bits` words hold 32 values, some of which are in two words.
    shape.extend([words / bits as isize, bits as isize]);
    let groups = w.reshape(&shape);
    let start = index(32) * bits as i64;
    let (first, shift) = (start.shift_right(5), start.bit_and(31));
    let next = (&first + 1).minimum(bits as i64 - 1);
    let low = groups.take(&first, -1).shift_right(&shift);
    // A shift by 32 is one by 0 on the device; two shifts give 0.
    let high = groups
        .take(&next, -1)
        .shift_left((31 - shift.astype(refrain::DType::I32)).astype(refrain::DType::U32))
        .shift_left(1);
    let values = low.bit_or(&high).bit_and(mask);
    shape.pop();
    shape.pop();
    shape.push(words * 32 / bits as isize);
    values.reshape(&shape)
}

/// Packs integers `[.., columns]` u32 into words: the inverse of [`unpacked`].
fn packed(q: &Array, bits: usize) -> Array {
    let device = q.device();
    let mut shape: Vec<isize> = q.shape().iter().map(|&n| n as isize).collect();
    let columns = shape.pop().unwrap_or(0);
    let index = |n: usize| Array::arange(device, refrain::DType::U32, n);
    // Single bits, low ones first, joined to words.
    let stream = q.expand_dims(-1).shift_right(index(bits)).bit_and(1);
    shape.extend([columns * bits as isize / 32, 32]);
    stream.reshape(&shape).shift_left(index(32)).sum(&[-1])
}

/// The dequantised values of a matrix, in the dtype of the scales, or in bf16 if these are exponents. Rounded after the
/// product and after the sum, as on MLX's CPU.
fn dequantised(mode: Mode, w: &Array, scales: &Array, biases: Option<&Array>) -> Array {
    let q = unpacked(w, mode.bits);
    let shape = signed(q.shape());
    let mut grouped = shape.clone();
    let columns = grouped.pop().unwrap_or(0);
    grouped.extend([columns / mode.group as isize, mode.group as isize]);
    let q = q.reshape(&grouped);
    let values = match biases {
        Some(biases) => q.astype(scales.dtype()) * scales.expand_dims(-1) + biases.expand_dims(-1),
        None => {
            let q = if mode.kind == Kind::Mxfp8 {
                fp8_values(&q)
            } else {
                from_fp4(&q)
            };
            let scales = if mode.kind == Kind::Nvfp4 {
                fp8_values(scales)
            } else {
                from_e8m0(scales)
            };
            (q * scales.expand_dims(-1)).astype(refrain::DType::BF16)
        }
    };
    values.reshape(&shape)
}

/// Values of a quantised matrix, in `dtype` or that of the scales.
///
/// # Errors
/// Fails if settings or shapes do not fit.
pub fn dequantize(
    w: &Value,
    scales: &Value,
    biases: Option<&Value>,
    group: Option<i64>,
    bits: Option<i64>,
    mode: &str,
    dtype: Option<DType>,
) -> Result<Value> {
    let mode = Mode::of("dequantize", group, bits, mode)?;
    mode.check("dequantize", w, scales, biases)?;
    let dtype = dtype.unwrap_or_else(|| mode.dtype(scales));
    if !dtype.is_floating() {
        let message = format!("[dequantize] The result must have a real floating type, not {dtype}.");
        return Err(Error::value(message));
    }
    let values = dequantised(mode, w.array(), scales.array(), biases.map(Value::array));
    Value::of(values)?.cast(dtype)
}

/// A matrix quantised along its rows: the words, the scales and, in affine mode, the biases.
///
/// # Errors
/// Fails if settings do not fit, or if the last extent is not divisible by the group size.
pub fn quantize(w: &Value, group: Option<i64>, bits: Option<i64>, mode: &str) -> Result<Vec<Value>> {
    let settings = Mode::of("quantize", group, bits, mode)?;
    let columns = w.shape().last().copied().unwrap_or(0);
    if w.ndim() < 2 || !columns.is_multiple_of(settings.group) || columns == 0 {
        let message = format!(
            "[quantize] The last dimension of the matrix needs to be divisible by the quantization group size {}. \
             However the provided matrix has shape {}",
            settings.group,
            tuple(w.shape())
        );
        return Err(Error::value(message));
    }
    if !w.dtype().is_floating() {
        let message = format!(
            "[quantize] Only real floating types can be quantized but w has type {}.",
            w.dtype()
        );
        return Err(Error::value(message));
    }
    let mut grouped: Vec<isize> = signed(&w.shape()[..w.ndim() - 1]);
    grouped.extend([(columns / settings.group) as isize, settings.group as isize]);
    // Levels of quantisation depend on the last bits.
    let x = as_rounded(w.array()).reshape(&grouped);
    let whole = signed(w.shape());
    if settings.kind != Kind::Affine {
        let (codes, scales) = float_codes(settings.kind, &x);
        let words = packed(&codes.reshape(&whole), settings.bits);
        return Ok(vec![Value::of(words)?, Value::of(scales)?]);
    }
    let largest = x.max(&[-1]);
    let smallest = x.min(&[-1]);
    let bins = ((1u32 << settings.bits) - 1) as f32;
    let is_low = smallest.abs().gt(largest.abs());
    let scale = ((&largest - &smallest) / bins).maximum(1e-7f32);
    let scale = is_low.select(&scale, &-&scale);
    let edge = is_low.select(&smallest, &largest);
    let first = (&edge / &scale).round();
    let is_zero = first.eq(0.0);
    let scale = is_zero.select(&scale, &(&edge / &first));
    let bias = is_zero.select(0.0, &edge);
    let q = ((x - bias.expand_dims(-1)) / scale.expand_dims(-1))
        .round()
        .maximum(0.0)
        .minimum(bins);
    let words = packed(&q.astype(refrain::DType::U32).reshape(&whole), settings.bits);
    let plane = |plane: Array| Value::of(plane)?.cast(w.dtype());
    Ok(vec![Value::of(words)?, plane(scale)?, plane(bias)?])
}

/// Codes (u32) of groups of f32, and the codes (u8) of the groups' scales.
fn float_codes(kind: Kind, x: &Array) -> (Array, Array) {
    let largest = x.abs().max(&[-1]);
    let (codes, scale) = match kind {
        Kind::Nvfp4 => {
            let codes = fp8_codes(&(largest / MAX_FP4));
            let scale = fp8_values(&codes);
            (codes, scale)
        }
        _ => {
            let codes = to_e8m0(&(largest / if kind == Kind::Mxfp8 { MAX_FP8 } else { MAX_FP4 }));
            let scale = from_e8m0(&codes);
            (codes, scale)
        }
    };
    let scale = scale.eq(0.0).select(1.0, &scale).expand_dims(-1);
    let scaled = x / scale;
    let q = if kind == Kind::Mxfp8 {
        fp8_codes(&scaled).astype(refrain::DType::U32)
    } else {
        to_fp4(&scaled)
    };
    (q, codes)
}
