//! Parts of programs that are made once, and then used for other arrays.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::array::Content;
use crate::signature::FastMap;
use crate::{Array, Composite, Error, Primitive};

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Arrays that were made of placeholders ([`Array::input`]), to be made again of other arrays. Each use makes one array
/// for each result ([`Composite`]), however many there are in between. All are computed together.
///
/// ```
/// # use refrain::{Array, DType, Device, Subgraph};
/// let device = Device::cpu();
/// let x = Array::input(&device, "x", DType::F32, &[2]);
/// let doubled = Subgraph::of(&[&x], &[&(&x + &x)])?;
/// let y = Array::from_slice(&device, &[1.0f32, 2.0], &[2]);
/// assert_eq!(doubled.apply(&[&y])?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), refrain::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Subgraph(Arc<Arrays>);

#[derive(Debug)]
struct Arrays {
    /// Tells subgraphs apart.
    id: u64,
    placeholders: Vec<Array>,
    results: Vec<Array>,
}

impl Subgraph {
    /// What `results` are made of, down to `placeholders`. Copies the arrays: whoever holds these can change nothing.
    ///
    /// # Errors
    /// Fails if there are no placeholders, and if a result is invalid or depends on anything else: an array that is older
    /// than the placeholders or evaluated, another placeholder, or the update of a state.
    pub fn of(placeholders: &[&Array], results: &[&Array]) -> Result<Subgraph, Error> {
        let Some(first) = placeholders.first() else {
            return Err(Error::Call("a subgraph needs a placeholder".to_string()));
        };
        let own: Vec<Array> = placeholders
            .iter()
            .map(|x| Array::input(first.device(), "an input of a subgraph", x.dtype(), x.shape()))
            .collect();
        let results = rebuilt(results, placeholders, &own)?;
        Ok(Subgraph(Arc::new(Arrays {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            placeholders: own,
            results,
        })))
    }

    /// The results for these arrays.
    ///
    /// # Errors
    /// Fails if an array has another shape or dtype than its placeholder, or if there are more or fewer.
    pub fn apply(&self, inputs: &[&Array]) -> Result<Vec<Array>, Error> {
        let expected = self.0.placeholders.iter().map(Array::spec);
        if !inputs.iter().map(|x| x.spec()).eq(expected) {
            return Err(Error::Call(
                "the arrays do not match a subgraph's placeholders".to_string(),
            ));
        }
        let specs = self.0.results.iter().map(|result| (result.shape(), result.dtype()));
        let specs: Vec<_> = specs.collect();
        Ok(Array::composed_results(self.clone(), inputs, &specs))
    }
}

impl Composite for Subgraph {
    fn name(&self) -> &'static str {
        "subgraph"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.0.id.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], integer: Option<&Array>) -> Array {
        self.compose_results(inputs, integer).swap_remove(0)
    }

    fn compose_results(&self, inputs: &[Array], _integer: Option<&Array>) -> Vec<Array> {
        let Arrays {
            placeholders, results, ..
        } = &*self.0;
        let [placeholders, results] = [placeholders, results].map(|arrays| arrays.iter().collect::<Vec<_>>());
        rebuilt(&results, &placeholders, inputs).expect("checked by `of`")
    }
}

/// The same computations of `inputs`, which are placeholders, too, instead of `placeholders`.
///
/// # Errors
/// Those of [`Subgraph::of`].
fn rebuilt(results: &[&Array], placeholders: &[&Array], inputs: &[Array]) -> Result<Vec<Array>, Error> {
    let oldest = placeholders.iter().map(|placeholder| placeholder.id()).min();
    let mut made: FastMap<u64, Array> = FastMap::default();
    for (placeholder, input) in placeholders.iter().zip(inputs) {
        made.insert(placeholder.id(), input.clone());
    }
    for array in in_order(results) {
        if made.contains_key(&array.id()) {
            continue;
        }
        let (primitive, from) = match &*array.content() {
            Content::Lazy(primitive, from) => (primitive.clone(), from.clone()),
            Content::Ready(_) => return Err(Error::Call("a subgraph reads an evaluated array".to_string())),
            Content::Invalid(error) => return Err(error.clone()),
        };
        let is_older = oldest.is_some_and(|oldest| array.id() < oldest);
        if is_older || matches!(primitive, Primitive::Input { .. }) || !primitive.updates().is_empty() {
            let what = format!("a subgraph depends on {} beside its placeholders", primitive.name());
            return Err(Error::Call(what));
        }
        let from = from.iter().map(|x| made[&x.id()].sibling(x.result())).collect();
        let mut specs = array.specs().cloned();
        let first = specs.next().expect("there is a result");
        let content = Content::Lazy(primitive, from);
        let array_again = Array::new(array.device(), first, specs.collect(), content);
        made.insert(array.id(), array_again);
    }
    Ok(results.iter().map(|x| made[&x.id()].sibling(x.result())).collect())
}

/// All arrays that `results` depend on, in program order, one for each computation.
fn in_order(results: &[&Array]) -> Vec<Array> {
    let mut found: FastMap<u64, Array> = FastMap::default();
    let mut pending: Vec<Array> = results.iter().map(|&array| array.clone()).collect();
    while let Some(array) = pending.pop() {
        if found.contains_key(&array.id()) {
            continue;
        }
        if let Content::Lazy(_, inputs) = &*array.content() {
            pending.extend(inputs.iter().cloned());
        }
        found.insert(array.id(), array.clone());
    }
    let mut arrays: Vec<Array> = found.into_values().collect();
    arrays.sort_unstable_by_key(Array::id);
    arrays
}
