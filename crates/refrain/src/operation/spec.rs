//! Descriptions of operands and results, and helpers for lists of them.

use std::fmt;

use refrain_kernels::Values;

use crate::{DType, Dimensions};

/// Shape and dtype of an operand or a result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArraySpec {
    /// Extents.
    pub shape: Dimensions,
    /// Storage type of the elements.
    pub dtype: DType,
}

/// An operand's elements on the CPU executor.
#[derive(Clone, PartialEq, Debug)]
pub struct HostArray {
    /// The elements, row-major.
    pub values: Values,
    /// Extents.
    pub shape: Vec<usize>,
}

impl ArraySpec {
    /// An array of this shape and dtype.
    pub fn new(shape: &[usize], dtype: DType) -> ArraySpec {
        let shape = shape.into();
        ArraySpec { shape, dtype }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Extent of dimension `axis`; 0 if there is no such dimension.
    pub fn dim(&self, axis: usize) -> usize {
        self.shape.get(axis).copied().unwrap_or(0)
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// The inputs of an operation that takes exactly `N` inputs.
///
/// # Errors
/// Fails if there is another number of inputs. The message is for the user.
pub fn exact_inputs<'a, const N: usize>(inputs: &[&'a ArraySpec]) -> Result<[&'a ArraySpec; N], String> {
    <[&ArraySpec; N]>::try_from(inputs).map_err(|_| format!("it takes {N} inputs, not {}", inputs.len()))
}

/// The operands of an operation that has exactly `N` of them: its inputs, then its new results.
///
/// # Panics
/// Panics if there is another number. [`Operation::results`](super::Operation::results) rejects a wrong number of
/// inputs before anything is lowered.
#[track_caller]
pub fn operands<T, const N: usize>(operands: &[T]) -> [&T; N] {
    assert_eq!(
        operands.len(),
        N,
        "an operation has another number of operands than its kernel"
    );
    std::array::from_fn(|number| &operands[number])
}

/// The operands of an operation that has `FIRST` of them, then possibly one more, then `LAST`.
///
/// # Panics
/// As [`operands`].
#[track_caller]
pub fn operands_with_optional<T, const FIRST: usize, const LAST: usize>(
    operands: &[T],
) -> ([&T; FIRST], Option<&T>, [&T; LAST]) {
    let (count, required) = (operands.len(), FIRST + LAST);
    assert!(
        (required..=required + 1).contains(&count),
        "an operation has {count} operands; its kernel takes {required} or one more"
    );
    (
        std::array::from_fn(|number| &operands[number]),
        operands.get(FIRST).filter(|_| count > required),
        std::array::from_fn(|number| &operands[count - LAST + number]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_operand_is_between_the_required_ones() {
        assert_eq!(operands(&[1, 2]), [&1, &2]);
        assert_eq!(operands_with_optional(&[1, 2, 3]), ([&1, &2], None, [&3]));
        assert_eq!(operands_with_optional(&[1, 2, 3, 4]), ([&1, &2], Some(&3), [&4]));
        assert_eq!(operands_with_optional(&[1, 2, 3]), ([&1, &2], Some(&3), []));
    }

    #[test]
    #[should_panic(expected = "an operation has 1 operands; its kernel takes 2 or one more")]
    fn missing_operands_panic() {
        let ([_], _, [_]) = operands_with_optional(&[1]);
    }
}
