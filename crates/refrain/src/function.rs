use std::sync::{Arc, Mutex, MutexGuard};

use crate::array::Value;
use crate::device::Flush;
use crate::execute::{ArgumentMemory, Difference, Executable, Executor, SharedScratch, Tape, layout_in_storage};
use crate::graph::Graph;
use crate::locks::{LockKey, WorkLock};
use crate::lookup::Lookup;
use crate::passes::LowerOptions;
use crate::plan::{Input, Operand, Plan};
use crate::program::Program;
use crate::storage::Bindings;
use crate::traced_graph::TracedGraph;
use crate::{Array, Device, Element, Error, eval};

/// A program traced once and called many times, like a jitted function.
///
/// Its placeholders ([`Array::input`]) stand for other arrays at each call. States that it updates keep their contents
/// between calls, and an array of such a state ([`Array::state`]) reads what the last call wrote. Everything that is
/// not evaluated at the time of tracing is computed at every call, so evaluate what does not depend on arguments first.
///
/// ```
/// use refrain::{Array, DType, Device, Function};
///
/// let device = Device::cpu();
/// let x = Array::input(&device, "x", DType::F32, &[2]);
/// let double = Function::trace(&[&(&x * 2.0)]).unwrap();
/// let once = double.call(&[("x", &Array::from_slice(&device, &[1.0f32, 2.5], &[2]))]).unwrap();
/// let twice = double.call(&[("x", &once[0])]).unwrap();
/// assert_eq!(twice[0].to_vec::<f32>().unwrap(), [4.0, 10.0]);
/// ```
///
/// Functions of the same structure (a model traced for two engines, say) share one cached program over different
/// memory: tracing the second lowers nothing.
pub struct Function {
    device: Device,
    program: Arc<Program>,
    bindings: Bindings,
    /// The program with its own memory, for `call_bytes` and tapes; allocated on first use. Locked while a call is
    /// submitted, so that calls from several threads keep their arguments.
    cached: Mutex<Option<Arc<Executable>>>,
    scratch: Option<SharedScratch>,
}

impl Function {
    /// Traces and lowers the program that computes `outputs`. Updates of states that they depend on happen at each
    /// call.
    ///
    /// # Errors
    /// As [`crate::eval`]; also fails if `outputs` is empty.
    pub fn trace(outputs: &[&Array]) -> Result<Function, Error> {
        Function::trace_with(outputs, LowerOptions::default())
    }

    /// [`Function::trace`] with lowering options.
    ///
    /// # Errors
    /// As [`Function::trace`].
    pub fn trace_with(outputs: &[&Array], options: LowerOptions) -> Result<Function, Error> {
        // Waits for evaluations that another thread has begun, then traces.
        let ((traced, found), lock) = WorkLock::acquire(|| {
            let traced = TracedGraph::of(outputs, options)?;
            let found = Lookup::on(outputs[0].device(), &traced)?;
            let work = traced.states().map(LockKey::of_state).collect();
            Ok(((traced, found), work))
        })?;
        let current = |slot: usize, since: i64| traced.slots[slot].version().wrapping_add_signed(since);
        let stale = found
            .output_versions()
            .iter()
            .flatten()
            .find(|seen| seen.version != seen.last);
        let stale = stale.map(|seen| Error::StaleState {
            op: "the output of a function".to_string(),
            read: current(seen.slot, seen.version),
            current: current(seen.slot, seen.last),
        });
        drop(lock);
        if let Some(stale) = stale {
            return Err(stale);
        }
        let device = outputs[0].device();
        Ok(Function {
            device: device.clone(),
            program: found.get_or_lower(device, traced.signature, options)?,
            bindings: Bindings(traced.slots),
            cached: Mutex::default(),
            scratch: None,
        })
    }

    /// Keeps intermediate results in shared memory, from the first call on.
    #[must_use]
    pub fn with_scratch(self, scratch: &SharedScratch) -> Function {
        Function {
            scratch: Some(scratch.clone()),
            ..self
        }
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The plan of a call.
    pub fn plan(&self) -> &Plan {
        self.program.plan()
    }

    /// The traced program.
    pub fn graph(&self) -> &Graph {
        &self.program.graph
    }

    /// The memory of weights, states and evaluated arrays that it reads and updates.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Bytes of memory that a run needs besides weights and states.
    pub fn working_bytes(&self) -> u64 {
        self.plan().working_bytes()
    }

    /// Allocates the memory for [`Function::call_bytes`] and translates its commands ahead of the first call. Runs
    /// nothing.
    ///
    /// # Errors
    /// Fails if memory runs out or the device fails.
    pub fn prepare(&self) -> Result<(), Error> {
        self.executable(&mut self.cached())?.translate()
    }

    /// The program as a tape for `executor`. The program must have no arguments: all its inputs are weights and states.
    ///
    /// # Errors
    /// Fails if the program has arguments, if the executor does not support it, or if memory runs out.
    pub fn tape(&self, executor: &'static dyn Executor) -> Result<Tape, Error> {
        Tape::new(self.executable(&mut self.cached())?, executor)
    }

    /// [`Function::tape`] with a fault: a wrong number is written into the result of step `step` at each run. Used to
    /// test that comparisons find it.
    ///
    /// # Errors
    /// As [`Function::tape`]; also fails if there is no such step or the device is not a Vulkan device.
    pub fn faulty_tape(&self, executor: &'static dyn Executor, step: usize) -> Result<Tape, Error> {
        let faulty = self.executable(&mut self.cached())?.with_fault(step)?;
        Tape::new(Arc::new(faulty), executor)
    }

    /// The first step whose result differs between the last runs of this function and of another. Both must be traced
    /// from the same program, with [`LowerOptions::keep`].
    ///
    /// # Errors
    /// Fails if the functions have different programs, or if the device fails.
    pub fn first_difference(&self, other: &Function) -> Result<Option<Difference>, Error> {
        let [one, other] = [self, other].map(|function| function.executable(&mut function.cached()));
        crate::execute::first_difference(&*one?, &*other?)
    }

    /// Runs the function once, with the arguments of its last [`Function::call_bytes`] if it has any, and returns the
    /// time of each step in microseconds. The run updates states like any other.
    ///
    /// # Errors
    /// Fails if arguments were never passed, if the device does not measure time, or if it fails.
    pub fn profile(&self) -> Result<Vec<f64>, Error> {
        self.executable(&mut self.cached())?.profile()
    }

    /// Calls the function. `arguments` has, for each placeholder, its name and an array of its shape and dtype, which
    /// is evaluated if necessary; names that the program does not use are ignored. Returns new arrays for the outputs,
    /// once the work is submitted.
    ///
    /// # Errors
    /// Fails if an argument is missing, or has another shape, dtype or device; if the evaluation of an argument fails;
    /// if memory runs out, or if the device fails.
    pub fn call(&self, arguments: &[(&str, &Array)]) -> Result<Vec<Array>, Error> {
        let mut given: Vec<(&Input, Array)> = Vec::with_capacity(self.plan().inputs.len());
        for input in &self.plan().inputs {
            let Some((_, array)) = arguments.iter().find(|(name, _)| *name == input.name) else {
                return Err(missing(input));
            };
            self.check_argument(input, array)?;
            given.push((input, (*array).clone()));
        }
        eval(&given.iter().map(|(_, array)| array).collect::<Vec<_>>())?;
        // Kernels read an argument from the start of its memory. An argument must not be a state, which the call may
        // update.
        for (_, array) in given.iter_mut().filter(|(_, array)| !is_whole(array)) {
            *array = array.contiguous();
        }
        eval(&given.iter().map(|(_, array)| array).collect::<Vec<_>>())?;
        let memory = given.iter().map(|(input, array)| (input.offset, storage_of(array)));
        let arguments = ArgumentMemory::Arrays(memory.collect());
        let (compiled, bindings) = (self.program.compiled.clone(), self.bindings.clone());
        let executable = Arc::new(Executable::with_arguments(
            &self.device,
            compiled,
            bindings,
            (arguments, None),
        )?);
        let calling = self.cached();
        executable.run(Flush::Requested)?;
        drop(calling);
        Ok((0..self.plan().outputs.len())
            .map(|number| {
                let (operand, storage) = executable.output(number);
                let value = Value {
                    version: storage.version(),
                    layout: layout_in_storage(operand),
                    storage,
                };
                let shape = value.layout.shape.clone();
                Array::ready(&self.device, &shape, operand.dtype, value)
            })
            .collect())
    }

    fn check_argument(&self, input: &Input, array: &Array) -> Result<(), Error> {
        if let Some(error) = array.error() {
            return Err(error);
        }
        if !array.device().same(&self.device) {
            return Err(Error::Call(format!(
                "argument {} is on {:?} and the function on {:?}; copy it with to_device",
                input.name,
                array.device(),
                self.device
            )));
        }
        if array.shape() != input.shape || array.dtype() != input.dtype {
            return Err(Error::Call(format!(
                "argument {} is {}{:?}, not {}{:?}",
                input.name,
                array.dtype(),
                array.shape(),
                input.dtype,
                input.shape
            )));
        }
        Ok(())
    }

    /// Calls the function with the bytes of the arguments' elements (little-endian, row-major). [`Function::read`]
    /// reads the outputs until the next such call. Only the first call allocates device memory.
    ///
    /// # Errors
    /// Fails if an argument is missing or has the wrong size, or if the device fails.
    pub fn call_bytes(&self, arguments: &[(&str, &[u8])]) -> Result<(), Error> {
        let plan = self.plan();
        let mut control = vec![0; plan.control_bytes as usize];
        for (name, bytes) in arguments {
            // A placeholder that the program does not use was not traced.
            for input in plan.inputs.iter().filter(|i| i.name == *name) {
                let wanted = input.shape.iter().product::<usize>() * input.dtype.size();
                if wanted != bytes.len() {
                    return Err(Error::Call(format!(
                        "argument {name} has {} bytes, not the {wanted} of {}{:?}",
                        bytes.len(),
                        input.dtype,
                        input.shape
                    )));
                }
                control[input.offset as usize..][..wanted].copy_from_slice(bytes);
            }
        }
        let given = |input: &&Input| arguments.iter().any(|(name, _)| *name == input.name);
        if let Some(input) = plan.inputs.iter().find(|input| !given(input)) {
            return Err(missing(input));
        }
        let mut cached = self.cached();
        let executable = self.executable(&mut cached)?;
        executable.write_control(&control)?;
        executable.run(Flush::Requested)
    }

    /// The elements of output `number` after the last [`Function::call_bytes`] or tape run, row-major. Waits only for
    /// that output.
    ///
    /// # Errors
    /// Fails if there is no such output, if it has another dtype, if nothing ran yet, or if the device fails.
    pub fn read<T: Element>(&self, number: usize) -> Result<Vec<T>, Error> {
        let count = self.plan().outputs.get(number).map_or(0, |o| o.layout.count());
        self.read_range(number, 0, count)
    }

    /// `count` elements of output `number` from element `start` on, row-major.
    ///
    /// # Errors
    /// As [`Function::read`]; also fails if the range exceeds the output.
    pub fn read_range<T: Element>(&self, number: usize, start: usize, count: usize) -> Result<Vec<T>, Error> {
        let Some(output) = self.plan().outputs.get(number) else {
            return Err(Error::Call(format!("there is no output {number}")));
        };
        let ran = self.cached().clone().filter(|executable| executable.has_run());
        let Some(executable) = ran else {
            return Err(Error::Call(
                "the function was not called yet, so it has no outputs".to_string(),
            ));
        };
        let (layout, dtype) = (&output.layout, output.dtype);
        let end = start.checked_add(count).filter(|&end| end <= layout.count());
        if end.is_none() || dtype != T::DTYPE {
            let what = format!("cannot read {count} elements from element {start} of output {number}, {dtype}{layout}");
            return Err(Error::Call(format!("{what}, as {}", T::DTYPE)));
        }
        let size = dtype.size();
        if layout.is_contiguous() {
            let bytes = read_bytes(&executable, output, layout.offset + start, count)?;
            return crate::element::decode(&bytes).map_err(Error::Call);
        }
        // The output has gaps: gather its elements on the host.
        let spread = layout.end().saturating_sub(layout.offset);
        let spread = read_bytes(&executable, output, layout.offset, spread)?;
        let mut bytes = Vec::with_capacity(layout.count() * size);
        layout.for_each(|index| bytes.extend(&spread[(index - layout.offset) * size..][..size]));
        crate::element::decode(&bytes[start * size..][..count * size]).map_err(Error::Call)
    }

    fn cached(&self) -> MutexGuard<'_, Option<Arc<Executable>>> {
        self.cached.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The program over its own memory, which is allocated on first use.
    fn executable(&self, cached: &mut Option<Arc<Executable>>) -> Result<Arc<Executable>, Error> {
        if let Some(executable) = cached {
            return Ok(executable.clone());
        }
        let (compiled, bindings) = (self.program.compiled.clone(), self.bindings.clone());
        let executable =
            Arc::new(Executable::sharing(&self.device, compiled, bindings, self.scratch.as_ref())?.into_tape());
        Ok(cached.insert(executable).clone())
    }

    /// Bytes of weights that one call reads, each weight once.
    pub fn weight_bytes(&self) -> u64 {
        let plan = self.plan();
        plan.steps.iter().map(|step| plan.weight_bytes(step)).sum()
    }
}

fn missing(input: &Input) -> Error {
    Error::Call(format!("argument {} is missing", input.name))
}

/// Whether an evaluated array is contiguous from the start of its memory, and that memory is no state.
fn is_whole(array: &Array) -> bool {
    array.value().is_some_and(|Value { storage, layout, .. }| {
        layout.offset == 0 && layout.is_contiguous() && !storage.is_state()
    })
}

/// The memory of an evaluated array.
fn storage_of(array: &Array) -> crate::Storage {
    array.value().expect("arguments are evaluated").storage
}

/// Bytes of `count` elements of an output, from element `first` of its memory on.
fn read_bytes(executable: &Executable, output: &Operand, first: usize, count: usize) -> Result<Vec<u8>, Error> {
    let size = output.dtype.size();
    let mut bytes = vec![0; count * size];
    let storage = executable.storage(output.place.block);
    let start = output.place.offset + (first * size) as u64;
    executable.device().read(storage, start, &mut bytes)?;
    Ok(bytes)
}
