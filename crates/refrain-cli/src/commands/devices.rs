//! `refrain devices`: lists every device, and which one is selected and why.

use clap::Args;
use refrain_vulkan::{DeviceInfo, DeviceKind, RankedDevice, rank};
use serde_json::{Value, json};

use crate::Global;
use crate::device::{CPU, Decision, DeviceTarget, ProbedDevices};
use crate::drivers::{self, Driver};
use crate::output::{self, human_bytes};

const EXAMPLES: &str = "Examples:
  refrain devices
  refrain devices --json --device cpu";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Do not try the drivers one by one if no GPU is found
    #[arg(long, hide = true)]
    as_loaded: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let probed = ProbedDevices::new();
    let decision = probed.decide(global.device.as_deref())?;
    let ranked = rank(probed.devices());
    let is_gpu = |device: &DeviceInfo| device.usable() && device.kind != DeviceKind::Software;
    // An installed driver that does not work leaves no other trace.
    let broken = if arguments.as_loaded || probed.devices().iter().any(is_gpu) {
        Vec::new()
    } else {
        drivers::all()
            .into_iter()
            .filter(|driver| driver.devices.is_err())
            .collect()
    };
    if arguments.json {
        return output::print_json(&as_json(probed.devices(), &ranked, &decision, &broken));
    }
    let broken = broken
        .iter()
        .filter_map(|driver| Some(format!("! {}\n  fix: {}\n", driver.fault()?, driver.fix())));
    let text = as_text(probed.devices(), &ranked, &decision);
    output::print(&(text + &broken.collect::<String>()))
}

fn as_text(devices: &[DeviceInfo], ranked: &[RankedDevice], decision: &Decision) -> String {
    let mut text = String::new();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    let mark = |target: DeviceTarget| if decision.target == target { '*' } else { ' ' };
    for entry in ranked.iter().filter(|entry| entry.duplicate_of.is_none()) {
        let device = &devices[entry.index];
        let (major, minor) = device.api_version;
        line(format!(
            "{} {:<4} {}",
            mark(DeviceTarget::Vulkan(entry.index)),
            entry.index,
            device.name
        ));
        line(format!(
            "       {}, {} of device memory, Vulkan {major}.{minor}, driver {} {}",
            device.kind,
            human_bytes(device.device_memory()),
            device.driver_name,
            device.driver_info,
        ));
        // The selected device is marked once, at the end.
        line(format!("       {}", entry.reason.trim_start_matches("first choice: ")));
        line(format!("       features: {}", features(device).join(", ")));
        for twin in ranked.iter().filter(|twin| twin.duplicate_of == Some(entry.index)) {
            line(format!("       device {} is {}", twin.index, twin.reason));
        }
    }
    line(format!("{} {CPU:<4} CPU executor", mark(DeviceTarget::Cpu)));
    line(format!("       {}", cpu_facts()));
    let selected = match decision.target {
        DeviceTarget::Cpu => CPU,
        DeviceTarget::Vulkan(index) => &devices[index].name,
    };
    line(format!("* selected: {selected} ({})", decision.reason));
    text
}

fn cpu_facts() -> String {
    let memory = refrain::Device::cpu().free_memory();
    let memory = memory.map_or(String::new(), |bytes| format!(", {} free", human_bytes(bytes)));
    format!("{} threads{memory}", threads())
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get())
}

fn features(device: &DeviceInfo) -> Vec<&'static str> {
    device.features.iter().map(|feature| feature.name()).collect()
}

fn as_json(devices: &[DeviceInfo], ranked: &[RankedDevice], decision: &Decision, broken: &[Driver]) -> Value {
    let entry = |entry: &RankedDevice| {
        let device = &devices[entry.index];
        json!({
            "device": entry.index,
            "name": device.name,
            "kind": device.kind.to_string(),
            "driver": format!("{} {}", device.driver_name, device.driver_info),
            "vulkan": format!("{}.{}", device.api_version.0, device.api_version.1),
            "memory_bytes": device.device_memory(),
            "usable": entry.usable,
            "same_as": entry.duplicate_of,
            "reason": entry.reason,
            "features": features(device),
        })
    };
    let chosen = match decision.target {
        DeviceTarget::Cpu => CPU.into(),
        DeviceTarget::Vulkan(index) => Value::from(index),
    };
    json!({
        "broken_drivers": broken.iter().map(|driver| json!({
            "manifest": driver.manifest.display().to_string(),
            "error": driver.devices.as_ref().err(),
            "mend": driver.fix(),
        })).collect::<Vec<_>>(),
        "devices": ranked.iter().map(entry).collect::<Vec<_>>(),
        "cpu": { "threads": threads(), "free_bytes": refrain::Device::cpu().free_memory() },
        "chosen": chosen,
        "reason": decision.reason,
    })
}
