//! The null device: records all calls and computes nothing. Its heaps have the sizes of the mock device. Work completes
//! when it is waited for or polled. [`Fault`]s make it fail as real devices do.

mod faults;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::backend::{Backend, Failure, RawMemory, RawPipeline, RawRecording, RecordRequest};
use crate::class::MemoryClass;
use crate::command::Command;
use crate::info::{DeviceInfo, Heap};
use crate::kernel::Kernel;
use crate::mapped::Mapped;
use crate::null_event::{NullEvent, RecordedCommand};
use crate::queue::Queue;

pub use faults::{Fault, KernelStub, NullMemory, NullOptions};

/// A recorded list: name, commands, and whether the host reads its results.
type NullList = (String, Vec<RecordedCommand>, bool);

#[derive(Default)]
struct NullState {
    events: Vec<NullEvent>,
    /// Bytes allocated from each heap.
    used: Vec<u64>,
    next: u64,
    recordings: HashMap<u64, NullList>,
    submitted: [u64; 2],
    completed: [u64; 2],
    /// First value of each queue that is never reached, because it waits for a list that hangs.
    stuck: [Option<u64>; 2],
    /// Number of allocations and of submit calls.
    allocations: u64,
    submits: u64,
    /// Host-visible blocks.
    mapped: faults::MappedBlocks,
    /// Lists submitted to the compute queue that have not completed.
    running: VecDeque<(u64, Vec<RecordedCommand>)>,
}

impl NullState {
    fn handle(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The backend of a null device.
pub(crate) struct Null {
    info: DeviceInfo,
    options: NullOptions,
    state: Mutex<NullState>,
}

impl Null {
    pub fn new(info: DeviceInfo, options: NullOptions) -> Self {
        let used = vec![0; info.heaps.len()];
        Self {
            info,
            options,
            state: Mutex::new(NullState {
                used,
                ..NullState::default()
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, NullState> {
        self.state.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?.max(1), 64).ok()
}

impl Backend for Null {
    fn heaps(&self) -> Vec<Heap> {
        let state = self.state();
        let with_use = |(heap, used): (&Heap, &u64)| Heap {
            used: heap.used + used,
            ..*heap
        };
        self.info.heaps.iter().zip(&state.used).map(with_use).collect()
    }

    fn allocate(&self, class: MemoryClass, memory_type: usize, bytes: u64) -> Result<RawMemory, Failure> {
        let heap = self.info.memory_types[memory_type].heap;
        let mut state = self.state();
        state.allocations += 1;
        self.fail_to_allocate(state.allocations)?;
        if state.used[heap] + bytes > self.info.heaps[heap].size {
            return Err(Failure::OutOfMemory);
        }
        let mapped = if class.mapped() {
            let layout = layout(bytes).ok_or(Failure::OutOfMemory)?;
            // SAFETY: the layout is not empty.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) });
            let start = start.ok_or(Failure::OutOfMemory)?;
            // SAFETY: just allocated with that length. Nothing uses it after `free`.
            Some(unsafe { Mapped::new(start, layout.size()) })
        } else {
            None
        };
        state.used[heap] += bytes;
        state.events.push(NullEvent::Allocate {
            class,
            memory_type,
            bytes,
        });
        let handle = state.handle();
        // Each block gets a terabyte of address space, so that blocks are never adjacent.
        let address = handle << 40;
        if let Some(mapped) = mapped {
            state.mapped.insert(address, (class, mapped));
        }
        Ok(RawMemory {
            memory: handle,
            buffer: handle,
            memory_type,
            bytes,
            address,
            mapped,
        })
    }

    fn free(&self, memory: &RawMemory) {
        let mut state = self.state();
        state.used[self.info.memory_types[memory.memory_type].heap] -= memory.bytes;
        state.mapped.remove(&memory.address);
        let (memory_type, bytes) = (memory.memory_type, memory.bytes);
        state.events.push(NullEvent::Free { memory_type, bytes });
        if let (Some(mapped), Some(layout)) = (memory.mapped, layout(memory.bytes)) {
            // SAFETY: `allocate` used this layout, and each block is freed once.
            unsafe { dealloc(mapped.as_mut_slice().as_mut_ptr(), layout) }
        }
    }

    fn create_pipeline(&self, kernel: &Kernel, _spirv: &[u32]) -> Result<(RawPipeline, bool), Failure> {
        let mut state = self.state();
        state.events.push(NullEvent::Pipeline { kernel: kernel.clone() });
        Ok((
            RawPipeline {
                pipeline: state.handle(),
                layout: 0,
            },
            false,
        ))
    }

    fn destroy_pipeline(&self, _pipeline: RawPipeline) {}

    fn merge_pipeline_cache(&self, _data: &[u8]) {}

    fn pipeline_cache_data(&self) -> Vec<u8> {
        Vec::new()
    }

    fn record(&self, request: &RecordRequest<'_>) -> Result<RawRecording, Failure> {
        let commands = request.commands.iter().map(record_command).collect();
        let mut state = self.state();
        let handle = state.handle();
        let list = (request.name.to_owned(), commands, request.host_reads);
        state.recordings.insert(handle, list);
        Ok(RawRecording {
            queue: request.queue,
            pool: 0,
            commands: handle,
            queries: 0,
            query_count: 0,
        })
    }

    fn recycle(&self, recording: RawRecording) {
        self.state().recordings.remove(&recording.commands);
    }

    fn submit(
        &self,
        queue: Queue,
        recordings: &[RawRecording],
        waits: &[(Queue, u64)],
        signal: u64,
    ) -> Result<(), Failure> {
        let mut state = self.state();
        state.submits += 1;
        self.fail_to_submit(queue, signal, state.submits)?;
        if self.is_stuck(waits) {
            state.stuck[queue as usize].get_or_insert(signal);
        }
        for (number, recording) in recordings.iter().enumerate() {
            let recorded = state.recordings.get(&recording.commands).cloned();
            let (list, commands, host_reads) = recorded.unwrap_or_default();
            let value = signal + number as u64;
            state.submitted[queue as usize] = value;
            if queue == Queue::Compute && self.options.kernel_stub.is_some() {
                state.running.push_back((value, commands.clone()));
            }
            state.events.push(NullEvent::Submit {
                queue,
                list,
                waits: if number == 0 { waits.to_vec() } else { vec![] },
                value,
                commands,
                host_reads,
            });
        }
        Ok(())
    }

    fn completed(&self, queue: Queue) -> Result<u64, Failure> {
        let state = self.state();
        self.counter(queue, &state)
    }

    fn poll(&self, queue: Queue) -> Result<u64, Failure> {
        let mut state = self.state();
        let submitted = state.submitted[queue as usize];
        self.run(queue, submitted, &mut state)?;
        self.counter(queue, &state)
    }

    fn wait(&self, queue: Queue, value: u64, timeout: Duration) -> Result<bool, Failure> {
        let mut state = self.state();
        state.events.push(NullEvent::Wait { queue, value });
        let reached = self.run(queue, value, &mut state)?;
        drop(state);
        if !reached {
            std::thread::sleep(timeout);
        }
        Ok(reached)
    }

    fn status(&self) -> Result<(), Failure> {
        let state = self.state();
        self.reported_status(&state)
    }

    fn intervals(&self, _recording: &RawRecording) -> Vec<u64> {
        Vec::new()
    }

    fn wait_idle(&self) {}

    fn abandon(&self) {}

    fn recorded(&self) -> Vec<NullEvent> {
        self.state().events.clone()
    }
}

fn record_command(command: &Command) -> RecordedCommand {
    match command {
        Command::Dispatch { pipeline, groups, push } => RecordedCommand::Dispatch {
            kernel: pipeline.name().to_owned(),
            groups: Some(*groups),
            push: push.clone(),
        },
        Command::DispatchIndirect { pipeline, push, .. } => RecordedCommand::Dispatch {
            kernel: pipeline.name().to_owned(),
            groups: None,
            push: push.clone(),
        },
        Command::Barrier => RecordedCommand::Barrier,
        Command::FullBarrier => RecordedCommand::FullBarrier,
        Command::Copy {
            src,
            src_offset,
            dst,
            dst_offset,
            bytes,
        } => RecordedCommand::Copy {
            src: src.address() + src_offset,
            dst: dst.address() + dst_offset,
            bytes: *bytes,
        },
        Command::Timestamp { region } => RecordedCommand::Timestamp { region: region.clone() },
    }
}
