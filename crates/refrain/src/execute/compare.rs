//! Finds the first step at which two executions of one plan differ.

use super::executable::Executable;
use crate::plan::Operand;
use crate::{DType, Error};

/// The first difference between two executions.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// Number of the step in the plan.
    pub step: usize,
    /// The step's primitive, as text.
    pub primitive: String,
    /// Row-major index of the first element of its result that differs.
    pub element: usize,
    /// That element in the first and the second execution.
    pub values: [f64; 2],
    /// Number of elements of the result that differ.
    pub differing: usize,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [first, second] = self.values;
        write!(
            f,
            "step {} ({}): element {} is {first} and {second}; {} elements differ",
            self.step, self.primitive, self.element, self.differing
        )
    }
}

/// The first step whose result differs in any bit, after both programs have run. Both must have been lowered from one
/// program with all results kept.
///
/// # Errors
/// Fails if the plans differ, or if the device fails.
pub(crate) fn first_difference(first: &Executable, second: &Executable) -> Result<Option<Difference>, Error> {
    let (plan, twin) = (first.plan(), second.plan());
    let same_plan = plan.steps.len() == twin.steps.len()
        && plan.steps.iter().zip(&twin.steps).all(|(a, b)| {
            let pairs = a.outputs.iter().zip(&b.outputs);
            a.outputs.len() == b.outputs.len()
                && pairs
                    .into_iter()
                    .all(|(a, b)| a.layout == b.layout && a.dtype == b.dtype)
                && a.primitive.name() == b.primitive.name()
        });
    if !same_plan {
        return Err(Error::Call(
            "only programs with the same plan can be compared".to_string(),
        ));
    }
    let steps = plan.steps.iter().zip(&twin.steps).enumerate();
    // Updated states are no outputs: later steps change their memory again.
    let results = steps.flat_map(|(number, (step, twin))| {
        let pairs = step.outputs.iter().zip(&twin.outputs);
        pairs.map(move |(a, b)| (number, step, a, b))
    });
    for (number, step, a, b) in results {
        let results = [bytes(first, a)?, bytes(second, b)?];
        if results[0] == results[1] {
            continue;
        }
        let size = a.dtype.size();
        let start = a.range().start;
        let mut differing = (0..).zip(element_offsets(a)).filter_map(|(element, offset)| {
            let at = (offset - start) as usize;
            let pair = results.each_ref().map(|bytes| &bytes[at..at + size]);
            (pair[0] != pair[1]).then(|| (element, pair.map(|bytes| value(a.dtype, bytes))))
        });
        if let Some((element, values)) = differing.next() {
            return Ok(Some(Difference {
                step: number,
                primitive: step.primitive.to_string(),
                element,
                values,
                differing: 1 + differing.count(),
            }));
        }
    }
    Ok(None)
}

/// Byte offsets of the elements, row-major, from the start of their block.
fn element_offsets(operand: &Operand) -> Vec<u64> {
    let mut offsets = Vec::with_capacity(operand.layout.count());
    let size = operand.dtype.size() as u64;
    operand
        .layout
        .for_each(|element| offsets.push(operand.place.offset + element as u64 * size));
    offsets
}

fn bytes(executable: &Executable, operand: &Operand) -> Result<Vec<u8>, Error> {
    let range = operand.range();
    let mut bytes = vec![0; (range.end - range.start) as usize];
    if !bytes.is_empty() {
        let device = executable.device();
        device.read(executable.storage(range.block), range.start, &mut bytes)?;
    }
    Ok(bytes)
}

fn value(dtype: DType, bytes: &[u8]) -> f64 {
    let word = bytes.iter().rev().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
    match dtype {
        DType::F32 => f64::from(f32::from_bits(word)),
        DType::F16 => half::f16::from_bits(word as u16).to_f64(),
        DType::BF16 => half::bf16::from_bits(word as u16).to_f64(),
        DType::I32 => f64::from(word as i32),
        DType::U32 | DType::U8 | DType::Bool => f64::from(word),
    }
}
