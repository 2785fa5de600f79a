//! The null device: it records everything that the runtime asks of it and computes nothing.
//! Memory has heaps of the made-up sizes; work completes when it is waited for or polled.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use crate::backend::{Backend, Failure, Queue, RawMemory, RawPipeline, RawRecording, RecordRequest};
use crate::class::MemoryClass;
use crate::command::Command;
use crate::info::{DeviceInfo, Heap};
use crate::mapped::Mapped;
use crate::pipeline::Kernel;

/// Something that happened on a null device.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
    /// Memory was taken.
    Allocate {
        /// For which class.
        class: MemoryClass,
        /// From which memory type.
        memory_type: usize,
        /// How much.
        bytes: u64,
    },
    /// Memory was given back.
    Free {
        /// To which memory type.
        memory_type: usize,
        /// How much.
        bytes: u64,
    },
    /// A pipeline was made.
    Pipeline {
        /// The kernel's name.
        kernel: String,
    },
    /// A command list was submitted, alone or behind others in the same call.
    Submit {
        /// To which queue.
        queue: Queue,
        /// The list's name.
        list: String,
        /// What other timelines it waits for.
        waits: Vec<(Queue, u64)>,
        /// The value of its queue's timeline when it has completed.
        value: u64,
        /// What it does.
        commands: Vec<RecordedCommand>,
        /// Whether it ends with a barrier for the host.
        host_reads: bool,
    },
    /// The host waited.
    Wait {
        /// For which queue.
        queue: Queue,
        /// For which value.
        value: u64,
    },
}

/// A command as a null device saw it.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedCommand {
    /// A kernel ran.
    Dispatch {
        /// Its name.
        kernel: String,
        /// Workgroups; `None` where the device counts them.
        groups: Option<[u32; 3]>,
        /// Push constants.
        push: Vec<u8>,
    },
    /// A barrier from kernel to kernel.
    Barrier,
    /// A barrier for everything.
    FullBarrier,
    /// Bytes were copied.
    Copy {
        /// Address they come from.
        src: u64,
        /// Address they go to.
        dst: u64,
        /// How many.
        bytes: u64,
    },
    /// A region began.
    Timestamp {
        /// Its name.
        region: String,
    },
}

/// What was recorded and not yet submitted: name, commands, whether the host reads.
type Translated = (String, Vec<RecordedCommand>, bool);

#[derive(Default)]
struct State {
    events: Vec<Recorded>,
    used: Vec<u64>,
    next: u64,
    recordings: HashMap<u64, Translated>,
    submitted: [u64; 2],
    completed: [u64; 2],
}

impl State {
    fn handle(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The backend of a null device.
pub(crate) struct Null {
    info: DeviceInfo,
    /// The submission to the compute queue during which the device is lost.
    lost_at: Option<u64>,
    state: Mutex<State>,
}

impl Null {
    pub fn new(info: DeviceInfo, lost_at: Option<u64>) -> Self {
        let used = vec![0; info.heaps.len()];
        Self {
            info,
            lost_at,
            state: Mutex::new(State {
                used,
                ..State::default()
            }),
        }
    }

    /// Whether the device is lost before it has completed `value`.
    fn lost_before(&self, queue: Queue, value: u64) -> bool {
        queue == Queue::Compute && self.lost_at.is_some_and(|lost_at| value >= lost_at)
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        if state.used[heap] + bytes > self.info.heaps[heap].size {
            return Err(Failure::OutOfMemory);
        }
        let mapped = if class.mapped() {
            let layout = layout(bytes).ok_or(Failure::OutOfMemory)?;
            // SAFETY: the layout is not empty.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) });
            let start = start.ok_or(Failure::OutOfMemory)?;
            // SAFETY: just allocated with that length; `free` is told of no later use.
            Some(unsafe { Mapped::new(start, layout.size()) })
        } else {
            None
        };
        state.used[heap] += bytes;
        state.events.push(Recorded::Allocate {
            class,
            memory_type,
            bytes,
        });
        let handle = state.handle();
        // Each block gets a terabyte of addresses, so that blocks never touch.
        let address = handle << 40;
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
        let (memory_type, bytes) = (memory.memory_type, memory.bytes);
        state.events.push(Recorded::Free { memory_type, bytes });
        if let (Some(mapped), Some(layout)) = (memory.mapped, layout(memory.bytes)) {
            // SAFETY: `allocate` took it with this layout, and each block is freed once.
            unsafe { dealloc(mapped.as_mut_slice().as_mut_ptr(), layout) }
        }
    }

    fn create_pipeline(&self, kernel: &Kernel, _spirv: &[u32]) -> Result<(RawPipeline, bool), Failure> {
        let mut state = self.state();
        state.events.push(Recorded::Pipeline {
            kernel: kernel.name.clone(),
        });
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
        let commands = request.commands.iter().map(recorded).collect();
        let mut state = self.state();
        let handle = state.handle();
        let translated = (request.name.to_owned(), commands, request.host_reads);
        state.recordings.insert(handle, translated);
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
        if self.lost_before(queue, signal.saturating_sub(1)) {
            return Err(Failure::Lost);
        }
        let mut state = self.state();
        for (number, recording) in recordings.iter().enumerate() {
            let translated = state.recordings.get(&recording.commands).cloned();
            let (list, commands, host_reads) = translated.unwrap_or_default();
            let value = signal + number as u64;
            state.submitted[queue as usize] = value;
            state.events.push(Recorded::Submit {
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
        Ok(self.state().completed[queue as usize])
    }

    fn poll(&self, queue: Queue) -> Result<u64, Failure> {
        let mut state = self.state();
        let submitted = state.submitted[queue as usize];
        if self.lost_before(queue, submitted) {
            return Err(Failure::Lost);
        }
        state.completed[queue as usize] = submitted;
        Ok(submitted)
    }

    fn wait(&self, queue: Queue, value: u64) -> Result<(), Failure> {
        let mut state = self.state();
        state.events.push(Recorded::Wait { queue, value });
        if self.lost_before(queue, value) {
            return Err(Failure::Lost);
        }
        let completed = &mut state.completed[queue as usize];
        *completed = value.max(*completed);
        Ok(())
    }

    fn timestamps(&self, _recording: &RawRecording) -> Vec<u64> {
        Vec::new()
    }

    fn wait_idle(&self) {}

    fn recorded(&self) -> Vec<Recorded> {
        self.state().events.clone()
    }
}

fn recorded(command: &Command) -> RecordedCommand {
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
