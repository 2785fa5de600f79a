//! Norm and RoPE of heads in one dispatch: what [`super::prepare`] does for queries, without the others. The result may be
//! stored twice, as a cache and as attention read it.
//!
//! `x` `[T, H, D]`, floats whose heads may have gaps, and `positions` `[T]` i32 → one or two `out` `[T, H, D]`, floats whose
//! heads may have gaps. The result is that of [`crate::rms_norm`] over each head and then [`crate::rope`], either of which
//! may be missing. The first of two may have more tokens, which become zeros.
//!
//! Operands by number: x 0; then, where present, positions and RoPE's frequencies, and the norm's weight; then the results.

use super::HeadPreparation;
use super::OP;
use super::prepare::{PrepareSizes, PrepareVariant, check_head_dim, finished, source};
use crate::kit::arguments::PushArguments;
use crate::kit::text::{address, grid, is_wide, require_contiguous, require_dtype, require_float, require_shape};
use crate::rms_norm::Norm;
use crate::rope::RopeParams;
use crate::{Call, DType, OperandSpec, Traits, Unsupported};

/// What is done to each head, and how the result is stored.
#[derive(Clone, Copy, PartialEq, Hash, Debug)]
pub struct HeadParams {
    /// The norm of each head.
    pub norm: Option<Norm>,
    /// RoPE behind it.
    pub rope: Option<RopeParams>,
    /// Whether the result is stored a second time.
    pub twice: bool,
    /// Whether numbers too large for f16 become its largest ones where it is stored in f16, and not infinite.
    pub bounded: bool,
}

impl HeadParams {
    /// Norm and RoPE as those of queries.
    fn preparation(&self) -> HeadPreparation {
        HeadPreparation {
            rope: self.rope,
            q_norm: self.norm,
            k_norm: None,
        }
    }

    /// Returns the operand number of the positions, if there are any.
    pub fn positions(&self) -> Option<usize> {
        self.rope.map(|_| 1)
    }

    /// Number of the first optional operand of the preparation.
    fn first_optional(&self) -> usize {
        1 + usize::from(self.rope.is_some())
    }

    /// Returns the operand numbers of [`HeadPreparation::NAMES`].
    fn numbers(&self) -> [Option<usize>; 3] {
        self.preparation().numbers(self.first_optional())
    }

    /// Returns the operand numbers of the frequencies and of the norm's weight, where present.
    pub fn optional(&self) -> [Option<usize>; 2] {
        let [frequencies, weight, _] = self.numbers();
        [frequencies, weight]
    }

    /// Returns the operand number of the first result.
    pub fn output(&self) -> usize {
        self.first_optional() + self.preparation().operands()
    }

    /// Returns the names of the results in the shader, and their operand numbers.
    fn outputs(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let count = 1 + usize::from(self.twice);
        ["y", "z"].into_iter().zip(self.output()..).take(count)
    }
}

/// Checks the operands and returns their extents.
fn checked(operands: &[&OperandSpec], params: &HeadParams) -> Result<PrepareSizes, Unsupported> {
    let expected = params.output() + 1 + usize::from(params.twice);
    if operands.len() != expected {
        let what = format!("{} operands given, expected {expected}", operands.len());
        return Err(Unsupported::Size { op: OP, what });
    }
    let x = operands[0];
    let &[tokens, count, head_dim] = &x.layout.shape[..] else {
        let what = format!("heads have shape {:?}, expected 3 dimensions", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    };
    require_float(OP, x)?;
    if let Some(number) = params.positions() {
        require_dtype(OP, operands[number], DType::I32)?;
        require_shape(OP, "positions", operands[number], &[tokens])?;
        require_contiguous(OP, operands[number], number)?;
    }
    check_head_dim(head_dim)?;
    if [tokens, count].contains(&0) {
        let what = "tokens and heads must not be 0".to_string();
        return Err(Unsupported::Size { op: OP, what });
    }
    let stored = operands[params.output()].layout.shape[0];
    for (number, out) in operands[params.output()..].iter().enumerate() {
        require_float(OP, out)?;
        let is_padded = number == 0 && params.twice && stored > tokens;
        let tokens = if is_padded { stored } else { tokens };
        require_shape(OP, "the result", out, &[tokens, count, head_dim])?;
    }
    for number in (params.output()..operands.len()).chain([0]) {
        if operands[number].layout.strides[2] != 1 {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    let heads = params.preparation();
    heads.check(operands, params.first_optional(), head_dim)?;
    Ok(PrepareSizes {
        tokens: stored,
        heads: count,
        kv_heads: 0,
        head_dim,
        value_dim: head_dim,
        slots: 0,
    })
}

/// The push constants.
fn arguments(traits: &Traits, operands: &[&OperandSpec], params: &HeadParams) -> Result<PushArguments, Unsupported> {
    let x = operands[0];
    let optional = HeadPreparation::NAMES.into_iter().zip(params.numbers());
    let optional = optional.filter_map(|(name, number)| Some((name, number?)));
    let mut arguments = PushArguments::new(traits);
    arguments.address("x_ref q".to_string(), address(OP, 0, x)?);
    let positions = params.positions().map(|number| ("positions", number));
    for (name, number) in positions.into_iter().chain(optional).chain(params.outputs()) {
        arguments.address(format!("{name}_ref {name}"), address(OP, number, operands[number])?);
    }
    let [tokens, stored] = [0, params.output()].map(|number| operands[number].layout.shape[0]);
    arguments.number("TOKENS", stored);
    if stored > tokens {
        arguments.number("X_TOKENS", tokens);
    }
    for (name, number) in [("q", 0)].into_iter().chain(params.outputs()) {
        let [token, head, _] = operands[number].layout.strides[..] else {
            unreachable!("checked")
        };
        arguments.number(&format!("{}_TOKEN", name.to_uppercase()), token);
        arguments.number(&format!("{}_HEAD", name.to_uppercase()), head);
    }
    arguments.check(OP)?;
    Ok(arguments)
}

/// Returns the error of [`call`], without building the call.
///
/// # Errors
/// Those of [`call`].
pub fn check(traits: &Traits, operands: &[&OperandSpec], params: &HeadParams) -> Result<(), Unsupported> {
    let sizes = checked(operands, params)?;
    arguments(traits, operands, params)?;
    grid(
        OP,
        PrepareVariant::of(traits, &sizes, &params.preparation()).groups(&sizes),
    )
    .map(drop)
}

/// Returns the call.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] when a head's values or positions are not contiguous; [`Unsupported::Size`] when shapes
/// contradict each other; [`Unsupported::DType`] for operands of other types.
pub fn call(traits: &Traits, operands: &[&OperandSpec], params: &HeadParams) -> Result<Call, Unsupported> {
    let sizes = checked(operands, params)?;
    let heads = params.preparation();
    let variant = PrepareVariant::of(traits, &sizes, &heads);
    let arguments = arguments(traits, operands, params)?;
    let x = operands[0];
    let fours = |operand: &OperandSpec| is_wide(operand, &operand.layout.strides[..2]);
    let mut text = source(traits, &variant, "attention.heads").input("x", x.dtype);
    if variant.unit == 4 {
        text = text.runs("x", x.dtype, 4, fours(x));
    }
    for (name, number) in params.outputs() {
        let out = operands[number];
        text = text.output(name, out.dtype);
        if variant.unit == 4 {
            text = text.store_vec4(name, out.dtype, fours(out));
        }
        let is_bounded = params.bounded && out.dtype == DType::F16;
        text = text.flag(&format!("{}_BOUNDED", name.to_uppercase()), is_bounded);
    }
    if params.positions().is_some() {
        text = text.input("positions", DType::I32);
    }
    let is_padded = sizes.tokens > x.layout.shape[0];
    text = text.flag("TWICE", params.twice).flag("PADDED", is_padded);
    finished(
        text,
        (&variant, &sizes),
        operands,
        (&heads, params.numbers()),
        &arguments,
    )
}
