use std::panic::Location;

use crate::array::Content;
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
        let device = inputs[0].device();
        if let Some(other) = inputs.iter().find(|x| !x.device().same(device)) {
            let what = format!(
                "operands are on {:?} and on {:?}; copy one with to_device",
                device,
                other.device()
            );
            return self.invalid(inputs, what);
        }
        match inputs.iter().find_map(|x| x.error()) {
            Some(error) => Array::invalid(device, dtype, error),
            None => self.on(device, primitive, inputs, shape, dtype),
        }
    }

    /// As [`Caller::node`] for a primitive that updates some of its inputs, and their next versions in
    /// the order of [`Primitive::updates`]. Invalid where one of them is no whole state.
    pub(crate) fn updating(
        self,
        primitive: Primitive,
        inputs: &[&Array],
        shape: &[usize],
        dtype: DType,
    ) -> (Array, Vec<Array>) {
        let states: Vec<&Array> = primitive.updates().iter().map(|&number| inputs[number]).collect();
        let result = match states.iter().all(|state| state.is_state() || state.error().is_some()) {
            true => self.node(primitive, inputs, shape, dtype),
            false => self.invalid(
                inputs,
                "only a whole state (or an update of one) is updated".to_string(),
            ),
        };
        let next = |state: &&Array| self.node(Primitive::Updated, &[state, &result], state.shape(), state.dtype());
        let next: Vec<Array> = states.iter().map(next).collect();
        result.set_next_versions(&next);
        (result, next)
    }

    /// The result of `primitive` without inputs, on `device`; invalid when `shape` is beyond any memory.
    pub(crate) fn source(self, device: &Device, primitive: Primitive, shape: &[usize], dtype: DType) -> Array {
        self.on(device, primitive, &[], shape, dtype)
    }

    fn on(self, device: &Device, primitive: Primitive, inputs: &[&Array], shape: &[usize], dtype: DType) -> Array {
        match self.bytes(shape, dtype) {
            Err(error) => Array::invalid(device, dtype, error),
            Ok(_) => {
                let inputs = inputs.iter().map(|&x| x.clone()).collect();
                Array::new(device, shape, dtype, Content::Lazy(primitive, inputs))
            }
        }
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
