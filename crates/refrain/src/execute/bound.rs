//! A plan's commands with the addresses of its memory, and their recordings.

use std::sync::{Mutex, MutexGuard};

use refrain_vulkan::{Access, Buffer, CommandList, Device as VulkanDevice, Recording, Submission};

use super::in_flight::{InFlight, InFlightLimit};
use crate::device::Flush;
use crate::storage::{Memory, Storage};
use crate::{Device, Error};

/// Maximum number of dispatches in one submit.
pub(super) const MAX_DISPATCHES: usize = 4096;

/// A plan's commands with every address filled in.
pub(super) struct BoundCommands {
    pub lists: Vec<CommandList>,
    recording_state: Mutex<RecordingState>,
    /// The submission that last read the control block.
    last: Mutex<Option<Submission>>,
}

/// Whether command lists are recorded as Vulkan command buffers. Most programs run once. Recording costs the host a
/// microsecond per command (on an H200 0.6 ms of the 5 ms that a prompt of 32 tokens of Qwen3-8B took), so the
/// recordings of a program that runs again are kept.
enum RecordingState {
    NotRun,
    RunOnce,
    Recorded(Vec<Recording>),
}

impl RecordingState {
    /// At the second run, records the lists for this run and later ones.
    fn begin_run<'l>(
        &mut self,
        vulkan: &VulkanDevice,
        lists: impl Iterator<Item = &'l CommandList>,
    ) -> Result<(), Error> {
        match self {
            RecordingState::NotRun => *self = RecordingState::RunOnce,
            RecordingState::RunOnce | RecordingState::Recorded(_) => self.keep(vulkan, lists)?,
        }
        Ok(())
    }

    /// Records the lists for all later runs, unless that is done.
    fn keep<'l>(&mut self, vulkan: &VulkanDevice, lists: impl Iterator<Item = &'l CommandList>) -> Result<(), Error> {
        if !matches!(self, RecordingState::Recorded(_)) {
            let recordings = lists.map(|list| vulkan.record(list.clone()));
            *self = RecordingState::Recorded(recordings.collect::<Result<_, _>>()?);
        }
        Ok(())
    }
}

impl BoundCommands {
    /// The commands of the whole plan as one list.
    ///
    /// # Errors
    /// Fails if the plan has more dispatches than one submission may have.
    pub(super) fn list(&self) -> Result<CommandList, Error> {
        match &self.lists[..] {
            [list] => Ok(list.clone()),
            lists => Err(Error::Call(format!(
                "the program is too long to be recorded: {} submissions of up to {MAX_DISPATCHES} dispatches",
                lists.len()
            ))),
        }
    }

    pub(super) fn new(lists: Vec<CommandList>) -> BoundCommands {
        BoundCommands {
            lists,
            recording_state: Mutex::new(RecordingState::NotRun),
            last: Mutex::default(),
        }
    }

    /// All memory that the commands access, with the kind of access.
    pub(super) fn uses(&self) -> impl Iterator<Item = &(Buffer, Access)> + '_ {
        self.lists.iter().flat_map(|list| &list.uses)
    }

    /// Whether there are no commands.
    pub(super) fn is_empty(&self) -> bool {
        self.with_commands().next().is_none()
    }

    fn with_commands(&self) -> impl Iterator<Item = &CommandList> {
        self.lists.iter().filter(|list| !list.commands.is_empty())
    }

    /// Records the lists ahead of their first run.
    pub(super) fn translate(&self, vulkan: &VulkanDevice) -> Result<(), Error> {
        self.recording_state().keep(vulkan, self.with_commands())
    }

    fn recording_state(&self) -> MutexGuard<'_, RecordingState> {
        self.recording_state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Submits the lists, within the limit of lists in flight. Returns the last submission.
    pub(super) fn submit(
        &self,
        vulkan: &VulkanDevice,
        device: &Device,
        in_flight_limit: &InFlightLimit,
    ) -> Result<Option<Submission>, Error> {
        let mut in_flight = InFlight::new(vulkan, in_flight_limit);
        let mut last = None;
        let mut recording_state = self.recording_state();
        recording_state.begin_run(vulkan, self.with_commands())?;
        for (number, list) in self.with_commands().enumerate() {
            in_flight.wait_for_room()?;
            if last.is_some() {
                device.count_flush(Flush::SizeCap);
            }
            let submission = match &*recording_state {
                RecordingState::Recorded(recordings) => vulkan.submit_recorded(&[&recordings[number]])?[0],
                _ => vulkan.submit(list)?,
            };
            in_flight.add(submission);
            last = Some(submission);
            *self.last.lock().unwrap_or_else(|p| p.into_inner()) = last;
        }
        Ok(last)
    }

    pub(super) fn write_control(&self, device: &VulkanDevice, control: &Storage, bytes: &[u8]) -> Result<(), Error> {
        if let Some(submission) = self.last.lock().unwrap_or_else(|p| p.into_inner()).take() {
            device.wait(&submission)?;
        }
        Ok(device.write_control(buffer(control), 0, bytes)?)
    }
}

pub(super) fn buffer(storage: &Storage) -> &Buffer {
    match &storage.memory {
        Memory::Vulkan(buffer) => buffer,
        Memory::Host(_) => unreachable!("arrays of a Vulkan device are in its buffers"),
    }
}
