//! A plan's commands over memory: the lists, and how far a driver has them.

use std::sync::{Mutex, MutexGuard};

use refrain_vulkan::{Access, Buffer, CommandList, Device as VulkanDevice, Recording, Submission};

use super::eager::MAX_DISPATCHES;
use super::pressure::{Pressure, UnderWay};
use crate::device::Flush;
use crate::storage::{Memory, Storage};
use crate::{Device, Error};

/// A plan's commands with every address filled in.
pub(super) struct BoundCommands {
    pub lists: Vec<CommandList>,
    translation: Mutex<Translation>,
    /// Whichever submit last read the control block.
    last: Mutex<Option<Submission>>,
}

/// How far lists are towards what a driver takes. Most are submitted once. Translating one costs the host a microsecond
/// a command (on an H200 0.6 ms of the 5 that a prompt of 32 tokens of Qwen3-8B took), so that what comes again is kept.
enum Translation {
    Never,
    Once,
    Kept(Vec<Recording>),
}

impl Translation {
    /// At the second run, translates lists for it and those to come.
    fn begin_run<'l>(
        &mut self,
        vulkan: &VulkanDevice,
        lists: impl Iterator<Item = &'l CommandList>,
    ) -> Result<(), Error> {
        match self {
            Translation::Never => *self = Translation::Once,
            Translation::Once | Translation::Kept(_) => self.keep(vulkan, lists)?,
        }
        Ok(())
    }

    /// Translates lists for all runs to come, if that was not done.
    fn keep<'l>(&mut self, vulkan: &VulkanDevice, lists: impl Iterator<Item = &'l CommandList>) -> Result<(), Error> {
        if !matches!(self, Translation::Kept(_)) {
            let recordings = lists.map(|list| vulkan.record(list.clone()));
            *self = Translation::Kept(recordings.collect::<Result<_, _>>()?);
        }
        Ok(())
    }
}

impl BoundCommands {
    /// The commands of the whole plan as one list.
    ///
    /// # Errors
    /// More dispatches than one submission may have.
    pub(super) fn list(&self) -> Result<CommandList, Error> {
        match &self.lists[..] {
            [list] => Ok(list.clone()),
            lists => Err(Error::Call(format!(
                "{} submissions of {MAX_DISPATCHES} dispatches are too long to be recorded as one",
                lists.len()
            ))),
        }
    }

    pub(super) fn new(lists: Vec<CommandList>) -> BoundCommands {
        BoundCommands {
            lists,
            translation: Mutex::new(Translation::Never),
            last: Mutex::default(),
        }
    }

    /// All memory that the commands touch, and how.
    pub(super) fn uses(&self) -> impl Iterator<Item = &(Buffer, Access)> + '_ {
        self.lists.iter().flat_map(|list| &list.uses)
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.with_commands().next().is_none()
    }

    fn with_commands(&self) -> impl Iterator<Item = &CommandList> {
        self.lists.iter().filter(|list| !list.commands.is_empty())
    }

    /// Translates the lists before their first run.
    pub(super) fn translate(&self, vulkan: &VulkanDevice) -> Result<(), Error> {
        self.translation().keep(vulkan, self.with_commands())
    }

    fn translation(&self) -> MutexGuard<'_, Translation> {
        self.translation.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Submits the lists, no more at once than others can wait for; the last submission.
    pub(super) fn submit(
        &self,
        vulkan: &VulkanDevice,
        device: &Device,
        pressure: &Pressure,
    ) -> Result<Option<Submission>, Error> {
        let mut under_way = UnderWay::new(vulkan, pressure);
        let mut last = None;
        let mut translation = self.translation();
        translation.begin_run(vulkan, self.with_commands())?;
        for (number, list) in self.with_commands().enumerate() {
            under_way.make_room()?;
            if last.is_some() {
                device.count_flush(Flush::SizeCap);
            }
            let submission = match &*translation {
                Translation::Kept(recordings) => vulkan.submit_recorded(&[&recordings[number]])?[0],
                _ => vulkan.submit(list)?,
            };
            under_way.add(submission);
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
        Memory::Host(_) => unreachable!("a storage stays with the device that made it"),
    }
}
