//! The replay executor: a plan's commands recorded once, and submitted as often as wanted.

use std::sync::{Arc, Mutex, OnceLock};

use refrain_kernels::inbox;
use refrain_vulkan::{
    Access, Buffer, Command, CommandList, Device as VulkanDevice, MemoryClass, Recording, Submission,
};

use super::{Executable, eager};
use crate::device::{Backend, Flush};
use crate::storage::{Memory, Storage};
use crate::{Array, Error};

/// The most words that one submit puts into states.
pub const MOST_WORDS: usize = 4096;
/// Messages that may wait for the device at once.
const MESSAGES: usize = 4;
/// Recordings of which one is timed in each submit, where runs are timed: more than there are submits in
/// flight, since a run's timestamps are overwritten by the next run of the same recording.
const TIMED_COPIES: usize = 8;

/// How a tape runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TapeMode {
    /// Commands are translated anew and submitted at each run.
    Eager,
    /// Commands are translated once; one submit may run them many times.
    Replay,
}

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

/// A traced function without arguments, ready to run again and again: all that it reads and changes are
/// weights and states. The host changes states only by [`Write`]s, which the device carries out between
/// runs; nothing waits for that.
pub struct Tape {
    executable: Arc<Executable>,
    mode: TapeMode,
    recorded: Option<Recorded>,
}

/// One run of a tape, to be waited for.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    submission: Option<Submission>,
    is_timed: bool,
}

impl Run {
    /// Whether [`Tape::device_time`] will tell how long it took.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }
}

struct Recorded {
    /// The commands, once translated.
    plain: Option<Recording>,
    /// The same with timestamps around them, where the device measures time.
    timed: Vec<Recording>,
    list: CommandList,
    place: Mutex<RingPlace>,
    /// Made for the first write: most tapes have none.
    messages: OnceLock<Vec<Message>>,
}

/// Which timed recording and which message come next, and what last used them.
struct RingPlace {
    timed: usize,
    message: usize,
    timings: Vec<Option<Submission>>,
    messages: Vec<Option<Submission>>,
}

struct Message {
    buffer: Buffer,
    recording: Recording,
}

impl Tape {
    /// `fault`: a step after which a wrong number is put into its result, to see that it is found.
    pub(crate) fn new(executable: Arc<Executable>, mode: TapeMode, fault: Option<usize>) -> Result<Tape, Error> {
        let plan = executable.plan();
        if let Some(input) = plan.inputs.first() {
            return Err(Error::UnboundInput {
                name: input.name.clone(),
            });
        }
        let recorded = match (&executable.recorded, executable.device.backend()) {
            (Some(recorded), Backend::Vulkan { device, .. }) => {
                let mut list = recorded.list()?;
                if let Some(step) = fault {
                    let commands = fault_at(device, &executable, step)?;
                    list = executable.commands().with(list, step, commands);
                }
                Some(Recorded::new(device, list, mode)?)
            }
            _ => None,
        };
        Ok(Tape {
            executable,
            mode,
            recorded,
        })
    }

    /// How it runs.
    pub fn mode(&self) -> TapeMode {
        self.mode
    }

    /// Makes what writes need, so that the first does not wait for it.
    ///
    /// # Errors
    /// Too little memory, a failing device.
    pub fn prepare_writes(&self) -> Result<(), Error> {
        match (&self.recorded, self.executable.device.as_vulkan()) {
            (Some(recorded), Some(device)) => recorded.prepare_writes(device, &self.executable),
            _ => Ok(()),
        }
    }

    /// Carries out `writes`, then runs the function `runs` times; returns once that is submitted (on the
    /// CPU executor: done). In replay all of it is one submit. Of several writes to one word the last
    /// counts.
    ///
    /// # Errors
    /// More than [`MOST_WORDS`] words, words outside of a state, a failing device.
    pub fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        self.play_after(None, writes, runs)
    }

    /// [`Tape::play`] behind one run of another tape of the same mode, in the same submit.
    ///
    /// # Errors
    /// As [`Tape::play`].
    pub fn play_after(&self, before: Option<&Tape>, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let played = match (&self.recorded, self.executable.device.backend()) {
            (Some(recorded), Backend::Vulkan { device, .. }) => {
                let entries = entries(writes)?;
                if !entries.is_empty() {
                    recorded.prepare_writes(device, &self.executable)?;
                }
                self.executable.device.count_flush(Flush::Requested);
                match self.mode {
                    TapeMode::Replay => {
                        let before = before.and_then(|tape| tape.recorded.as_ref());
                        recorded.replay(device, before, &entries, runs)
                    }
                    TapeMode::Eager => {
                        if let Some(before) = before {
                            before.play(&[], 1)?;
                        }
                        recorded.run_now(device, &entries, runs)
                    }
                }
            }
            _ => {
                if let Some(before) = before {
                    before.play(&[], 1)?;
                }
                for write in writes {
                    let bytes: &[u8] = bytemuck::cast_slice(&write.words);
                    let storage = state_of(write)?;
                    self.executable.device.write(&storage, 4 * write.at as u64, bytes)?;
                }
                (0..runs)
                    .map(|_| self.executable.run(Flush::Requested).map(|()| untimed(None)))
                    .collect()
            }
        }?;
        self.executable.mark_run();
        Ok(played)
    }

    /// Blocks until a run is over.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn wait(&self, run: &Run) -> Result<(), Error> {
        if let (Some(submission), Some(device)) = (&run.submission, self.executable.device.as_vulkan()) {
            device.wait(submission)?;
        }
        Ok(())
    }

    /// Whether a run is over.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn is_done(&self, run: &Run) -> Result<bool, Error> {
        match (&run.submission, self.executable.device.as_vulkan()) {
            (Some(submission), Some(device)) => Ok(device.is_done(submission)?),
            _ => Ok(true),
        }
    }

    /// Whether a run is over as far as was seen the last time that the device was asked, for any run.
    pub fn is_known_done(&self, run: &Run) -> bool {
        match (&run.submission, self.executable.device.as_vulkan()) {
            (Some(submission), Some(device)) => device.is_known_done(submission),
            _ => true,
        }
    }

    /// Microseconds that a run took on the device, once it is over and if it was timed: where the device
    /// measures time, every run in eager mode, the first of each submit in replay. Given once.
    pub fn device_time(&self, run: &Run) -> Option<f64> {
        let device = self.executable.device.as_vulkan()?;
        let timings = device.timings(&run.submission?);
        (!timings.is_empty()).then(|| timings.iter().map(|(_, us)| us).sum())
    }
}

impl Recorded {
    fn new(device: &Arc<VulkanDevice>, mut list: CommandList, mode: TapeMode) -> Result<Recorded, Error> {
        let region = Command::Timestamp {
            region: "step".to_string(),
        };
        list.name = "step".to_string();
        let plain = match mode {
            TapeMode::Eager => None,
            TapeMode::Replay => Some(device.record(list.clone())?),
        };
        list.commands.insert(0, region);
        let copies = match mode {
            TapeMode::Replay if device.measures_time() => TIMED_COPIES,
            _ => 0,
        };
        Ok(Recorded {
            plain,
            timed: device.record_copies(list.clone(), copies)?,
            list,
            place: Mutex::new(RingPlace {
                timed: 0,
                message: 0,
                timings: vec![None; copies],
                messages: vec![None; MESSAGES],
            }),
            messages: OnceLock::new(),
        })
    }

    /// Memory for messages and the commands that deliver them, unless they are there.
    fn prepare_writes(&self, device: &Arc<VulkanDevice>, executable: &Executable) -> Result<(), Error> {
        if self.messages.get().is_none() {
            let messages = (0..MESSAGES).map(|_| Message::new(device, executable, &self.list));
            // Of two threads that come to this at once, one keeps its own.
            let _ = self.messages.set(messages.collect::<Result<_, _>>()?);
        }
        Ok(())
    }

    fn message(&self, number: usize) -> &Message {
        &self.messages.get().expect("prepared before the first write")[number]
    }

    /// Everything by one submit.
    fn replay(
        &self,
        device: &VulkanDevice,
        before: Option<&Recorded>,
        entries: &[(u64, u32)],
        runs: usize,
    ) -> Result<Vec<Run>, Error> {
        let mut place = self.place.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut batches = Vec::with_capacity(runs + 2);
        batches.extend(before.and_then(|before| before.plain.as_ref()));
        let message = match entries.is_empty() {
            true => None,
            false => Some(self.write(device, &mut place, entries)?),
        };
        batches.extend(message.map(|number| &self.message(number).recording));
        let timed = place.timed;
        if let Some(last) = place.timings.get_mut(timed).and_then(Option::take) {
            device.wait(&last)?;
        }
        let first = self.timed.get(timed).or(self.plain.as_ref());
        let others = std::iter::repeat_n(self.plain.as_ref(), runs.saturating_sub(1));
        batches.extend(std::iter::once(first).chain(others).take(runs).flatten());
        if batches.is_empty() {
            return Ok(vec![]);
        }
        let submissions = device.submit_recorded(&batches)?;
        let (leading, submissions) = submissions.split_at(submissions.len() - runs);
        if let (Some(number), Some(written)) = (message, leading.last()) {
            place.messages[number] = Some(*written);
        }
        let mut played: Vec<Run> = submissions.iter().map(|&s| untimed(Some(s))).collect();
        if let (Some(first), Some(timing)) = (played.first_mut(), place.timings.get_mut(timed)) {
            first.is_timed = true;
            *timing = first.submission;
            place.timed = (timed + 1) % self.timed.len();
        }
        Ok(played)
    }

    /// Everything translated anew, a submit for each run.
    fn run_now(&self, device: &VulkanDevice, entries: &[(u64, u32)], runs: usize) -> Result<Vec<Run>, Error> {
        if !entries.is_empty() {
            let mut place = self.place.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let number = self.write(device, &mut place, entries)?;
            let submissions = device.submit_recorded(&[&self.message(number).recording])?;
            place.messages[number] = submissions.first().copied();
        }
        (0..runs)
            .map(|_| {
                Ok(Run {
                    submission: Some(device.submit(&self.list)?),
                    is_timed: device.measures_time(),
                })
            })
            .collect()
    }

    /// Writes the next message, whose last reader is done; its number.
    fn write(&self, device: &VulkanDevice, place: &mut RingPlace, entries: &[(u64, u32)]) -> Result<usize, Error> {
        let number = place.message;
        place.message = (number + 1) % MESSAGES;
        if let Some(last) = place.messages[number].take() {
            device.wait(&last)?;
        }
        let words = inbox::message(entries);
        device.write_control(&self.message(number).buffer, 0, bytemuck::cast_slice(&words))?;
        Ok(number)
    }
}

impl Message {
    /// A message that may write whatever the tape's own commands write.
    fn new(device: &Arc<VulkanDevice>, executable: &Executable, list: &CommandList) -> Result<Message, Error> {
        let bytes = 4 * inbox::message_words(MOST_WORDS) as u64;
        let buffer = device.allocate(MemoryClass::Control, bytes)?;
        let mut inbox = CommandList::new("inbox");
        inbox.commands = vec![deliver(device, executable, &buffer)?];
        inbox.uses = list
            .uses
            .iter()
            .filter(|(used, _)| used.class().is_state())
            .map(|(used, _)| (used.clone(), Access::Write))
            .chain([(buffer.clone(), Access::Read)])
            .collect();
        let recording = device.record(inbox)?;
        Ok(Message { buffer, recording })
    }
}

/// The command that carries out the message in `buffer`.
fn deliver(device: &Arc<VulkanDevice>, executable: &Executable, buffer: &Buffer) -> Result<Command, Error> {
    let Backend::Vulkan { traits, .. } = executable.device.backend() else {
        unreachable!("a tape is recorded for a Vulkan device")
    };
    let call = inbox::call(traits);
    Ok(Command::Dispatch {
        pipeline: device.pipeline(&eager::translate(traits, &call.kernel, 8))?,
        groups: call.groups,
        push: buffer.address().to_le_bytes().to_vec(),
    })
}

/// Commands that put a wrong number into the first word of a step's result.
fn fault_at(device: &Arc<VulkanDevice>, executable: &Executable, step: usize) -> Result<Vec<Command>, Error> {
    const WRONG: f32 = 12345.678;
    let plan = executable.plan();
    let Some(output) = plan.steps.get(step).and_then(|step| step.written().next()) else {
        let what = format!("there is no step {step}: the plan has {} steps", plan.steps.len());
        return Err(Error::Call(what));
    };
    let range = output.range();
    let start = buffer_of(executable.storage(range.block)).address() + range.start / 4 * 4;
    let message = device.allocate(MemoryClass::Control, 4 * inbox::message_words(1) as u64)?;
    let words = inbox::message(&[(start, WRONG.to_bits())]);
    device.write_control(&message, 0, bytemuck::cast_slice(&words))?;
    let deliver = deliver(device, executable, &message)?;
    executable.keep(message);
    Ok(vec![Command::Barrier, deliver, Command::Barrier])
}

fn untimed(submission: Option<Submission>) -> Run {
    Run {
        submission,
        is_timed: false,
    }
}

fn buffer_of(storage: &Storage) -> &Buffer {
    match &storage.memory {
        Memory::Vulkan(buffer) => buffer,
        Memory::Host(_) => unreachable!("a storage stays with the device that made it"),
    }
}

/// The state's memory, if the words lie within it.
fn state_of(write: &Write) -> Result<Storage, Error> {
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
    let mut entries = std::collections::BTreeMap::new();
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
