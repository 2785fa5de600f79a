//! The result of lowering one operation.

use refrain::{DType, Device, Error, passes, plan::Plan};

use crate::operations::Operation;

/// Kernels, or an error.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The result's dtype, and the kernels in execution order.
    Kernels(DType, Vec<String>),
    /// The error's message, without the operation, the source location and extents.
    Error(String),
}

impl Outcome {
    pub fn of(operation: &Operation, device: &Device, dtype: DType) -> Outcome {
        match lowered(operation, device, dtype) {
            Ok(plan) => Outcome::Kernels(
                plan.outputs[0].dtype,
                names(&plan).iter().map(|name| short(name)).collect(),
            ),
            Err(Error::Invalid { what, .. }) => Outcome::Error(without_extents(&what)),
            Err(error) => Outcome::Error(without_extents(&error.to_string())),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Outcome::Error(_))
    }
}

/// The full names of the kernels that compute an operation; none if it is not supported.
pub fn kernels(operation: &Operation, device: &Device, dtype: DType) -> Vec<String> {
    lowered(operation, device, dtype).map_or(vec![], |plan| names(&plan))
}

fn lowered(operation: &Operation, device: &Device, dtype: DType) -> Result<Plan, Error> {
    passes::plan(&[&(operation.program)(device, dtype)])
}

fn names(plan: &Plan) -> Vec<String> {
    let calls = plan.steps.iter().flat_map(|step| &step.calls);
    calls.map(|call| call.kernel.name.to_string()).collect()
}

/// A kernel's name without the suffixes for device features.
fn short(name: &str) -> String {
    name.split('.')
        .map(|part| part.split('+').next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(".")
}

/// A message with shapes replaced by a placeholder.
fn without_extents(message: &str) -> String {
    let mut depth = 0;
    let kept = message.chars().filter(|&c| {
        depth -= usize::from(c == ']');
        let outside = depth == 0;
        depth += usize::from(c == '[');
        outside
    });
    kept.collect::<String>().replace("[]", "[…]")
}
