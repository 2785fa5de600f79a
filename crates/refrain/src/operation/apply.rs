//! [`Array::apply`].

use std::sync::Arc;

use super::{ArraySpec, Operation};
use crate::ops::CallSite;
use crate::{Array, Primitive};

impl Array {
    /// Applies an operation. Returns its new results, then the next versions of the states that it updates, in the
    /// order of [`Operation::updates`].
    ///
    /// All are invalid if the operation rejects the inputs, if it has another number of results than the caller
    /// expects, if there are no inputs, or if they are on several devices.
    ///
    /// Results are evaluated together: evaluating one computes all that arrays still refer to.
    ///
    /// ```text
    /// let [sorted] = Array::apply(Sort, &[&x]);
    /// let [average, averages] = Array::apply(MovingAverage { keep: 0.5 }, &[&averages, &x]);
    /// ```
    #[track_caller]
    pub fn apply<const N: usize>(operation: impl Operation, inputs: &[&Array]) -> [Array; N] {
        let call_site = CallSite::new(operation.name());
        let made = results(call_site, operation, inputs).and_then(|made| {
            let count = made.len();
            <[Array; N]>::try_from(made).map_err(|_| format!("it has {count} results, but {N} are expected"))
        });
        made.unwrap_or_else(|what| {
            let invalid = call_site.invalid(inputs, what);
            std::array::from_fn(|_| invalid.clone())
        })
    }
}

/// All results of an operation.
fn results(call_site: CallSite, operation: impl Operation, inputs: &[&Array]) -> Result<Vec<Array>, String> {
    let specs: Vec<&ArraySpec> = inputs.iter().map(|array| array.spec()).collect();
    if inputs.is_empty() || operation.updates().iter().any(|&number| number >= inputs.len()) {
        return Err(format!("it needs more than {} inputs", inputs.len()));
    }
    let new = operation.results(&specs)?;
    Ok(call_site.results(Primitive::Operation(Arc::new(operation)), inputs, new))
}
