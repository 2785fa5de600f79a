//! The inbox of a program: messages by which the host writes words into states between runs.
//!
//! The host writes a message into a buffer; a kernel then copies its words into the states, in queue order. No running
//! program reads memory that the host writes meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use refrain_kernels::inbox;
use refrain_vulkan::{
    Access, Buffer, Command, CommandList, Device as VulkanDevice, MemoryClass, Recording, Submission,
};

use super::bound::{BoundCommands, buffer};
use super::memory::BlockMemory;
use super::write::{MAX_INBOX_WORDS, Write, target_state};
use crate::device::{Backend, vulkan_kernel};
use crate::plan::Plan;
use crate::{Device, Error};

/// Number of message buffers, and so of messages in flight.
const MESSAGES: usize = 4;

/// The message buffers of one program. They are allocated at the first write, because most programs receive none.
#[derive(Default)]
pub(super) struct Inbox {
    messages: OnceLock<Vec<Message>>,
    ring: Mutex<MessageRing>,
}

struct Message {
    buffer: Buffer,
    recording: Recording,
}

/// The message buffer to use next, and the last submission that read each buffer.
#[derive(Default)]
struct MessageRing {
    next: usize,
    last_submissions: [Option<Submission>; MESSAGES],
}

/// A message that is written but not yet submitted. Holds the lock, so that no other message is written meanwhile.
pub(super) struct PendingMessage<'i> {
    ring: MutexGuard<'i, MessageRing>,
    number: usize,
    recording: &'i Recording,
}

impl Inbox {
    /// Allocates the message buffers and records their commands, unless that is done.
    pub(super) fn prepare(&self, device: &Device, bound: &BoundCommands) -> Result<(), Error> {
        self.messages(device, bound).map(drop)
    }

    fn messages(&self, device: &Device, bound: &BoundCommands) -> Result<&[Message], Error> {
        if self.messages.get().is_none() {
            let messages = (0..MESSAGES).map(|_| Message::new(device, bound));
            // If two threads arrive at once, the first keeps its buffers.
            let _ = self.messages.set(messages.collect::<Result<_, _>>()?);
        }
        Ok(self.messages.get().expect("just made"))
    }

    /// Writes the next message, once its buffer's last reader is done. `None` if there are no writes.
    pub(super) fn write<'i>(
        &'i self,
        device: &Device,
        bound: &BoundCommands,
        writes: &[Write],
    ) -> Result<Option<PendingMessage<'i>>, Error> {
        let entries = entries(writes)?;
        if entries.is_empty() {
            return Ok(None);
        }
        let messages = self.messages(device, bound)?;
        let (device, _) = vulkan(device);
        let mut ring = self.ring.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = ring.next;
        ring.next = (number + 1) % MESSAGES;
        if let Some(last) = ring.last_submissions[number].take() {
            device.wait(&last)?;
        }
        let words = inbox::message(&entries);
        device.write_control(&messages[number].buffer, 0, bytemuck::cast_slice(&words))?;
        Ok(Some(PendingMessage {
            ring,
            number,
            recording: &messages[number].recording,
        }))
    }
}

impl PendingMessage<'_> {
    pub(super) fn recording(&self) -> &Recording {
        self.recording
    }

    /// Records the submission that carries the message out.
    pub(super) fn submitted(mut self, submission: Submission) {
        let number = self.number;
        self.ring.last_submissions[number] = Some(submission);
    }
}

impl Message {
    /// A message that may write every state that the program uses.
    fn new(device: &Device, bound: &BoundCommands) -> Result<Message, Error> {
        let (vulkan, _) = vulkan(device);
        let bytes = 4 * inbox::message_words(MAX_INBOX_WORDS) as u64;
        let buffer = vulkan.allocate(MemoryClass::Control, bytes)?;
        let mut inbox = CommandList::new("inbox");
        inbox.commands = vec![deliver(device, &buffer)?];
        inbox.uses = bound
            .uses()
            .filter(|(used, _)| used.class().is_state())
            .map(|(used, _)| (used.clone(), Access::Write))
            .chain([(buffer.clone(), Access::Read)])
            .collect();
        let recording = vulkan.record(inbox)?;
        Ok(Message { buffer, recording })
    }
}

/// The command that carries out the message in `buffer`.
fn deliver(device: &Device, buffer: &Buffer) -> Result<Command, Error> {
    let (device, traits) = vulkan(device);
    let call = inbox::call(traits);
    Ok(Command::Dispatch {
        pipeline: device.pipeline(&vulkan_kernel(traits, &call.kernel, 8))?,
        groups: call.groups,
        push: buffer.address().to_le_bytes().to_vec(),
    })
}

/// Commands that write a wrong number into the first word of a step's result, and the buffer that they read.
pub(super) fn fault_commands(
    device: &Device,
    plan: &Plan,
    memory: &BlockMemory,
    step: usize,
) -> Result<(Vec<Command>, Buffer), Error> {
    const WRONG_VALUE: f32 = 12345.678;
    let (vulkan, _) = vulkan(device);
    let Some(output) = plan.steps.get(step).and_then(|step| step.written().next()) else {
        let what = format!("there is no step {step}: the plan has {} steps", plan.steps.len());
        return Err(Error::Call(what));
    };
    let range = output.range();
    let start = buffer(memory.block(range.block)).address() + range.start / 4 * 4;
    let message = vulkan.allocate(MemoryClass::Control, 4 * inbox::message_words(1) as u64)?;
    let words = inbox::message(&[(start, WRONG_VALUE.to_bits())]);
    vulkan.write_control(&message, 0, bytemuck::cast_slice(&words))?;
    let deliver = deliver(device, &message)?;
    Ok((vec![Command::Barrier, deliver, Command::Barrier], message))
}

fn vulkan(device: &Device) -> (&Arc<VulkanDevice>, &refrain_kernels::Traits) {
    match device.backend() {
        Backend::Vulkan { device, traits } => (device, traits),
        Backend::Cpu => unreachable!("the CPU executor writes states directly"),
    }
}

/// Address and value of each word; the last value wins.
fn entries(writes: &[Write]) -> Result<Vec<(u64, u32)>, Error> {
    let mut entries = BTreeMap::new();
    for write in writes {
        let start = buffer(&target_state(write)?).address() + 4 * write.at as u64;
        entries.extend((start..).step_by(4).zip(write.words.iter().copied()));
    }
    if entries.len() > MAX_INBOX_WORDS {
        let what = format!(
            "{} words exceed the maximum of {MAX_INBOX_WORDS} per write",
            entries.len()
        );
        return Err(Error::Call(what));
    }
    Ok(entries.into_iter().collect())
}
