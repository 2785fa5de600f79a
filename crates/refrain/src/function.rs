use std::sync::{Arc, Mutex, MutexGuard};

use crate::array::Value;
use crate::claims::{Claim, ClaimedWork};
use crate::device::Flush;
use crate::execute::{ArgumentMemory, Difference, Executable, Executor, Tape, layout_in_storage};
use crate::graph::Graph;
use crate::passes::LowerOptions;
use crate::plan::{Input, Operand, Plan};
use crate::program::{Bindings, Lookup, Program};
use crate::written::Written;
use crate::{Array, Device, Element, Error, eval};

/// A program traced once and called many times: its placeholders ([`Array::input`]) stand for other arrays
/// at each call, and the states that it updates keep what the last call wrote. An array that names
/// such a state ([`Array::state`]) reads what the last call left there. Whatever is not evaluated when it
/// is traced is computed at every call: evaluate first what arguments do not change.
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
/// Two functions of one structure (a model traced for two sessions, say) are one program over other memory: the
/// second lowers nothing.
pub struct Function {
    device: Device,
    program: Arc<Program>,
    bindings: Bindings,
    /// The memory of calls with bytes and of tapes, once there is one. Held while a call is given to the device, so
    /// that calls from several threads each keep their arguments.
    own: Mutex<Option<Arc<Executable>>>,
}

impl Function {
    /// Lowers the program that computes `outputs`. Updates of states among them happen at each call.
    ///
    /// # Errors
    /// As [`crate::eval`], and when `outputs` is empty.
    pub fn trace(outputs: &[&Array]) -> Result<Function, Error> {
        Function::trace_with(outputs, LowerOptions::default())
    }

    /// [`Function::trace`], lowered in another way than usual.
    ///
    /// # Errors
    /// As [`Function::trace`].
    pub fn trace_with(outputs: &[&Array], options: LowerOptions) -> Result<Function, Error> {
        // What another thread has begun to evaluate is evaluated before it is traced.
        let ((written, found), claim) = Claim::of(|| {
            let written = Written::of(outputs, options)?;
            let found = Lookup::on(outputs[0].device(), &written)?;
            let work = written.states().map(ClaimedWork::on).collect();
            Ok(((written, found), work))
        })?;
        let current = |slot: usize, since: i64| written.slots[slot].version().wrapping_add_signed(since);
        let stale = found.seen().iter().flatten().find(|seen| seen.version != seen.last);
        let stale = stale.map(|seen| Error::StaleState {
            op: "the output of a function".to_string(),
            read: current(seen.slot, seen.version),
            current: current(seen.slot, seen.last),
        });
        drop(claim);
        if let Some(stale) = stale {
            return Err(stale);
        }
        let device = outputs[0].device();
        Ok(Function {
            device: device.clone(),
            program: found.lowered(device, written.signature, options)?,
            bindings: Bindings(written.slots),
            own: Mutex::default(),
        })
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What it does at each call.
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

    /// Bytes of memory that a run needs beside weights and states.
    pub fn own_bytes(&self) -> u64 {
        self.plan().own_bytes()
    }

    /// Takes the memory that calls with bytes need and has the driver translate their commands, which else the first
    /// calls do. Runs nothing.
    ///
    /// # Errors
    /// Too little memory, a device that fails.
    pub fn prepare(&self) -> Result<(), Error> {
        self.executable(&mut self.own())?.translate()
    }

    /// The program as a tape that `executor` runs: for one without arguments, whose values are all in states.
    ///
    /// # Errors
    /// A program with arguments, or one that the executor cannot serve; too little memory.
    pub fn tape(&self, executor: &'static dyn Executor) -> Result<Tape, Error> {
        Tape::new(self.executable(&mut self.own())?, executor)
    }

    /// As [`Function::tape`] with a wrong number put into the result of step `step` at each run: for
    /// trying whether that is found.
    ///
    /// # Errors
    /// As [`Function::tape`]; no such step, another device than a Vulkan one.
    pub fn faulty_tape(&self, executor: &'static dyn Executor, step: usize) -> Result<Tape, Error> {
        let faulty = self.executable(&mut self.own())?.with_fault(step)?;
        Tape::new(Arc::new(faulty), executor)
    }

    /// The first step whose result differs from the other function's, each as its last run left it. Both
    /// are traced from one program, with [`LowerOptions::keep`].
    ///
    /// # Errors
    /// Functions of different programs, a failing device.
    pub fn first_difference(&self, other: &Function) -> Result<Option<Difference>, Error> {
        let [one, other] = [self, other].map(|function| function.executable(&mut function.own()));
        crate::execute::first_difference(&*one?, &*other?)
    }

    /// Microseconds of each step of one run, for a function without arguments, or with those of its last call with
    /// bytes, on a device that measures time. It changes states like any run.
    ///
    /// # Errors
    /// Arguments that were never given, a device that does not measure, or one that fails.
    pub fn profile(&self) -> Result<Vec<f64>, Error> {
        self.executable(&mut self.own())?.profile()
    }

    /// Computes the outputs, new arrays at each call, from `arguments`: for each placeholder its name and an array of
    /// its shape and dtype, evaluated if need be. Names that the program does not use are passed over. Returns once
    /// the work is submitted.
    ///
    /// # Errors
    /// A placeholder without argument, an argument of another shape, dtype or device; those of the arguments'
    /// evaluation; too little memory, a failing device.
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
        // A kernel reads an argument from its memory's start on. What it updates must not be what it is given.
        for (_, array) in given.iter_mut().filter(|(_, array)| !is_whole(array)) {
            *array = array.contiguous();
        }
        eval(&given.iter().map(|(_, array)| array).collect::<Vec<_>>())?;
        let memory = given.iter().map(|(input, array)| (input.offset, storage_of(array)));
        let arguments = ArgumentMemory::Arrays(memory.collect());
        let (compiled, bindings) = (self.program.compiled.clone(), self.bindings.clone());
        let executable = Arc::new(Executable::with_arguments(&self.device, compiled, bindings, arguments)?);
        let calling = self.own();
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

    /// As [`Function::call`] with the elements' bytes (little-endian, row-major) and outputs that [`Function::read`]
    /// reads, until the next such call. Allocates no device memory but at the first.
    ///
    /// # Errors
    /// A placeholder without argument, an argument of the wrong size, a failing device.
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
        let mut own = self.own();
        let executable = self.executable(&mut own)?;
        executable.write_control(&control)?;
        executable.run(Flush::Requested)
    }

    /// The elements of output `number` after the last call with bytes or run of a tape, row-major. Waits for that
    /// output alone.
    ///
    /// # Errors
    /// No such output, another dtype, no call yet, a failing device.
    pub fn read<T: Element>(&self, number: usize) -> Result<Vec<T>, Error> {
        let count = self.plan().outputs.get(number).map_or(0, |o| o.layout.count());
        self.read_range(number, 0, count)
    }

    /// `count` elements of output `number` from element `start` on, row-major.
    ///
    /// # Errors
    /// As [`Function::read`], and when the range leaves the output.
    pub fn read_range<T: Element>(&self, number: usize, start: usize, count: usize) -> Result<Vec<T>, Error> {
        let Some(output) = self.plan().outputs.get(number) else {
            return Err(Error::Call(format!("there is no output {number}")));
        };
        let ran = self.own().clone().filter(|executable| executable.has_run());
        let Some(executable) = ran else {
            return Err(Error::Call(
                "the function was not called yet, so its outputs hold nothing".to_string(),
            ));
        };
        let (layout, dtype) = (&output.layout, output.dtype);
        let end = start.checked_add(count).filter(|&end| end <= layout.count());
        if end.is_none() || dtype != T::DTYPE {
            let what = format!("{count} elements from {start} on of output {number}, {dtype}{layout}, do not read as");
            return Err(Error::Call(format!("{what} {}", T::DTYPE)));
        }
        let size = dtype.size();
        if layout.is_contiguous() {
            let bytes = read_bytes(&executable, output, layout.offset + start, count)?;
            return crate::element::decode(&bytes).map_err(Error::Call);
        }
        // The host puts into order what the device left with gaps.
        let spread = layout.end().saturating_sub(layout.offset);
        let spread = read_bytes(&executable, output, layout.offset, spread)?;
        let mut bytes = Vec::with_capacity(layout.count() * size);
        layout.for_each(|place| bytes.extend(&spread[(place - layout.offset) * size..][..size]));
        crate::element::decode(&bytes[start * size..][..count * size]).map_err(Error::Call)
    }

    fn own(&self) -> MutexGuard<'_, Option<Arc<Executable>>> {
        self.own.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The program over its own memory, which is allocated when it is first wanted.
    fn executable(&self, own: &mut Option<Arc<Executable>>) -> Result<Arc<Executable>, Error> {
        if let Some(executable) = own {
            return Ok(executable.clone());
        }
        let (compiled, bindings) = (self.program.compiled.clone(), self.bindings.clone());
        let executable = Arc::new(Executable::new(&self.device, compiled, bindings)?.into_tape());
        Ok(own.insert(executable).clone())
    }

    /// Bytes of weights that one call reads if it reads each once.
    pub fn weight_bytes(&self) -> u64 {
        let plan = self.plan();
        plan.steps.iter().map(|step| plan.weight_bytes(step)).sum()
    }
}

fn missing(input: &Input) -> Error {
    Error::Call(format!("argument {} is missing", input.name))
}

/// Whether an evaluated array is all there is from its memory's start on, and nothing updates that.
fn is_whole(array: &Array) -> bool {
    array.value().is_some_and(|Value { storage, layout, .. }| {
        layout.offset == 0 && layout.is_contiguous() && !storage.is_state()
    })
}

/// The memory of an evaluated array.
fn storage_of(array: &Array) -> crate::Storage {
    array.value().expect("arguments are evaluated").storage
}

/// Bytes of `count` elements from place `first` of an output's memory on.
fn read_bytes(executable: &Executable, output: &Operand, first: usize, count: usize) -> Result<Vec<u8>, Error> {
    let size = output.dtype.size();
    let mut bytes = vec![0; count * size];
    let storage = executable.storage(output.place.block);
    let start = output.place.offset + (first * size) as u64;
    executable.device().read(storage, start, &mut bytes)?;
    Ok(bytes)
}
