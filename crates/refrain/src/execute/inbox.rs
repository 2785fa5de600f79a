//! What the host puts into states: messages that the device carries out between runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use refrain_kernels::inbox;
use refrain_vulkan::{
    Access, Buffer, Command, CommandList, Device as VulkanDevice, MemoryClass, Recording, Submission,
};

use super::{Executable, eager};
use crate::device::Backend;
use crate::storage::{Memory, Storage};
use crate::{Array, Error};

/// The most words that one submit puts into states.
pub const MOST_WORDS: usize = 4096;
/// Messages that may wait for the device at once.
const MESSAGES: usize = 4;

/// Words that the host puts into a state before a run.
#[derive(Clone, Debug)]
pub struct Write {
    /// A whole state.
    pub state: Array,
    /// The first word (4 bytes) of the state that is written.
    pub at: usize,
    /// The new words.
    pub words: Vec<u32>,
}

/// The messages of one program, made for the first write: most programs get none.
#[derive(Default)]
pub(super) struct Inbox {
    messages: OnceLock<Vec<Message>>,
    turn: Mutex<Turn>,
}

struct Message {
    buffer: Buffer,
    recording: Recording,
}

/// Which message comes next, and what last carried out each.
#[derive(Default)]
struct Turn {
    next: usize,
    carried_out: [Option<Submission>; MESSAGES],
}

/// A message that is written and not yet submitted; no other is written meanwhile.
pub(super) struct Delivery<'i> {
    turn: MutexGuard<'i, Turn>,
    number: usize,
    recording: &'i Recording,
}

impl Inbox {
    /// Memory for messages and the commands that carry them out, unless they are there.
    pub(super) fn prepare(&self, program: &Executable) -> Result<(), Error> {
        self.messages(program).map(drop)
    }

    fn messages(&self, program: &Executable) -> Result<&[Message], Error> {
        if self.messages.get().is_none() {
            let messages = (0..MESSAGES).map(|_| Message::new(program));
            // Of two threads that come to this at once, one keeps its own.
            let _ = self.messages.set(messages.collect::<Result<_, _>>()?);
        }
        Ok(self.messages.get().expect("just made"))
    }

    /// Writes the next message, whose last reader is done; nothing for no writes.
    pub(super) fn write<'i>(&'i self, program: &Executable, writes: &[Write]) -> Result<Option<Delivery<'i>>, Error> {
        let entries = entries(writes)?;
        if entries.is_empty() {
            return Ok(None);
        }
        let (device, _) = vulkan(program);
        let messages = self.messages(program)?;
        let mut turn = self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = turn.next;
        turn.next = (number + 1) % MESSAGES;
        if let Some(last) = turn.carried_out[number].take() {
            device.wait(&last)?;
        }
        let words = inbox::message(&entries);
        device.write_control(&messages[number].buffer, 0, bytemuck::cast_slice(&words))?;
        Ok(Some(Delivery {
            turn,
            number,
            recording: &messages[number].recording,
        }))
    }
}

impl Delivery<'_> {
    pub(super) fn recording(&self) -> &Recording {
        self.recording
    }

    /// Notes by what it is carried out.
    pub(super) fn submitted(mut self, submission: Submission) {
        let number = self.number;
        self.turn.carried_out[number] = Some(submission);
    }
}

impl Message {
    /// A message that may write whatever the program's own commands write.
    fn new(program: &Executable) -> Result<Message, Error> {
        let (device, _) = vulkan(program);
        let bytes = 4 * inbox::message_words(MOST_WORDS) as u64;
        let buffer = device.allocate(MemoryClass::Control, bytes)?;
        let mut inbox = CommandList::new("inbox");
        inbox.commands = vec![deliver(program, &buffer)?];
        inbox.uses = program
            .bound()
            .uses()
            .filter(|(used, _)| used.class().is_state())
            .map(|(used, _)| (used.clone(), Access::Write))
            .chain([(buffer.clone(), Access::Read)])
            .collect();
        let recording = device.record(inbox)?;
        Ok(Message { buffer, recording })
    }
}

/// The command that carries out the message in `buffer`.
fn deliver(program: &Executable, buffer: &Buffer) -> Result<Command, Error> {
    let (device, traits) = vulkan(program);
    let call = inbox::call(traits);
    Ok(Command::Dispatch {
        pipeline: device.pipeline(&eager::translate(traits, &call.kernel, 8))?,
        groups: call.groups,
        push: buffer.address().to_le_bytes().to_vec(),
    })
}

/// Commands that put a wrong number into the first word of a step's result, and what they read.
pub(super) fn fault_at(program: &Executable, step: usize) -> Result<(Vec<Command>, Buffer), Error> {
    const WRONG: f32 = 12345.678;
    let (device, _) = vulkan(program);
    let plan = program.plan();
    let Some(output) = plan.steps.get(step).and_then(|step| step.written().next()) else {
        let what = format!("there is no step {step}: the plan has {} steps", plan.steps.len());
        return Err(Error::Call(what));
    };
    let range = output.range();
    let start = buffer_of(program.storage(range.block)).address() + range.start / 4 * 4;
    let message = device.allocate(MemoryClass::Control, 4 * inbox::message_words(1) as u64)?;
    let words = inbox::message(&[(start, WRONG.to_bits())]);
    device.write_control(&message, 0, bytemuck::cast_slice(&words))?;
    let deliver = deliver(program, &message)?;
    Ok((vec![Command::Barrier, deliver, Command::Barrier], message))
}

fn vulkan(program: &Executable) -> (&Arc<VulkanDevice>, &refrain_kernels::Traits) {
    match program.device().backend() {
        Backend::Vulkan { device, traits } => (device, traits),
        Backend::Cpu => unreachable!("messages are for a Vulkan device"),
    }
}

fn buffer_of(storage: &Storage) -> &Buffer {
    match &storage.memory {
        Memory::Vulkan(buffer) => buffer,
        Memory::Host(_) => unreachable!("a storage stays with the device that made it"),
    }
}

/// The state's memory, if the words lie within it.
pub(super) fn state_of(write: &Write) -> Result<Storage, Error> {
    let words = write.state.count() * write.state.dtype().size() / 4;
    let inside = write.at.checked_add(write.words.len()).is_some_and(|end| end <= words);
    let storage = write.state.whole_state().filter(|_| inside);
    storage.ok_or_else(|| {
        let end = write.at.saturating_add(write.words.len());
        Error::Call(format!(
            "words {}..{end} of {:?} cannot be written",
            write.at, write.state
        ))
    })
}

/// Addresses and values of all words, the last value of each.
fn entries(writes: &[Write]) -> Result<Vec<(u64, u32)>, Error> {
    let mut entries = BTreeMap::new();
    for write in writes {
        let start = buffer_of(&state_of(write)?).address() + 4 * write.at as u64;
        entries.extend((start..).step_by(4).zip(write.words.iter().copied()));
    }
    if entries.len() > MOST_WORDS {
        let what = format!("{} words at once; the most is {MOST_WORDS}", entries.len());
        return Err(Error::Call(what));
    }
    Ok(entries.into_iter().collect())
}
