//! A plan's commands without the addresses of its memory.

use std::collections::{BTreeMap, HashMap};

use refrain_kernels::{KernelSource, Push, Traits};
use refrain_vulkan::{Access, Buffer, Command, CommandList, Device as VulkanDevice, MemoryClass, Pipeline};

use super::bound::{BoundCommands, MAX_DISPATCHES, buffer};
use super::in_flight::InFlightLimit;
use super::memory::BlockMemory;
use crate::device::{Backend, vulkan_kernel};
use crate::plan::{Block, Place, Plan, Step};
use crate::storage::Storage;
use crate::{Device, Error};

/// One command of a [`Stepper`](super::Stepper).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepCommand {
    /// All commands before it complete before any after it starts.
    Barrier,
    /// A dispatch.
    Call {
        /// Number of the step.
        step: usize,
        /// Which of its dispatches.
        call: usize,
    },
}

/// A plan's commands with kernels and constants, without the addresses of its memory.
pub(super) struct UnboundCommands {
    lists: Vec<UnboundList>,
    /// For each step, its list and the index in that list at which its commands end.
    ends: Vec<(usize, usize)>,
    /// Constant records, which commands refer to by address.
    records: Option<Buffer>,
    /// Counters ("tickets") that are zero between runs: each dispatch that uses one resets it. An interrupted dispatch
    /// does not, but that happens only on a lost device, on which nothing runs any more.
    tickets: Option<Storage>,
    pub in_flight_limit: InFlightLimit,
}

/// The commands of one submission, without addresses.
#[derive(Default)]
struct UnboundList {
    commands: Vec<Command>,
    patches: Vec<AddressPatch>,
    uses: Vec<(Place, Access)>,
}

/// An address that has to be written into a command's push constants.
struct AddressPatch {
    command: usize,
    /// Offset of its 8 bytes in the push constants.
    byte: usize,
    /// The memory that it points to.
    place: Place,
    /// Byte offset added to the address of `place`.
    offset: u64,
}

impl UnboundCommands {
    pub(super) fn new(device: &Device, plan: &Plan) -> Result<UnboundCommands, Error> {
        let Backend::Vulkan { device: vulkan, traits } = device.backend() else {
            unreachable!("only plans for Vulkan devices have commands")
        };
        let pipelines = compile(device, vulkan, traits, plan)?;
        let records = ConstantRecords::write(vulkan, plan)?;
        let mut lists = vec![UnboundList::default()];
        let (mut dispatches, mut done, mut next_record) = (0, 0, 0);
        // A tape is recorded as one list.
        let is_tape = plan.inputs.is_empty();
        let max_submit_work = if is_tape { u64::MAX } else { device.max_submit_work() };
        let mut ends = vec![(0, 0); plan.steps.len()];
        for (dispatch, barrier) in plan.order.iter().zip(plan.barriers_before()) {
            let step = &plan.steps[dispatch.step];
            if dispatch.call == 0 {
                let (calls, work) = (step.calls.len(), step.multiplications());
                let is_full = dispatches + calls > MAX_DISPATCHES || work > max_submit_work.saturating_sub(done);
                if is_full && dispatches > 0 {
                    lists.push(UnboundList::default());
                    (dispatches, done) = (0, 0);
                }
                (dispatches, done) = (dispatches + calls, done.saturating_add(work));
            }
            let last = lists.len() - 1;
            let list = &mut lists[last];
            if barrier && !list.commands.is_empty() {
                list.commands.push(Command::Barrier);
            }
            if let Some(call) = step.calls.get(dispatch.call) {
                let mut record = || {
                    next_record += 1;
                    records.addresses[next_record - 1]
                };
                let push = list.push_bytes(&call.push, step, &mut record);
                list.commands.push(Command::Dispatch {
                    pipeline: pipelines[&key(&call.kernel)].clone(),
                    groups: call.groups,
                    push,
                });
            }
            ends[dispatch.step] = (last, list.commands.len());
        }
        for (number, list) in lists.iter_mut().enumerate() {
            let its_own = |(_, (its, _)): &(&Step, &(usize, usize))| *its == number;
            let steps = plan.steps.iter().zip(&ends).filter(its_own).map(|(step, _)| step);
            list.uses = uses(steps);
        }
        Ok(UnboundCommands {
            lists,
            ends,
            records: records.buffer,
            tickets: tickets(device, plan.ticket_bytes)?,
            in_flight_limit: InFlightLimit::default(),
        })
    }

    pub(super) fn tickets(&self) -> Option<&Storage> {
        self.tickets.as_ref()
    }

    /// The commands with the addresses of this memory.
    pub(super) fn bind(&self, blocks: &BlockMemory) -> BoundCommands {
        let bound = |list: &UnboundList| {
            let mut bound = CommandList::new("evaluation");
            bound.commands.clone_from(&list.commands);
            for patches in &list.patches {
                let Command::Dispatch { push, .. } = &mut bound.commands[patches.command] else {
                    unreachable!("only dispatches have push constants")
                };
                let (storage, start) = blocks.resolve(patches.place);
                let address = buffer(storage).address() + start + patches.offset;
                push[patches.byte..][..8].copy_from_slice(&address.to_le_bytes());
            }
            let used = |&(place, access): &(Place, Access)| (buffer(blocks.resolve(place).0).clone(), access);
            let records = self.records.iter().map(|buffer| (buffer.clone(), Access::Read));
            bound.uses = list.uses.iter().map(used).chain(records).collect();
            // Arguments in the control block share one buffer.
            bound.uses.dedup();
            bound
        };
        BoundCommands::new(self.lists.iter().map(bound).collect())
    }

    /// A list of the plan with further commands inserted after a step.
    pub(super) fn with(&self, mut list: CommandList, step: usize, commands: Vec<Command>) -> CommandList {
        let (_, end) = self.ends[step];
        list.commands.splice(end..end, commands);
        list
    }

    /// Dispatches of the plan and barriers in the given order.
    pub(super) fn parts(&self, recorded: &BoundCommands, parts: &[StepCommand]) -> CommandList {
        let dispatch = |step: usize, call: usize| {
            let (list, end) = self.ends[step];
            let before = step.checked_sub(1).map(|before| self.ends[before]);
            let start = before.filter(|before| before.0 == list).map_or(0, |before| before.1);
            let commands = recorded.lists[list].commands[start..end].iter();
            let mut dispatches = commands.filter(|command| matches!(command, Command::Dispatch { .. }));
            dispatches.nth(call).expect("the plan has such a dispatch").clone()
        };
        let mut steps = CommandList::new("steps");
        steps.uses = recorded
            .lists
            .iter()
            .flat_map(|list| list.uses.iter().cloned())
            .collect();
        let commands = parts.iter().map(|part| match *part {
            StepCommand::Barrier => Command::Barrier,
            StepCommand::Call { step, call } => dispatch(step, call),
        });
        steps.commands = commands.collect();
        steps
    }

    /// The lists with a timestamp region for each step, named by the step's number.
    pub(super) fn timed(&self, bound: &BoundCommands) -> Vec<CommandList> {
        let mut lists = bound.lists.clone();
        // From the last step backwards, so that earlier indices stay valid.
        for (step, &(list, _)) in self.ends.iter().enumerate().rev() {
            let before = step.checked_sub(1).map(|before| self.ends[before]);
            let start = before.filter(|before| before.0 == list).map_or(0, |before| before.1);
            let region = step.to_string();
            lists[list].commands.insert(start, Command::Timestamp { region });
        }
        lists
    }
}

/// Identity of a kernel on a device: source, constants, full subgroups.
type Key<'k> = (u128, &'k [(u32, u32)], bool);

fn key(kernel: &KernelSource) -> Key<'_> {
    (kernel.identity(), &kernel.constants, kernel.full_subgroups)
}

/// Compiles the kernels that the plan needs, in parallel.
fn compile<'p>(
    device: &Device,
    vulkan: &VulkanDevice,
    traits: &Traits,
    plan: &'p Plan,
) -> Result<HashMap<Key<'p>, Pipeline>, Error> {
    let mut wanted: HashMap<_, refrain_vulkan::Kernel> = HashMap::new();
    for call in plan.steps.iter().flat_map(|s| &s.calls) {
        let bytes = call.push.iter().map(Push::size).sum();
        wanted
            .entry(key(&call.kernel))
            .or_insert_with(|| vulkan_kernel(traits, &call.kernel, bytes));
    }
    let kernels: Vec<refrain_vulkan::Kernel> = wanted.values().cloned().collect();
    vulkan.prepare(&kernels, &|done, total| device.report_compile_progress(done, total))?;
    wanted
        .into_iter()
        .map(|(key, kernel)| Ok((key, vulkan.pipeline(&kernel)?)))
        .collect()
}

/// The constant records of a plan's calls, in one buffer.
struct ConstantRecords {
    buffer: Option<Buffer>,
    /// The address of each record, in call order.
    addresses: Vec<u64>,
}

impl ConstantRecords {
    fn write(device: &VulkanDevice, plan: &Plan) -> Result<ConstantRecords, Error> {
        let mut words: Vec<u32> = Vec::new();
        let mut offsets = Vec::new();
        for push in plan.steps.iter().flat_map(|s| &s.calls).flat_map(|c| &c.push) {
            if let Push::Record(record) = push {
                words.resize(words.len().next_multiple_of(4), 0);
                offsets.push(words.len() as u64 * 4);
                words.extend(record);
            }
        }
        if offsets.is_empty() {
            return Ok(ConstantRecords {
                buffer: None,
                addresses: vec![],
            });
        }
        // Even an empty record needs an address within the buffer.
        words.push(0);
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let buffer = device.allocate(MemoryClass::Control, bytes.len() as u64)?;
        device.write_control(&buffer, 0, bytes)?;
        let base = buffer.address();
        Ok(ConstantRecords {
            addresses: offsets.iter().map(|o| base + o).collect(),
            buffer: Some(buffer),
        })
    }
}

/// Zeroed memory for counters.
fn tickets(device: &Device, bytes: u64) -> Result<Option<Storage>, Error> {
    if bytes == 0 {
        return Ok(None);
    }
    let tickets = device.allocate(MemoryClass::Scratch, bytes)?;
    device.fill(&tickets, bytes, &mut |_, piece| piece.fill(0))?;
    Ok(Some(tickets))
}

/// All memory that the steps access, each block (and each argument) once, with the kind of access.
fn uses<'p>(steps: impl Iterator<Item = &'p Step>) -> Vec<(Place, Access)> {
    let mut found: BTreeMap<(Block, u64), Access> = BTreeMap::new();
    for step in steps {
        let written = step.written().map(|operand| (operand.place, Access::Write));
        let read = step.inputs.iter().map(|operand| (operand.place, Access::Read));
        for (place, access) in written.chain(read) {
            let offset = if place.block == Block::Control { place.offset } else { 0 };
            let strongest = found.entry((place.block, offset)).or_insert(access);
            if access == Access::Write {
                *strongest = access;
            }
        }
    }
    let place = |((block, offset), access)| (Place { block, offset }, access);
    found.into_iter().map(place).collect()
}

impl UnboundList {
    /// The push constants of the next command; the addresses in them are patched later.
    fn push_bytes(&mut self, push: &[Push], step: &Step, record: &mut impl FnMut() -> u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        for member in push {
            match member {
                Push::Address { operand, bytes: offset } => {
                    self.patches.push(AddressPatch {
                        command: self.commands.len(),
                        byte: bytes.len(),
                        place: step.operand(*operand).place,
                        offset: *offset,
                    });
                    bytes.extend([0; 8]);
                }
                Push::Record(_) => bytes.extend(record().to_le_bytes()),
                Push::U32(value) => bytes.extend(value.to_le_bytes()),
                Push::F32(value) => bytes.extend(value.to_le_bytes()),
            }
        }
        bytes
    }
}
