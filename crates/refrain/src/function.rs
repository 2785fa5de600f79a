use refrain_vulkan::MemoryClass;

use crate::device::Flush;
use crate::execute::Executable;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::{Array, Device, Element, Error, Primitive, passes};

/// A program traced once and called many times: its placeholders ([`Array::input`]) get new values
/// at each call, and the states that it updates keep what the last call wrote.
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
    executable: Executable,
    graph: String,
}

impl Function {
    /// Lowers the program that computes `outputs`. Updates of states among them happen at each call.
    ///
    /// # Errors
    /// As [`crate::eval`], and when `outputs` is empty.
    pub fn trace(outputs: &[&Array]) -> Result<Function, Error> {
        let Some(first) = outputs.first() else {
            return Err(Error::Call("a function needs an output".to_string()));
        };
        let device = first.device().clone();
        let traced = Graph::of(outputs)?;
        let graph = traced.graph.to_string();
        Ok(Function {
            executable: Executable::new(passes::lower(traced.graph, &device)?)?,
            graph,
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

    /// Computes the outputs from `arguments`: for each placeholder its name and its elements' bytes.
    /// Returns once the work is submitted.
    ///
    /// # Errors
    /// A placeholder without argument, an argument of the wrong size or name, a failing device.
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
        self.executable.write_control(&control)?;
        self.executable.run(Flush::Requested)
    }

    /// The elements of output `number` after the last call, row-major.
    ///
    /// # Errors
    /// No such output, another dtype, an output that does not lie without gaps, a failing device.
    pub fn read<T: Element>(&self, number: usize) -> Result<Vec<T>, Error> {
        let count = self.plan().outputs.get(number).map_or(0, |o| o.layout.count());
        self.read_range(number, 0, count)
    }

    /// `count` elements of output `number` from element `start` on.
    ///
    /// # Errors
    /// As [`Function::read`], and when the range leaves the output.
    pub fn read_range<T: Element>(&self, number: usize, start: usize, count: usize) -> Result<Vec<T>, Error> {
        let Some(output) = self.plan().outputs.get(number) else {
            return Err(Error::Call(format!("there is no output {number}")));
        };
        if output.dtype != T::DTYPE || !output.layout.is_contiguous() || start + count > output.layout.count() {
            return Err(Error::Call(format!(
                "elements {start}..{} of {} do not read as {}",
                start + count,
                output.layout,
                T::DTYPE
            )));
        }
        let (operand, storage) = self.executable.output(number);
        let offset = operand.place.offset + ((operand.layout.offset + start) * operand.dtype.size()) as u64;
        let mut bytes = vec![0; count * operand.dtype.size()];
        self.device().read(&storage, offset, &mut bytes)?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
    }

    /// Bytes of weights that one call reads if it reads each once.
    pub fn weight_bytes(&self) -> u64 {
        let plan = self.plan();
        let weights = plan
            .steps
            .iter()
            .filter(|s| !matches!(s.primitive, Primitive::QuantTake { .. } | Primitive::Take { .. }));
        let operands = weights
            .flat_map(|s| &s.inputs)
            .filter(|operand| match operand.place.block {
                crate::plan::Block::Storage(n) => plan.storages[n].class() == MemoryClass::Weight,
                _ => false,
            });
        operands
            .map(|operand| operand.range().end - operand.range().start)
            .sum()
    }
}
