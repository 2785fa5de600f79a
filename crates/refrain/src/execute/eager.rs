//! The eager executor: a plan's steps as command lists, submitted now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use refrain_kernels::{KernelText, Push, Traits};
use refrain_vulkan::{Access, Buffer, Command, CommandList, Device as VulkanDevice, MemoryClass, Pipeline, ShaderText};

use super::bound::{BoundCommands, buffer};
use super::executor::{Executor, Prepared, Run};
use super::pressure::Pressure;
use super::{BlockMemory, Executable, StepCommand, Write};
use crate::device::Backend;
use crate::plan::{Block, Place, Plan, Step};
use crate::storage::Storage;
use crate::{Device, Error};

/// The most dispatches in one submit.
pub(super) const MAX_DISPATCHES: usize = 4096;

/// A plan's commands with its kernels and constants, without the addresses of its memory.
pub(super) struct Commands {
    lists: Vec<OpenList>,
    /// For each step, its list and the number of commands before its end.
    ends: Vec<(usize, usize)>,
    /// Constants that commands refer to by address.
    records: Option<Buffer>,
    /// Zero between runs, which the device takes one after another: each dispatch that counts there leaves zeros. One
    /// that is cut off does not, but that happens to a lost device alone, on which nothing runs any more.
    tickets: Option<Storage>,
    pub pressure: Pressure,
}

/// Commands of one submission, addresses missing.
#[derive(Default)]
struct OpenList {
    commands: Vec<Command>,
    missing: Vec<Missing>,
    uses: Vec<(Place, Access)>,
}

/// An address to be written into a command's push constants.
struct Missing {
    command: usize,
    /// The first of its 8 bytes.
    byte: usize,
    /// What is pointed to.
    place: Place,
    /// Bytes behind that.
    offset: u64,
}

impl Commands {
    pub(super) fn new(device: &Device, plan: &Plan) -> Result<Commands, Error> {
        let Backend::Vulkan { device: vulkan, traits } = device.backend() else {
            unreachable!("commands are made for a Vulkan device")
        };
        let pipelines = compile(device, vulkan, traits, plan)?;
        let records = Records::write(vulkan, plan)?;
        let mut lists = vec![OpenList::default()];
        let (mut dispatches, mut done, mut next_record) = (0, 0, 0);
        // Tapes need one list.
        let is_tape = plan.inputs.is_empty();
        let most_work = if is_tape { u64::MAX } else { device.most_work() };
        let mut ends = vec![(0, 0); plan.steps.len()];
        for (dispatch, barrier) in plan.order.iter().zip(plan.barriers_before()) {
            let step = &plan.steps[dispatch.step];
            if dispatch.call == 0 {
                let (calls, work) = (step.calls.len(), step.multiplications());
                let is_full = dispatches + calls > MAX_DISPATCHES || work > most_work.saturating_sub(done);
                if is_full && dispatches > 0 {
                    lists.push(OpenList::default());
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
        Ok(Commands {
            lists,
            ends,
            records: records.buffer,
            tickets: tickets(device, plan.ticket_bytes)?,
            pressure: Pressure::default(),
        })
    }

    pub(super) fn tickets(&self) -> Option<&Storage> {
        self.tickets.as_ref()
    }

    /// The commands over this memory.
    pub(super) fn bound_to(&self, blocks: &BlockMemory) -> BoundCommands {
        let bound = |list: &OpenList| {
            let mut bound = CommandList::new("evaluation");
            bound.commands.clone_from(&list.commands);
            for missing in &list.missing {
                let Command::Dispatch { push, .. } = &mut bound.commands[missing.command] else {
                    unreachable!("only dispatches have push constants")
                };
                let (storage, start) = blocks.at(missing.place);
                let address = buffer(storage).address() + start + missing.offset;
                push[missing.byte..][..8].copy_from_slice(&address.to_le_bytes());
            }
            let used = |&(place, access): &(Place, Access)| (buffer(blocks.at(place).0).clone(), access);
            let records = self.records.iter().map(|buffer| (buffer.clone(), Access::Read));
            bound.uses = list.uses.iter().map(used).chain(records).collect();
            // Arguments that the host writes lie together.
            bound.uses.dedup();
            bound
        };
        BoundCommands::new(self.lists.iter().map(bound).collect())
    }

    /// A list of the plan with further commands after a step.
    pub(super) fn with(&self, mut list: CommandList, step: usize, commands: Vec<Command>) -> CommandList {
        let (_, end) = self.ends[step];
        list.commands.splice(end..end, commands);
        list
    }

    /// Dispatches of the plan in an order of the caller's.
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

    /// The lists with a region for each step, named by the step's number.
    pub(super) fn timed(&self, bound: &BoundCommands) -> Vec<CommandList> {
        let mut lists = bound.lists.clone();
        // From the last step on, so that the places of those before stay.
        for (step, &(list, _)) in self.ends.iter().enumerate().rev() {
            let before = step.checked_sub(1).map(|before| self.ends[before]);
            let start = before.filter(|before| before.0 == list).map_or(0, |before| before.1);
            let region = step.to_string();
            lists[list].commands.insert(start, Command::Timestamp { region });
        }
        lists
    }
}

/// Commands are submitted at each run, those of a tape whose runs are timed translated anew each time.
pub struct Eager;

struct Translated {
    program: Arc<Executable>,
    /// The commands with timestamps around them, where the device measures time.
    timed: Option<CommandList>,
}

impl Executor for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        let device = program.vulkan(self.name())?;
        let timed = (device.measures_time() && program.is_tape).then(|| {
            let mut list = program.bound().list()?;
            list.name = "step".to_string();
            let region = "step".to_string();
            list.commands.insert(0, Command::Timestamp { region });
            Ok::<_, Error>(list)
        });
        Ok(Box::new(Translated {
            program: program.clone(),
            timed: timed.transpose()?,
        }))
    }
}

impl Prepared for Translated {
    fn prepare_writes(&self) -> Result<(), Error> {
        self.program.inbox.prepare(&self.program)
    }

    /// A submit for each run.
    fn play(&self, before: Option<&dyn Prepared>, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let program = &self.program;
        let device = program.vulkan(Eager.name())?;
        if let Some(before) = before {
            before.play(None, &[], 1)?;
        }
        program.deliver(writes)?;
        let run = |_| match &self.timed {
            Some(list) => Ok(Run {
                submission: Some(device.submit(list)?),
                is_timed: true,
            }),
            None => {
                let pressure = &program.commands().pressure;
                let submission = program.bound().submit(device, program.device(), pressure)?;
                Ok(Run::untimed(submission))
            }
        };
        (0..runs).map(run).collect()
    }
}

/// What tells kernels of a device apart.
type Key<'k> = (u128, &'k [(u32, u32)], bool);

fn key(kernel: &KernelText) -> Key<'_> {
    (kernel.identity(), &kernel.constants, kernel.full_subgroups)
}

/// Compiles every kernel that the plan needs, those missing in parallel.
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
            .or_insert_with(|| translate(traits, &call.kernel, bytes));
    }
    let kernels: Vec<refrain_vulkan::Kernel> = wanted.values().cloned().collect();
    vulkan.prepare(&kernels, &|done, total| device.compiling(done, total))?;
    wanted
        .into_iter()
        .map(|(key, kernel)| Ok((key, vulkan.pipeline(&kernel)?)))
        .collect()
}

pub(crate) fn translate(traits: &Traits, kernel: &KernelText, push_bytes: u32) -> refrain_vulkan::Kernel {
    refrain_vulkan::Kernel {
        name: kernel.name.to_string(),
        source: ShaderText::identified(kernel.source().clone(), kernel.identity()),
        defines: vec![],
        constants: kernel.constants.to_vec(),
        push_bytes,
        subgroup_size: traits.subgroup_required.then_some(traits.subgroup_size),
        full_subgroups: kernel.full_subgroups,
    }
}

/// The constant records of a plan's calls, in one buffer.
struct Records {
    buffer: Option<Buffer>,
    /// Of each record, in the order of the calls.
    addresses: Vec<u64>,
}

impl Records {
    fn write(device: &VulkanDevice, plan: &Plan) -> Result<Records, Error> {
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
            return Ok(Records {
                buffer: None,
                addresses: vec![],
            });
        }
        // A record may be empty, but has an address.
        words.push(0);
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let buffer = device.allocate(MemoryClass::Control, bytes.len() as u64)?;
        device.write_control(&buffer, 0, bytes)?;
        let base = buffer.address();
        Ok(Records {
            addresses: offsets.iter().map(|o| base + o).collect(),
            buffer: Some(buffer),
        })
    }
}

/// Memory of counters, zeroed.
fn tickets(device: &Device, bytes: u64) -> Result<Option<Storage>, Error> {
    if bytes == 0 {
        return Ok(None);
    }
    let tickets = device.allocate(MemoryClass::Scratch, bytes)?;
    device.fill(&tickets, bytes, &mut |_, piece| piece.fill(0))?;
    Ok(Some(tickets))
}

/// All memory that the steps touch, each block (and each argument) once, and how.
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

impl OpenList {
    /// The push constants of the next command, and the addresses that they miss.
    fn push_bytes(&mut self, push: &[Push], step: &Step, record: &mut impl FnMut() -> u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        for member in push {
            match member {
                Push::Address { operand, bytes: offset } => {
                    self.missing.push(Missing {
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
