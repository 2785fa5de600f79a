//! Tests of the runtime on a null device, which needs no driver.

use std::sync::Arc;
use std::time::Duration;

use refrain_vulkan::{
    Access, Buffer, Command, CommandList, Device, DeviceInfo, DeviceKind, Error, Fault, Feature, Kernel, MemoryClass,
    NullEvent, NullOptions, Pipeline, Queue, RecordedCommand,
};

mod faults;
mod memory;
mod submissions;
mod transfers;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const STALL_TIMEOUT: Duration = Duration::from_millis(200);

fn card() -> Arc<Device> {
    Device::null(DeviceInfo::mock("card"))
}

fn card_without_transfer_queue() -> Arc<Device> {
    let mut info = DeviceInfo::mock("card");
    info.features.remove(Feature::TransferQueue);
    Device::null(info)
}

/// Opens a card with these faults and a short stall timeout.
fn failing(faults: &[Fault]) -> Arc<Device> {
    let options = NullOptions {
        faults: faults.to_vec(),
        stall_timeout: Some(STALL_TIMEOUT),
        ..NullOptions::default()
    };
    Device::null_with(DeviceInfo::mock("card"), options)
}

fn kernel() -> Kernel {
    Kernel {
        name: "nothing".to_owned(),
        source: "#version 460\nlayout(local_size_x = 1) in;\nvoid main() {}\n".into(),
        defines: Vec::new(),
        constants: Vec::new(),
        push_bytes: 8,
        subgroup_size: None,
        full_subgroups: false,
    }
}

fn dispatch(pipeline: &Pipeline) -> Command {
    Command::Dispatch {
        pipeline: pipeline.clone(),
        groups: [1, 1, 1],
        push: vec![0; 8],
    }
}

fn list(device: &Device, name: &str, uses: &[(&Buffer, Access)]) -> CommandList {
    CommandList {
        name: name.to_owned(),
        commands: vec![dispatch(&device.pipeline(&kernel()).unwrap())],
        uses: uses
            .iter()
            .map(|(buffer, access)| ((*buffer).clone(), *access))
            .collect(),
    }
}

fn upload(device: &Device, buffer: &Buffer, bytes: u64) {
    device.upload(buffer, 0, bytes, &mut |_, part| part.fill(1)).unwrap();
}

/// Returns the events on the device while `action` runs.
fn during(device: &Device, action: impl FnOnce()) -> Vec<NullEvent> {
    let before = device.recorded().len();
    action();
    device.recorded().split_off(before)
}

fn waits(events: &[NullEvent]) -> Vec<(Queue, u64)> {
    let wait = |event: &NullEvent| match event {
        NullEvent::Wait { queue, value } => Some((*queue, *value)),
        _ => None,
    };
    events.iter().filter_map(wait).collect()
}

/// Queue, list name, and the values it waits for.
type Submit<'a> = (Queue, &'a str, &'a [(Queue, u64)]);

/// Returns the submissions in order.
fn submits(events: &[NullEvent]) -> Vec<Submit<'_>> {
    let mut found = Vec::new();
    for event in events {
        if let NullEvent::Submit { queue, list, waits, .. } = event {
            found.push((*queue, list.as_str(), &waits[..]));
        }
    }
    found
}

/// Returns source address, target address and bytes of each copy.
fn copies(events: &[NullEvent]) -> Vec<(u64, u64, u64)> {
    let commands = |event: &NullEvent| match event {
        NullEvent::Submit { commands, .. } => commands.clone(),
        _ => Vec::new(),
    };
    let copy = |command| match command {
        RecordedCommand::Copy { src, dst, bytes } => Some((src, dst, bytes)),
        _ => None,
    };
    events.iter().flat_map(commands).filter_map(copy).collect()
}
