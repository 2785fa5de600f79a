use std::panic::Location;
use std::sync::Arc;

use crate::array::Content;
use crate::operation::{ArraySpec, Operation};
use crate::{Array, DType, Device, Error, Primitive};

/// An operation while it is called: its name, and the place in the user's source.
#[derive(Clone, Copy)]
pub struct Caller {
    name: &'static str,
    at: &'static Location<'static>,
}

impl Caller {
    /// The operation `name`, called by the caller of the function that says `#[track_caller]`.
    #[track_caller]
    pub(crate) fn new(name: &'static str) -> Caller {
        Caller {
            name,
            at: Location::caller(),
        }
    }

    /// The result of `primitive` of at least one input, on their device; invalid when an input is, when
    /// the inputs are on several devices, or when `shape` is beyond any memory.
    pub(crate) fn node(self, primitive: Primitive, inputs: &[&Array], shape: &[usize], dtype: DType) -> Array {
        let shape = shape.to_vec();
        let made = self.lazy(primitive, inputs, ArraySpec { shape, dtype }, vec![]);
        made.unwrap_or_else(|error| Array::invalid(inputs[0].device(), dtype, error))
    }

    /// The one result of an operation; invalid where the operation says so, and as [`Caller::node`].
    pub(crate) fn apply(self, operation: impl Operation, inputs: &[&Array]) -> Array {
        // Mostly there are few.
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

    /// As [`Caller::node`] for a primitive of any number of results: what is new, and behind it the next versions of
    /// the states that it updates, in the order of [`Primitive::updates`]. Invalid where one of these is no whole state.
    pub(crate) fn results(self, primitive: Primitive, inputs: &[&Array], new: Vec<ArraySpec>) -> Vec<Array> {
        let states: Vec<&Array> = primitive.updates().iter().map(|&number| inputs[number]).collect();
        let mut specs = new;
        specs.extend(states.iter().map(|state| state.spec().clone()));
        let dtypes: Vec<DType> = specs.iter().map(|spec| spec.dtype).collect();
        let made = if states.iter().all(|state| state.is_state() || state.error().is_some()) {
            let further = specs.split_off(1.min(specs.len()));
            match specs.pop() {
                Some(first) => self.lazy(primitive, inputs, first, further),
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

    /// The result of `primitive` without inputs, on `device`; invalid when `shape` is beyond any memory.
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

    /// The first result of a computation from at least one input.
    fn lazy(
        self,
        primitive: Primitive,
        inputs: &[&Array],
        first: ArraySpec,
        further: Vec<ArraySpec>,
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
        for spec in [&first].into_iter().chain(&further) {
            self.bytes(&spec.shape, spec.dtype)?;
        }
        let inputs = inputs.iter().map(|&x| x.clone()).collect();
        Ok(Array::new(device, first, further, Content::Lazy(primitive, inputs)))
    }

    /// An array that carries the first error among the inputs or, if they are well, this one.
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

    /// That something does not fit.
    pub(crate) fn error(self, what: String) -> Error {
        Error::Invalid {
            op: self.name,
            what,
            at: self.at,
        }
    }

    /// Bytes that elements of `shape` take.
    pub(crate) fn bytes(self, shape: &[usize], dtype: DType) -> Result<u64, Error> {
        // Extents of 0 do not excuse the others: strides are products of them.
        let extents = shape.iter().map(|&n| n.max(1));
        let bytes = extents.chain([dtype.size()]).try_fold(1usize, usize::checked_mul);
        match bytes.filter(|&b| b <= isize::MAX as usize) {
            Some(_) => Ok((shape.iter().product::<usize>() * dtype.size()) as u64),
            None => Err(self.error(format!("{dtype}{shape:?} is more than memory has addresses for"))),
        }
    }
}
