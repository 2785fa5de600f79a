//! Random numbers: Threefry with keys that are split, counted as MLX counts.
//!
//! A key is uint32 `[2]`. Without a key, functions split the thread's key ([`seed`]) and use the second half.

use std::cell::RefCell;
use std::f32::consts::SQRT_2;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::shape::{self, extents, signed, tuple};
use crate::{DType, Error, Number, Operand, Result, Value, ops};

thread_local! {
    /// The thread's key. `None` until it is used or seeded.
    static STATE: RefCell<Option<Value>> = const { RefCell::new(None) };
}

/// The key of a seed.
///
/// # Errors
/// Fails if memory runs out.
pub fn key(seed: u64) -> Result<Value> {
    Value::from_slice(&[(seed >> 32) as u32, seed as u32], &[2])
}

/// Sets the thread's key to that of a seed.
///
/// # Errors
/// As [`key`].
pub fn seed(seed: u64) -> Result<()> {
    set_state(key(seed)?);
    Ok(())
}

/// The thread's key; of the time until [`seed`] is called.
///
/// # Errors
/// As [`key`].
pub fn state() -> Result<Value> {
    if let Some(state) = STATE.with_borrow(Clone::clone) {
        return Ok(state);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let made = key(now.as_nanos() as u64)?;
    set_state(made.clone());
    Ok(made)
}

/// Sets the thread's key.
pub fn set_state(key: Value) {
    STATE.set(Some(key));
}

/// The given key, or the next one of the thread.
fn next(given: Option<&Value>) -> Result<Value> {
    if let Some(key) = given {
        return Ok(key.clone());
    }
    let halves = split(&state()?, 2)?;
    let half = |n: usize| Value::of(halves.array().slice(0, n, n + 1).reshape(&[2]));
    set_state(half(0)?);
    half(1)
}

/// `count` new keys: uint32 `[count, 2]`.
///
/// # Errors
/// Fails if the key has another shape or dtype, or if the count is negative.
pub fn split(key: &Value, count: i64) -> Result<Value> {
    let count = extents("split", &[count])?[0];
    words(key, &[count, 2])
}

fn words(key: &Value, shape: &[usize]) -> Result<Value> {
    if key.dtype() != DType::U32 || key.shape() != [2] {
        let message = format!(
            "[bits] Expected a key of shape (2,) and dtype uint32, got {} of shape {}.",
            key.dtype(),
            tuple(key.shape())
        );
        return Err(Error::value(message));
    }
    let count = shape.iter().product();
    Value::of(refrain::random::keyed_bits(key.array(), count).reshape(&signed(shape)))
}

/// Random bits: uint32 of a shape.
///
/// # Errors
/// Fails if an extent is negative, or as [`split`].
pub fn bits(shape: &[i64], given: Option<&Value>) -> Result<Value> {
    words(&next(given)?, &extents("bits", shape)?)
}

/// Uniform in [`low`, `high`), which broadcast to the shape.
///
/// # Errors
/// Fails for dtypes that are not floating, if bounds do not broadcast, and as [`bits`].
pub fn uniform(low: &Operand, high: &Operand, shape: &[i64], dtype: DType, given: Option<&Value>) -> Result<Value> {
    if !dtype.is_floating() {
        let message = "[uniform] Can only generate uniform numbers with real floating point type.";
        return Err(Error::value(message));
    }
    let [low, high] = [low.value()?.cast(dtype)?, high.value()?.cast(dtype)?];
    let spread = extents("uniform", shape)?;
    if shape::broadcast("uniform", &[low.shape(), high.shape(), &spread])? != spread {
        let message = format!(
            "[uniform] Cannot generate random values of shape {} from the bounds.",
            tuple(&spread)
        );
        return Err(Error::value(message));
    }
    // The largest number below 1.
    let upper = match dtype {
        DType::F16 => 0.999_511_7f32,
        DType::BF16 => 0.996_093_75,
        _ => 1.0 - f32::EPSILON / 2.0,
    };
    let words = bits(shape, given)?;
    let fraction = (words.array().astype(refrain::DType::F32) / 4_294_967_296.0f32).minimum(upper);
    let fraction = Value::of(fraction)?.cast(dtype)?;
    let range = ops::subtract(&high.into(), &Operand::from(&low))?;
    ops::add(&ops::multiply(&range.into(), &fraction.into())?.into(), &low.into())
}

fn unit(shape: &[i64], dtype: DType, given: Option<&Value>) -> Result<Value> {
    uniform(&Operand::from(0.0), &Operand::from(1.0), shape, dtype, given)
}

/// Normal with mean `loc` and standard deviation `scale`, which broadcast.
///
/// # Errors
/// As [`uniform`].
pub fn normal(
    shape: &[i64],
    dtype: DType,
    loc: Option<&Operand>,
    scale: Option<&Operand>,
    given: Option<&Value>,
) -> Result<Value> {
    // The smallest number above −1, because the inverse error function of −1 is infinite.
    let low = match dtype {
        DType::F16 => -0.999_511_7f64,
        DType::BF16 => -0.996_093_75,
        _ => f64::from(-1.0 + f32::EPSILON / 2.0),
    };
    let samples = uniform(&Operand::from(low), &Operand::from(1.0), shape, dtype, given)?;
    let root = Value::scalar(Number::Float(f64::from(SQRT_2)), Some(dtype))?;
    let mut x = ops::multiply(&root.into(), &ops::erfinv(&samples.into())?.into())?;
    if let Some(scale) = scale {
        x = ops::multiply(&x.into(), &scale.value()?.cast(dtype)?.into())?;
    }
    if let Some(loc) = loc {
        x = ops::add(&loc.value()?.cast(dtype)?.into(), &x.into())?;
    }
    Ok(x)
}

/// Integers in [`low`, `high`), which broadcast to the shape.
///
/// # Errors
/// Fails for dtypes that are not integers, and as [`uniform`].
pub fn randint(low: &Operand, high: &Operand, shape: &[i64], dtype: DType, given: Option<&Value>) -> Result<Value> {
    if !dtype.is_integer() {
        return Err(Error::value("[randint] randint only accepts integer dtypes and bool."));
    }
    let wide = |bound: &Operand| -> Result<Operand> { Ok(bound.value()?.cast(DType::F32)?.into()) };
    let x = uniform(&wide(low)?, &wide(high)?, shape, DType::F32, given)?;
    let x = ops::floor(&x.into())?.cast(dtype)?;
    // The interval may not be representable in f32.
    let [low, high] = [low.value()?.cast(dtype)?, high.value()?.cast(dtype)?];
    let last = ops::subtract(&high.into(), &Operand::from(1i64))?;
    ops::maximum(&low.into(), &ops::minimum(&x.into(), &last.into())?.into())
}

/// Truth values that are true with probability `p`, which broadcasts to the shape (by default p's).
///
/// # Errors
/// Fails if `p` is no float or does not broadcast.
pub fn bernoulli(p: &Operand, shape: Option<&[i64]>, given: Option<&Value>) -> Result<Value> {
    let p = p.value()?;
    if !p.dtype().is_floating() {
        return Err(Error::value(
            "[bernoulli] bernoulli probability `p` must be a float type.",
        ));
    }
    let p = p.cast(DType::F32)?;
    let own: Vec<i64> = p.shape().iter().map(|&n| n as i64).collect();
    let shape = shape.unwrap_or(&own);
    let spread = ops::broadcast_to(&p, shape)?;
    ops::less(&unit(shape, DType::F32, given)?.into(), &spread.into())
}

/// Gumbel distributed: −ln(−ln u).
///
/// # Errors
/// As [`uniform`].
pub fn gumbel(shape: &[i64], dtype: DType, given: Option<&Value>) -> Result<Value> {
    let u = unit(shape, dtype, given)?;
    Value::of(-((-u.array().log()).log()))
}

/// Indices (uint32) of an axis of logits, drawn with the probabilities softmax(logits). `shape` is that of the samples,
/// whose last axes are those of the logits without the axis; `count` adds a last axis of that many samples instead.
///
/// As in MLX, samples of several distributions are drawn with Gumbel noise, those of a single one from its cumulated
/// probabilities, unless the result is a scalar.
///
/// # Errors
/// Fails if both are given, if the axis does not exist, or if shapes do not fit.
pub fn categorical(
    logits: &Value,
    axis: i64,
    shape: Option<&[i64]>,
    count: Option<i64>,
    given: Option<&Value>,
) -> Result<Value> {
    const OP: &str = "categorical";
    if shape.is_some() && count.is_some() {
        return Err(Error::value(
            "[categorical] At most one of shape or num_samples can be specified.",
        ));
    }
    let axis = shape::axis(OP, axis, logits.ndim())?;
    let logits = logits.cast(logits.dtype().at_least_float())?;
    let rank = logits.ndim();
    let extents_of = |value: &Value| value.shape().iter().map(|&n| n as i64).collect::<Vec<_>>();
    let mut rest = extents_of(&logits);
    let n = rest.remove(axis);
    let samples = match (shape, count) {
        (Some(shape), _) => shape.to_vec(),
        (None, Some(count)) => [&rest[..], &[count]].concat(),
        (None, None) => rest.clone(),
    };
    if logits.size() as i64 == n && !samples.is_empty() {
        return one_distribution(&logits, &samples, given);
    }
    // One noise for each sample and class, with the classes in the place of their axis, as MLX counts them.
    if let Some(count) = count {
        let noise = [&extents_of(&logits)[..], &[count]].concat();
        let scores = ops::expand_dims(&logits, &[-1])?;
        let scores = ops::add(&gumbel(&noise, DType::F32, given)?.into(), &scores.into())?;
        return ops::argmax(&scores, Some(axis as i64), false);
    }
    let spread = ops::broadcast_shapes(&[&extents(OP, &rest)?, &extents(OP, &samples)?])?;
    if spread != extents(OP, &samples)? {
        let message = format!(
            "[categorical] Requested shape {} is not broadcast compatible.",
            tuple(&samples)
        );
        return Err(Error::value(message));
    }
    let offset = samples.len() - rest.len();
    let mut noise = samples;
    noise.insert(axis + offset, n);
    let scores = ops::add(&gumbel(&noise, DType::F32, given)?.into(), &logits.into())?;
    ops::argmax(&scores, Some((axis as i64) - rank as i64), false)
}

/// Samples of a single distribution: the number of classes whose cumulated probability a uniform number reaches.
fn one_distribution(logits: &Value, samples: &[i64], given: Option<&Value>) -> Result<Value> {
    let probabilities = ops::softmax(&ops::reshape(&logits.cast(DType::F32)?, &[-1])?, None, true)?;
    let cumulated = ops::cumsum(&probabilities, Some(0), false, true)?;
    let reached = ops::expand_dims(&unit(samples, DType::F32, given)?, &[-1])?;
    let passed = ops::less_equal(&cumulated.into(), &reached.into())?;
    let index = ops::sum(&passed, Some(&[-1]), false)?;
    // The cumulated probabilities may end below 1.
    let last = Operand::from(logits.size() as i64 - 1);
    ops::minimum(&index.into(), &last)?.cast(DType::U32)
}

/// Laplace distributed with mean `loc` and scale `scale`.
///
/// # Errors
/// As [`uniform`].
pub fn laplace(shape: &[i64], dtype: DType, loc: f64, scale: f64, given: Option<&Value>) -> Result<Value> {
    let low = match dtype {
        DType::F16 => -0.999_511_7f64,
        DType::BF16 => -0.996_093_75,
        _ => f64::from(-1.0 + f32::EPSILON / 2.0),
    };
    let u = uniform(&Operand::from(low), &Operand::from(1.0), shape, dtype, given)?;
    let x = u.array();
    let one = Operand::from(Value::of(-x.abs())?);
    let logarithm = ops::log1p(&one)?;
    let mut x = Value::of(x.sign() * logarithm.array())?;
    if scale != 1.0 {
        x = ops::multiply(&x.into(), &scale.into())?;
    }
    if loc != 0.0 {
        x = ops::add(&x.into(), &loc.into())?;
    }
    Ok(x)
}

/// Normal, within bounds, which broadcast.
///
/// # Errors
/// As [`uniform`].
pub fn truncated_normal(
    lower: &Operand,
    upper: &Operand,
    shape: Option<&[i64]>,
    dtype: DType,
    given: Option<&Value>,
) -> Result<Value> {
    let [lower, upper] = [lower.value()?.cast(dtype)?, upper.value()?.cast(dtype)?];
    let own: Vec<i64> = ops::broadcast_shapes(&[lower.shape(), upper.shape()])?
        .iter()
        .map(|&n| n as i64)
        .collect();
    let shape = shape.unwrap_or(&own);
    let root = Operand::from(Value::scalar(Number::Float(f64::from(SQRT_2)), Some(dtype))?);
    let bound = |bound: &Value| ops::erf(&ops::divide(&bound.into(), &root)?.into());
    let u = uniform(&bound(&lower)?.into(), &bound(&upper)?.into(), shape, dtype, given)?;
    let x = ops::multiply(&root, &ops::erfinv(&u.into())?.into())?;
    ops::maximum(&ops::minimum(&x.into(), &upper.into())?.into(), &lower.into())
}

/// A random order of the numbers below `n` (uint32).
///
/// # Errors
/// Fails if `n` is negative.
pub fn permutation_of(n: i64, given: Option<&Value>) -> Result<Value> {
    ops::argsort(&bits(&[n], given)?, Some(0))
}

/// The slices of an axis in a random order.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn permutation(a: &Value, axis: i64, given: Option<&Value>) -> Result<Value> {
    let resolved = shape::axis("permutation", axis, a.ndim())?;
    let order = permutation_of(a.shape()[resolved] as i64, given)?;
    ops::take(a, &order, Some(axis))
}
