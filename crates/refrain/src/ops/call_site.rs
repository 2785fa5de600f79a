use std::borrow::Borrow;
use std::panic::Location;
use std::sync::Arc;

use crate::array::{Content, Inputs};
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
        let inputs = inputs.iter().map(|&x| x.clone()).collect();
        self.node_of(primitive, inputs, ArraySpec::new(shape, dtype))
    }

    /// [`CallSite::node`] of these handles.
    pub(crate) fn node_of(self, primitive: Primitive, inputs: Inputs, spec: ArraySpec) -> Array {
        match self.check(&inputs, [&spec]) {
            Ok(()) => Array::lazy(spec, vec![], primitive, inputs),
            Err(error) => Array::invalid(inputs[0].device(), spec.dtype, error),
        }
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
                let primitive = Primitive::Operation(Arc::new(operation));
                let inputs = inputs.iter().map(|&x| x.clone()).collect();
                self.node_of(primitive, inputs, made.pop().expect("one result"))
            }
        }
    }

    /// [`CallSite::node`] for a primitive with any number of results: the new ones, then the next versions of the
    /// states that it updates, in the order of [`Primitive::updates`]. Invalid if one of these is not a whole state.
    pub(crate) fn results(self, primitive: Primitive, inputs: &[&Array], new: Vec<ArraySpec>) -> Vec<Array> {
        if let [only] = &new[..]
            && primitive.updates().is_empty()
        {
            let inputs = inputs.iter().map(|&x| x.clone()).collect();
            return vec![self.node_of(primitive, inputs, only.clone())];
        }
        let states: Vec<&Array> = primitive.updates().iter().map(|&number| inputs[number]).collect();
        let mut specs = new;
        specs.extend(states.iter().map(|state| state.spec().clone()));
        let dtypes: Vec<DType> = specs.iter().map(|spec| spec.dtype).collect();
        let made = if states.iter().all(|state| state.is_state() || state.error().is_some()) {
            let extra_results = specs.split_off(1.min(specs.len()));
            match specs.pop() {
                Some(first) => (self.check(inputs, [&first].into_iter().chain(&extra_results))).map(|()| {
                    let inputs = inputs.iter().map(|&x| x.clone()).collect();
                    Array::lazy(first, extra_results, primitive, inputs)
                }),
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
                let content = Content::Lazy(primitive, Inputs::new());
                Array::new(device, ArraySpec::new(shape, dtype), vec![], content)
            }
        }
    }

    /// Fails if an input is invalid, if the inputs are on several devices, or if the size of a result overflows.
    fn check<'s>(
        self,
        inputs: &[impl Borrow<Array>],
        results: impl IntoIterator<Item = &'s ArraySpec>,
    ) -> Result<(), Error> {
        let mut inputs = inputs.iter().map(Borrow::borrow);
        if let Some(error) = inputs.clone().find_map(Array::error) {
            return Err(error);
        }
        let device = inputs.clone().next().map(Array::device);
        if let Some(device) = device
            && let Some(other) = inputs.find(|x| !x.device().same(device))
        {
            return Err(self.error(format!(
                "operands are on {:?} and on {:?}; copy one with to_device",
                device,
                other.device()
            )));
        }
        results
            .into_iter()
            .try_for_each(|spec| self.bytes(&spec.shape, spec.dtype).map(drop))
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
