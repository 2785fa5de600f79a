//! Elements in memory that other libraries read and write: the buffer protocol and DLPack.
//!
//! Both hand out a copy in host memory, and both copy what they take. This is the only file of the crate that
//! dereferences pointers.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use refrain_mlx::{DType, Value};

use crate::array::PyArray;
use crate::dtype::format_of;
use crate::error::raise;

/// A copy of an array's elements, with what a `Py_buffer` points to.
struct HostCopy {
    bytes: Vec<u8>,
    shape: Vec<isize>,
    strides: Vec<isize>,
    format: CString,
}

/// Strides in units of `unit`, row by row.
fn strides_of(shape: &[usize], unit: usize) -> Vec<usize> {
    let mut strides = vec![unit; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}

fn signed(extents: &[usize]) -> Vec<isize> {
    extents.iter().map(|&extent| extent.cast_signed()).collect()
}

#[pymethods]
impl PyArray {
    /// Fills `view` with a read-only view of a copy of the elements.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer was given"));
        }
        // SAFETY: Python passes a structure to fill. A null owner says that nothing is held after an error.
        unsafe { (*view).obj = ptr::null_mut() };
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err(
                "the elements are a copy: it can be read, not written",
            ));
        }
        let value = slf.get().value();
        let Some(format) = format_of(value.dtype()) else {
            let message = format!("the buffer protocol has no items of {}", value.dtype().name());
            return Err(PyBufferError::new_err(message));
        };
        let copy = Box::new(HostCopy {
            bytes: slf.get().bytes(slf.py())?,
            shape: signed(value.shape()),
            strides: signed(&strides_of(value.shape(), value.dtype().size())),
            format: CString::new(format)?,
        });
        let copy = Box::into_raw(copy);
        // SAFETY: `view` is Python's structure; what it points to lives in `copy` until `__releasebuffer__`.
        unsafe {
            (*view).buf = (*copy).bytes.as_mut_ptr().cast();
            (*view).len = (*copy).bytes.len().cast_signed();
            (*view).readonly = 1;
            (*view).itemsize = value.dtype().size().cast_signed();
            (*view).ndim = value.shape().len() as c_int;
            (*view).format = if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                (*copy).format.as_ptr().cast_mut()
            } else {
                ptr::null_mut()
            };
            (*view).shape = (*copy).shape.as_mut_ptr();
            (*view).strides = (*copy).strides.as_mut_ptr();
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = copy.cast();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }

    /// Frees what `__getbuffer__` made.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `internal` is the box of `__getbuffer__`, and Python releases a view once.
        unsafe { drop(Box::from_raw((*view).internal.cast::<HostCopy>())) };
    }
}

/// DLPack's structures, version 0: the layout is fixed by its header file.
#[repr(C)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
struct ElementType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    rank: i32,
    element: ElementType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// What a tensor of ours owns.
struct Owned {
    bytes: Vec<u8>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

const HOST: i32 = 1;
const FRESH: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";

/// Dtypes with DLPack's code and bits.
const ELEMENTS: [(DType, u8, u8); 14] = [
    (DType::I8, 0, 8),
    (DType::I16, 0, 16),
    (DType::I32, 0, 32),
    (DType::I64, 0, 64),
    (DType::U8, 1, 8),
    (DType::U16, 1, 16),
    (DType::U32, 1, 32),
    (DType::U64, 1, 64),
    (DType::F16, 2, 16),
    (DType::F32, 2, 32),
    (DType::F64, 2, 64),
    (DType::BF16, 4, 16),
    (DType::C64, 5, 64),
    (DType::Bool, 6, 8),
];

unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
    if !tensor.is_null() {
        // SAFETY: both boxes were made by `to_dlpack`; a consumer calls its deleter once.
        unsafe {
            drop(Box::from_raw((*tensor).context.cast::<Owned>()));
            drop(Box::from_raw(tensor));
        }
    }
}

unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes the capsule that is destroyed. A consumer renames one whose tensor it took.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast());
        }
    }
}

/// A DLPack capsule with a copy of the elements.
#[pyfunction]
#[pyo3(name = "_to_dlpack")]
fn to_dlpack<'py>(py: Python<'py>, array: &Bound<'py, PyArray>) -> PyResult<Bound<'py, PyAny>> {
    let value = array.get().value();
    let (_, code, bits) = ELEMENTS[ELEMENTS
        .iter()
        .position(|entry| entry.0 == value.dtype())
        .unwrap_or_default()];
    let owned = Box::into_raw(Box::new(Owned {
        bytes: array.get().bytes(py)?,
        shape: value.shape().iter().map(|&extent| extent as i64).collect(),
        strides: strides_of(value.shape(), 1)
            .into_iter()
            .map(|stride| stride as i64)
            .collect(),
    }));
    // SAFETY: `owned` was just made and lives until `delete`.
    let tensor = unsafe {
        Tensor {
            data: (*owned).bytes.as_mut_ptr().cast(),
            device: Device { kind: HOST, index: 0 },
            rank: value.shape().len() as i32,
            element: ElementType { code, bits, lanes: 1 },
            shape: (*owned).shape.as_mut_ptr(),
            strides: (*owned).strides.as_mut_ptr(),
            byte_offset: 0,
        }
    };
    let managed = Box::into_raw(Box::new(ManagedTensor {
        tensor,
        context: owned.cast(),
        deleter: Some(delete),
    }));
    // SAFETY: the capsule owns `managed` and frees it by `drop_capsule`; a null result is an error of Python's.
    unsafe {
        let capsule = ffi::PyCapsule_New(managed.cast(), FRESH.as_ptr(), Some(drop_capsule));
        if capsule.is_null() {
            delete(managed);
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// The elements of a tensor in host memory, row by row.
///
/// # Safety
/// The tensor's pointers hold for its rank, shape and strides.
unsafe fn elements_of(tensor: &Tensor, shape: &[usize], size: usize) -> Vec<u8> {
    let count = shape.iter().product::<usize>();
    let mut bytes = Vec::with_capacity(count * size);
    // SAFETY: promised by the caller.
    let strides: Vec<isize> = if tensor.strides.is_null() {
        signed(&strides_of(shape, 1))
    } else {
        (0..shape.len())
            .map(|axis| unsafe { *tensor.strides.add(axis) } as isize)
            .collect()
    };
    let mut position = vec![0usize; shape.len()];
    for _ in 0..count {
        let offset: isize = position
            .iter()
            .zip(&strides)
            .map(|(&at, stride)| at.cast_signed() * stride)
            .sum();
        // SAFETY: the element lies within the tensor.
        let element = unsafe {
            let start = tensor.data.cast::<u8>().add(tensor.byte_offset as usize);
            std::slice::from_raw_parts(start.offset(offset * size.cast_signed()), size)
        };
        bytes.extend_from_slice(element);
        for axis in (0..shape.len()).rev() {
            position[axis] += 1;
            if position[axis] < shape[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
    bytes
}

/// An array with the elements of a DLPack capsule, copied. The capsule is used up.
#[pyfunction]
#[pyo3(name = "_from_dlpack")]
fn from_dlpack(py: Python<'_>, capsule: &Bound<'_, PyAny>) -> PyResult<PyArray> {
    // SAFETY: both functions take any object.
    let managed = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), FRESH.as_ptr()) != 1 {
            return Err(PyTypeError::new_err("expected a DLPack capsule that is not used yet"));
        }
        ffi::PyCapsule_GetPointer(capsule.as_ptr(), FRESH.as_ptr()).cast::<ManagedTensor>()
    };
    // SAFETY: a valid capsule of this name holds a managed tensor.
    let tensor = unsafe { &(*managed).tensor };
    if tensor.device.kind != HOST {
        return Err(PyValueError::new_err(
            "[from_dlpack] the elements are not in host memory",
        ));
    }
    let element = &tensor.element;
    let known = ELEMENTS
        .iter()
        .find(|entry| entry.1 == element.code && entry.2 == element.bits && element.lanes == 1);
    let Some((dtype, ..)) = known else {
        let message = format!(
            "[from_dlpack] there is no dtype of code {} and {} bits",
            element.code, element.bits
        );
        return Err(PyValueError::new_err(message));
    };
    // SAFETY: the shape has as many extents as the rank says.
    let shape: Vec<usize> = (0..tensor.rank as usize)
        .map(|axis| unsafe { *tensor.shape.add(axis) } as usize)
        .collect();
    // SAFETY: the producer's tensor holds until its deleter is called, below.
    let bytes = unsafe { elements_of(tensor, &shape, dtype.size()) };
    // SAFETY: the name says that the tensor was taken, so that nobody else deletes it.
    unsafe {
        ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr());
        if let Some(deleter) = (*managed).deleter {
            deleter(managed);
        }
    }
    Value::from_bytes(&bytes, *dtype, &shape)
        .map(PyArray::new)
        .map_err(|error| raise(py, error))
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(to_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(from_dlpack, module)?)
}
