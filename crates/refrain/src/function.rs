use std::sync::{Arc, Mutex};

use crate::claims::{Claim, Work};
use crate::device::Flush;
use crate::execute::{Difference, Executable, Tape, TapeMode};
use crate::graph::Graph;
use crate::plan::{Operand, Plan};
use crate::{Array, Device, Element, Error, passes};

/// A program traced once and called many times: its placeholders ([`Array::input`]) get new values
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
/// double.call(&[("x", bytemuck::cast_slice(&[1.0f32, 2.5]))]).unwrap();
/// assert_eq!(double.read::<f32>(0).unwrap(), [2.0, 5.0]);
/// ```
pub struct Function {
    executable: Arc<Executable>,
    graph: String,
    /// Held while a call is given to the device, so that calls from several threads each keep their
    /// arguments.
    calling: Mutex<()>,
}

impl Function {
    /// Lowers the program that computes `outputs`. Updates of states among them happen at each call.
    ///
    /// # Errors
    /// As [`crate::eval`], and when `outputs` is empty.
    pub fn trace(outputs: &[&Array]) -> Result<Function, Error> {
        Function::trace_with(outputs, passes::Options::default())
    }

    /// [`Function::trace`], lowered in another way than usual.
    ///
    /// # Errors
    /// As [`Function::trace`].
    pub fn trace_with(outputs: &[&Array], options: passes::Options) -> Result<Function, Error> {
        // What another thread has begun to evaluate is evaluated before it is traced.
        let (traced, claim) = Claim::of(|| {
            let traced = Graph::of(outputs)?;
            let work = traced.states().map(Work::on).collect();
            Ok((traced, work))
        })?;
        drop(claim);
        if let Some(seen) = traced.seen.iter().flatten().find(|seen| seen.version != seen.last) {
            let op = "the output of a function".to_string();
            return Err(Error::StaleState {
                op,
                read: seen.version,
                current: seen.last,
            });
        }
        let graph = traced.graph.to_string();
        Ok(Function {
            executable: Arc::new(Executable::new(passes::lower_with(
                traced.graph,
                outputs[0].device(),
                options,
            )?)?),
            graph,
            calling: Mutex::new(()),
        })
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        &self.plan().device
    }

    /// What it does at each call.
    pub fn plan(&self) -> &Plan {
        self.executable.plan()
    }

    /// The traced program, printed.
    pub fn graph(&self) -> &str {
        &self.graph
    }

    /// Bytes of memory beside weights and states.
    pub fn own_bytes(&self) -> u64 {
        self.executable.own_bytes()
    }

    /// The program as a tape: for one without arguments, whose values are all in states.
    ///
    /// # Errors
    /// A program with arguments, or one too long for a submission.
    pub fn tape(&self, mode: TapeMode) -> Result<Tape, Error> {
        Tape::new(self.executable.clone(), mode, None)
    }

    /// As [`Function::tape`] with a wrong number put into the result of step `step` at each run: for
    /// trying whether that is found.
    ///
    /// # Errors
    /// As [`Function::tape`], and when there is no such step.
    pub fn faulty_tape(&self, mode: TapeMode, step: usize) -> Result<Tape, Error> {
        Tape::new(self.executable.clone(), mode, Some(step))
    }

    /// The first step whose result differs from the other function's, each as its last run left it. Both
    /// are traced from one program, with [`passes::Options::keep`].
    ///
    /// # Errors
    /// Functions of different programs, a failing device.
    pub fn first_difference(&self, other: &Function) -> Result<Option<Difference>, Error> {
        crate::execute::first_difference(&self.executable, &other.executable)
    }

    /// Microseconds of each step of one run, for a function without arguments on a device that measures
    /// time. It changes states like any run.
    ///
    /// # Errors
    /// Arguments, a device that does not measure, or one that fails.
    pub fn profile(&self) -> Result<Vec<f64>, Error> {
        self.executable.profile()
    }

    /// Computes the outputs from `arguments`: for each placeholder its name and its elements' bytes
    /// (little-endian, row-major). Names that the program does not use are passed over. Returns once the
    /// work is submitted; allocates no device memory.
    ///
    /// # Errors
    /// A placeholder without argument, an argument of the wrong size, a failing device.
    pub fn call(&self, arguments: &[(&str, &[u8])]) -> Result<(), Error> {
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
        if let Some(missing) = plan
            .inputs
            .iter()
            .find(|i| !arguments.iter().any(|(name, _)| *name == i.name))
        {
            return Err(Error::Call(format!("argument {} is missing", missing.name)));
        }
        let _calling = self.calling.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.executable.write_control(&control)?;
        self.executable.run(Flush::Requested)
    }

    /// The elements of output `number` after the last call, row-major. Waits for that output alone.
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
        if !self.executable.has_run() {
            return Err(Error::Call(
                "the function was not called yet, so its outputs hold nothing".to_string(),
            ));
        }
        let (layout, dtype) = (&output.layout, output.dtype);
        let end = start.checked_add(count).filter(|&end| end <= layout.count());
        if end.is_none() || dtype != T::DTYPE {
            let what = format!("{count} elements from {start} on of output {number}, {dtype}{layout}, do not read as");
            return Err(Error::Call(format!("{what} {}", T::DTYPE)));
        }
        let size = dtype.size();
        if layout.is_contiguous() {
            let bytes = self.read_bytes(output, layout.offset + start, count)?;
            return crate::element::decode(&bytes).map_err(Error::Call);
        }
        // The host puts into order what the device left with gaps.
        let spread = self.read_bytes(output, layout.offset, layout.end().saturating_sub(layout.offset))?;
        let mut bytes = Vec::with_capacity(layout.count() * size);
        layout.for_each(|place| bytes.extend(&spread[(place - layout.offset) * size..][..size]));
        crate::element::decode(&bytes[start * size..][..count * size]).map_err(Error::Call)
    }

    /// Bytes of `count` elements from place `first` of an output's memory on.
    fn read_bytes(&self, output: &Operand, first: usize, count: usize) -> Result<Vec<u8>, Error> {
        let size = output.dtype.size();
        let mut bytes = vec![0; count * size];
        let storage = self.executable.storage(output.place.block);
        self.device()
            .read(storage, output.place.offset + (first * size) as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Bytes of weights that one call reads if it reads each once.
    pub fn weight_bytes(&self) -> u64 {
        let plan = self.plan();
        plan.steps.iter().map(|step| plan.weight_bytes(step)).sum()
    }
}
