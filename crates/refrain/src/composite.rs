//! Composites: several arrays that count as one until the graph is built.

use std::any::Any;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use crate::operation::ArraySpec;
use crate::ops::CallSite;
use crate::{Array, DType, Error, Primitive};

/// A function of arrays that is composed of other operations. [`Array::composed`] calls it.
///
/// Its result is one array, which costs the host as much as one operation. It may have several, which are computed
/// together. The arrays that it is composed of are made only when a program is lowered, and are fused as ever. A program
/// that repeats itself never makes them again.
pub trait Composite: fmt::Debug + Any + Send + Sync {
    /// Name in error messages and tables.
    fn name(&self) -> &'static str;

    /// Feeds to `state` everything that distinguishes this from other composites of the same type, as
    /// [`Operation::key`](crate::operation::Operation::key) does.
    fn key(&self, state: &mut dyn Hasher);

    /// The result, made of `inputs` and of `integer`, an i32 without dimensions, by lazy operations that update no
    /// state. Inputs have the shapes and dtypes of the call's, but no elements.
    fn compose(&self, inputs: &[Array], integer: Option<&Array>) -> Array;

    /// All results, of which [`Composite::compose`] is the first. A composite with several
    /// ([`Array::composed_results`]) overrides this.
    fn compose_results(&self, inputs: &[Array], integer: Option<&Array>) -> Vec<Array> {
        vec![self.compose(inputs, integer)]
    }
}

impl Array {
    /// The result of a composite, of which shape and dtype are known. `integer` is an [`Array::integer`] that it reads.
    ///
    /// Invalid if there are no inputs, if an input is invalid, or if they are on several devices. Evaluation fails if
    /// the result is composed of an invalid array, or has another shape or dtype.
    ///
    /// ```
    /// # use std::hash::Hasher;
    /// # use refrain::{Array, Composite, Device};
    /// #[derive(Debug)]
    /// struct Shifted;
    ///
    /// impl Composite for Shifted {
    ///     fn name(&self) -> &'static str {
    ///         "shifted"
    ///     }
    ///     fn key(&self, _state: &mut dyn Hasher) {}
    ///     fn compose(&self, inputs: &[Array], by: Option<&Array>) -> Array {
    ///         &inputs[0] * 2.0 + by.expect("it is given one").astype(refrain::DType::F32)
    ///     }
    /// }
    ///
    /// let x = Array::from_slice(&Device::cpu(), &[1.0f32, 2.0], &[2]);
    /// let shifted = Array::composed(Shifted, &[&x], Some(10), x.shape(), x.dtype());
    /// assert_eq!(shifted.to_vec::<f32>()?, [12.0, 14.0]);
    /// # Ok::<(), refrain::Error>(())
    /// ```
    #[track_caller]
    pub fn composed(
        composite: impl Composite,
        inputs: &[&Array],
        integer: Option<i32>,
        shape: &[usize],
        dtype: DType,
    ) -> Array {
        let call_site = CallSite::new(composite.name());
        if inputs.is_empty() {
            return call_site.invalid(inputs, "it needs an input".to_string());
        }
        let composite = Arc::new(composite);
        call_site.node(Primitive::Composite { composite, integer }, inputs, shape, dtype)
    }

    /// The results of a composite with several, of which shapes and dtypes are known. Whoever needs one of them computes
    /// all.
    ///
    /// Invalid as [`Array::composed`].
    #[track_caller]
    pub fn composed_results(composite: impl Composite, inputs: &[&Array], results: &[(&[usize], DType)]) -> Vec<Array> {
        let call_site = CallSite::new(composite.name());
        if inputs.is_empty() {
            let invalid = call_site.invalid(inputs, "it needs an input".to_string());
            return vec![invalid; results.len()];
        }
        let spec = |&(shape, dtype): &(&[usize], DType)| ArraySpec::new(shape, dtype);
        let composite = Arc::new(composite);
        let primitive = Primitive::Composite {
            composite,
            integer: None,
        };
        call_site.results(primitive, inputs, results.iter().map(spec).collect())
    }
}

/// The arrays of which a composite is composed, and the stand-ins for its inputs and its integer.
pub(crate) struct Composition {
    pub inputs: Vec<Array>,
    pub integer: Option<Array>,
    pub results: Vec<Array>,
}

impl Composition {
    /// Composes `array`, a result of `composite` for `inputs`, and its other results.
    ///
    /// # Errors
    /// Returns the error of a composed array. Fails if one has another shape or dtype than it should.
    pub fn of(
        array: &Array,
        composite: &dyn Composite,
        inputs: &[Array],
        has_integer: bool,
    ) -> Result<Composition, Error> {
        let stand_in = |ArraySpec { shape, dtype }: &ArraySpec| {
            Array::input(array.device(), "an input of a composite", *dtype, shape)
        };
        let integer = has_integer.then(|| Array::input(array.device(), "an integer", DType::I32, &[]));
        let inputs: Vec<Array> = inputs.iter().map(|input| stand_in(input.spec())).collect();
        let results = composite.compose_results(&inputs, integer.as_ref());
        if let Some(error) = results.iter().find_map(Array::error) {
            return Err(error);
        }
        if !results.iter().map(Array::spec).eq(array.specs()) {
            let text =
                |specs: &mut dyn Iterator<Item = &ArraySpec>| specs.map(|spec| spec.to_string()).collect::<Vec<_>>();
            let found = text(&mut results.iter().map(Array::spec)).join(", ");
            let expected = text(&mut array.specs()).join(", ");
            let name = composite.name();
            return Err(Error::Call(format!("{name} is composed of {found}, not of {expected}")));
        }
        Ok(Composition {
            inputs,
            integer,
            results,
        })
    }
}
