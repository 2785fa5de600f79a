use crate::linear::section::Projection;
use crate::linear::sources::WeightRows;
use crate::{DType, Values, elementwise, rms_norm};

/// Dense inputs of [`reference()`].
pub struct ProjectionInputs<'a> {
    /// `[T, K]`.
    pub x: &'a [f32],
    /// The norm's weight `[K]`.
    pub norm_weight: Option<&'a [f32]>,
    /// The matrices `[N, K]` of all sections, in order.
    pub parts: Vec<&'a dyn WeightRows>,
    /// The epilogues' extra inputs `[T, N]` of all sections, in order.
    pub extras: Vec<Values>,
    /// T.
    pub tokens: usize,
}

/// CPU reference: norm, products and elementwise operations. Returns `[T, Σ N]`, row-major.
///
/// # Panics
/// Panics if lengths contradict each other or if an epilogue is not a valid expression.
pub fn reference(projection: &Projection, inputs: &ProjectionInputs<'_>) -> Values {
    let normed = projection.norm.map(|norm| {
        let columns = inputs.parts[0].columns();
        rms_norm::reference(inputs.x, inputs.norm_weight, norm.eps, columns)
    });
    let x = normed.as_deref().unwrap_or(inputs.x);
    let (mut parts, mut extras) = (inputs.parts.iter(), inputs.extras.iter());
    let mut results = Vec::new();
    for section in &projection.sections {
        let mut rows = 0;
        let sums = section.epilogue.inputs.iter().zip(&section.parts).map(|(&dtype, _)| {
            let part = *parts.next().expect("a matrix for each part");
            rows = part.count();
            let mut sums = vec![0.0; inputs.tokens * rows];
            part.multiply(x, 0..rows, &mut sums);
            Values::F32(sums).rounded(dtype)
        });
        let mut values: Vec<Values> = sums.collect();
        let result = if section.is_plain() {
            values.swap_remove(0)
        } else {
            values.extend(extras.by_ref().take(section.extras()).cloned());
            elementwise::reference(&section.epilogue, &values, inputs.tokens * rows)
        };
        debug_assert_eq!(result.dtype(), DType::F32, "results are floats");
        results.push((result, rows));
    }
    // Avoids a copy of the logits, which are many.
    if results.len() == 1 {
        return results.swap_remove(0).0;
    }
    let mut joined = Vec::with_capacity(results.iter().map(|(values, _)| values.len()).sum());
    for t in 0..inputs.tokens {
        for (values, rows) in &results {
            joined.extend_from_slice(&values.f32()[t * rows..][..*rows]);
        }
    }
    Values::F32(joined)
}
