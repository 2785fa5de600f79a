use std::panic::Location;
use std::sync::Arc;

use crate::array::Content;
use crate::operation::prelude::{ArraySpec, Operation};
use crate::{Array, DType, Device, Error, Primitive};

/// The name of an operation and the source location that called it, for error messages.
#[derive(Clone, Copy)]
pub struct CallSite {
    name: &'static str,
    at: &'static Location<'static>,
}

impl CallSite {
    /// Operation `name`, called at the location of the `#[track_caller]` function's caller.
    #[track_caller]
    pub(crate) fn new(name: &'static str) -> CallSite {
        CallSite {
            name,
            at: Location::caller(),
        }
    }

    /// The result of `primitive`, which has at least one input, on the inputs' device. Invalid if an input is invalid,
    /// if the inputs are on several devices, or if the size of `shape` overflows.
    pub(crate) fn node(self, primitive: Primitive, inputs: &[&Array], shape: &[usize], dtype: DType) -> Array {
        let shape = shape.to_vec();
        let made = self.lazy(primitive, inputs, ArraySpec { shape, dtype }, vec![]);
        made.unwrap_or_else(|error| Array::invalid(inputs[0].device(), dtype, error))
    }

    /// The result of an operation that has one result. Invalid if the operation rejects the inputs, and as
    /// [`CallSite::node`].
    pub(crate) fn apply(self, operation: impl Operation, inputs: &[&Array]) -> Array {
        // Avoids an allocation in the common cases.
        let results = match inputs {
            [x] => operation.results(&[x.spec()]),
            [x, y] => operation.results(&[x.spec(), y.spec()]),
            _ => operation.results(&inputs.iter().map(|array| array.spec()).collect::<Vec<_>>()),
        };
        match results {
            Err(what) => self.invalid(inputs, what),
            Ok(mut made) => {
                let made = made.pop().expect("one result");
                let dtype = made.dtype;
                let primitive = Primitive::Operation(Arc::new(operation));
                (self.lazy(primitive, inputs, made, vec![]))
                    .unwrap_or_else(|error| Array::invalid(inputs[0].device(), dtype, error))
            }
        }
    }

    /// [`CallSite::node`] for a primitive with any number of results: the new ones, then the next versions of the
    /// states that it updates, in the order of [`Primitive::updates`]. Invalid if one of these is not a whole state.
    pub(crate) fn results(self, primitive: Primitive, inputs: &[&Array], new: Vec<ArraySpec>) -> Vec<Array> {
        let states: Vec<&Array> = primitive.updates().iter().map(|&number| inputs[number]).collect();
        let mut specs = new;
        specs.extend(states.iter().map(|state| state.spec().clone()));
        let dtypes: Vec<DType> = specs.iter().map(|spec| spec.dtype).collect();
        let made = if states.iter().all(|state| state.is_state() || state.error().is_some()) {
            let extra_results = specs.split_off(1.min(specs.len()));
            match specs.pop() {
                Some(first) => self.lazy(primitive, inputs, first, extra_results),
                None => return vec![],
            }
        } else {
            Err(self.error("only a whole state (or an update of one) is updated".to_string()))
        };
        match made {
            Ok(first) => (0..dtypes.len()).map(|result| first.sibling(result)).collect(),
            Err(error) => {
                let invalid = |dtype: DType| Array::invalid(inputs[0].device(), dtype, error.clone());
                dtypes.into_iter().map(invalid).collect()
            }
        }
    }

    /// The result of `primitive`, which has no inputs, on `device`. Invalid if the size of `shape` overflows.
    pub(crate) fn source(self, device: &Device, primitive: Primitive, shape: &[usize], dtype: DType) -> Array {
        match self.bytes(shape, dtype) {
            Err(error) => Array::invalid(device, dtype, error),
            Ok(_) => {
                let shape = shape.to_vec();
                let content = Content::Lazy(primitive, vec![]);
                Array::new(device, ArraySpec { shape, dtype }, vec![], content)
            }
        }
    }

    /// The first result of a computation with at least one input.
    fn lazy(
        self,
        primitive: Primitive,
        inputs: &[&Array],
        first: ArraySpec,
        extra_results: Vec<ArraySpec>,
    ) -> Result<Array, Error> {
        let device = inputs[0].device();
        if let Some(error) = inputs.iter().find_map(|x| x.error()) {
            return Err(error);
        }
        if let Some(other) = inputs.iter().find(|x| !x.device().same(device)) {
            return Err(self.error(format!(
                "operands are on {:?} and on {:?}; copy one with to_device",
                device,
                other.device()
            )));
        }
        for spec in [&first].into_iter().chain(&extra_results) {
            self.bytes(&spec.shape, spec.dtype)?;
        }
        let inputs = inputs.iter().map(|&x| x.clone()).collect();
        Ok(Array::new(
            device,
            first,
            extra_results,
            Content::Lazy(primitive, inputs),
        ))
    }

    /// An invalid array with the first error of the inputs or, if they are valid, with this message.
    pub(crate) fn invalid(self, inputs: &[&Array], what: String) -> Array {
        let error = inputs
            .iter()
            .find_map(|x| x.error())
            .unwrap_or_else(|| self.error(what));
        let (device, dtype) = match inputs.first() {
            Some(x) => (x.device().clone(), x.dtype()),
            None => (Device::cpu(), DType::F32),
        };
        Array::invalid(&device, dtype, error)
    }

    /// An error that names the operation and its location.
    pub(crate) fn error(self, what: String) -> Error {
        Error::Invalid {
            op: self.name,
            what,
            at: self.at,
        }
    }

    /// Size of an array in bytes.
    pub(crate) fn bytes(self, shape: &[usize], dtype: DType) -> Result<u64, Error> {
        // An extent of 0 does not hide an overflow: strides are products of the other extents.
        let extents = shape.iter().map(|&n| n.max(1));
        let bytes = extents.chain([dtype.size()]).try_fold(1usize, usize::checked_mul);
        match bytes.filter(|&b| b <= isize::MAX as usize) {
            Some(_) => Ok((shape.iter().product::<usize>() * dtype.size()) as u64),
            None => Err(self.error(format!("{dtype}{shape:?} exceeds the address space"))),
        }
    }
}
