//! Formats the report as text and as JSON.

use refrain_vulkan::MemoryClass;
use serde_json::{Value, json};

use super::features::missing;
use super::problems::{Problem, on_cpu};
use super::{ModelFit, OpenedDevice, SystemReport};
use crate::hub::MissingFiles;
use crate::output::{about_rate, human_bytes, json_f32};
use crate::{device, fit, version};

/// The report as text, with subjects in the left column.
pub(super) fn text(report: &SystemReport, problems: &[Problem]) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let mut section = |name: &'static str, entries: Vec<String>| {
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        lines.extend(names.zip(entries));
    };
    section("Vulkan", vec![loader(report)]);
    section("drivers", drivers(report));
    section("devices", devices(report));
    if let Some(Ok(opened)) = &report.opened {
        section("device", vec![device::describe(&opened.device)]);
        section("features", features(report, opened));
        section("memory", memory(opened));
        section("limits", limits(opened));
        section("self-test", self_test(opened));
    }
    section("caches", caches(report));
    if let Some(model_fit) = &report.model {
        section("model", model(model_fit));
    }
    let mut text: String = lines
        .iter()
        .map(|(name, entry)| format!("{name:<10} {entry}\n"))
        .collect();
    for problem in problems {
        let severity = if problem.is_error { "error" } else { "warning" };
        text.push_str(&format!("\n{severity}: {}\n  fix: {}\n", problem.what, problem.fix));
    }
    if problems.is_empty() {
        text.push_str("\nno problems found\n");
    }
    text
}

/// The report as Markdown to paste into an issue, with the version and the build.
pub(super) fn markdown(report: &SystemReport, problems: &[Problem]) -> String {
    format!(
        "```text\nrefrain {}\n\n{}```\n",
        version::long(),
        text(report, problems)
    )
}

fn loader(report: &SystemReport) -> String {
    match &report.loader {
        Ok(version) => {
            let path = report
                .library
                .as_ref()
                .map_or(String::new(), |path| format!(", {path}"));
            format!("loader {version}{path}")
        }
        Err(error) => error.to_string(),
    }
}

fn drivers(report: &SystemReport) -> Vec<String> {
    let line = |driver: &super::Driver| {
        let status = match &driver.devices {
            Ok(devices) if devices.is_empty() => "works, but has no device on this machine".to_owned(),
            Ok(devices) => devices.join(", "),
            Err(fault) => format!("does not work: {fault}"),
        };
        format!("{}: {status}", driver.manifest.display())
    };
    if report.drivers.is_empty() {
        vec!["none installed".to_owned()]
    } else {
        report.drivers.iter().map(line).collect()
    }
}

fn devices(report: &SystemReport) -> Vec<String> {
    let line = |(index, device): (usize, &refrain_vulkan::DeviceInfo)| {
        let (major, minor) = device.api_version;
        let usable = if device.usable() {
            String::new()
        } else {
            format!("; cannot be used: {}", device.missing.join(", "))
        };
        format!(
            "{index} {}, {}, Vulkan {major}.{minor}{usable}",
            device.name, device.kind
        )
    };
    let mut lines: Vec<String> = report.devices.iter().enumerate().map(line).collect();
    lines.push(match &report.decision {
        Ok(decision) if on_cpu(report) => format!("selected: the CPU executor ({})", decision.reason),
        Ok(decision) => {
            let name = report.selected().map_or("", |device| &device.name);
            format!("selected: {name} ({})", decision.reason)
        }
        Err(error) => format!("selected: none, {error}"),
    });
    lines
}

fn features(report: &SystemReport, opened: &OpenedDevice) -> Vec<String> {
    let Some(vulkan) = opened.device.as_vulkan() else {
        return Vec::new();
    };
    let mut lines = vec![
        "all required features are supported".to_owned(),
        format!("optional: {}", vulkan.features()),
    ];
    let missing = missing(report);
    lines.extend(
        missing
            .iter()
            .map(|(feature, cost)| format!("missing {feature}: {cost}")),
    );
    lines
}

/// What a memory heap is used for, by the memory class measured in it.
fn purpose(class: MemoryClass) -> &'static str {
    match class {
        MemoryClass::Control => "shared by host and device",
        MemoryClass::Staging => "staging for uploads",
        _ => "weights, KV cache and scratch",
    }
}

fn memory(opened: &OpenedDevice) -> Vec<String> {
    let speed = |index: usize| {
        let mut known = opened.speeds.iter().filter_map(|(_, speed)| speed.as_ref().ok());
        known.find(|speed| speed.heap == index)
    };
    let line = |(index, heap): (usize, &refrain_vulkan::Heap)| {
        let usage = match speed(index) {
            Some(speed) => format!(
                "kernels read {} at about {} GB/s; used for {}",
                human_bytes(speed.bytes),
                about_rate(speed.bytes_per_second / 1e9),
                purpose(speed.class)
            ),
            None => "not used".to_owned(),
        };
        format!("{}, {} free: {usage}", heap.describe(index), human_bytes(heap.free()))
    };
    let mut lines: Vec<String> = opened.heaps.iter().enumerate().map(line).collect();
    if opened.device.is_cpu() {
        let free = opened.capacity.free.map_or("unknown".to_owned(), human_bytes);
        let rate = about_rate(opened.capacity.bandwidth / 1e9);
        lines.push(format!("{free} free, read bandwidth about {rate} GB/s"));
    } else {
        let micros = 1e6 * opened.capacity.step_seconds;
        lines.push(format!("latency of dependent kernels: {micros:.1} µs"));
    }
    lines
}

fn limits(opened: &OpenedDevice) -> Vec<String> {
    let Some(vulkan) = opened.device.as_vulkan() else {
        return Vec::new();
    };
    let limits = &vulkan.info().limits;
    let subgroups = if limits.min_subgroup_size == limits.max_subgroup_size {
        limits.subgroup_size.to_string()
    } else {
        format!(
            "{} ({} to {})",
            limits.subgroup_size, limits.min_subgroup_size, limits.max_subgroup_size
        )
    };
    vec![
        format!(
            "subgroup size {subgroups}, workgroup size up to {}, {} shared memory",
            limits.max_workgroup_invocations,
            human_bytes(limits.shared_memory_bytes.into())
        ),
        format!("largest buffer {}", human_bytes(limits.max_allocation_bytes)),
    ]
}

fn self_test(opened: &OpenedDevice) -> Vec<String> {
    if opened.device.is_cpu() {
        return vec!["skipped: the CPU executor is the reference for kernels".to_owned()];
    }
    let line = |verdict: &refrain::self_test::FamilyVerdict| match &verdict.fault {
        Some(fault) => format!("{}: WRONG: {fault}", verdict.family),
        None => format!(
            "{}: {} results correct, largest error {:.0} % of the tolerance",
            verdict.family,
            verdict.compared,
            100.0 * verdict.worst
        ),
    };
    opened.verdicts.iter().map(line).collect()
}

fn caches(report: &SystemReport) -> Vec<String> {
    let line = |cache: &super::CacheFolder| {
        let place = cache
            .path
            .as_ref()
            .map_or("no directory".into(), |path| path.display().to_string());
        let state = if cache.fault.is_some() { ", not writable" } else { "" };
        let (files, bytes) = (cache.files, human_bytes(cache.bytes));
        format!("{}: {place}, {files} files, {bytes}{state}", cache.what)
    };
    report.caches.iter().map(line).collect()
}

fn download(download: &MissingFiles) -> String {
    let MissingFiles {
        bytes,
        from,
        free_space,
    } = download;
    let room = match free_space {
        Some(free) => format!(" ({} free on the cache's disk)", human_bytes(*free)),
        None => String::new(),
    };
    format!("{} to download from {from}{room}", human_bytes(*bytes))
}

fn model(model_fit: &ModelFit) -> Vec<String> {
    let ModelFit {
        name,
        download: missing,
        fit,
        context,
    } = model_fit;
    let empty = about_rate(fit.expected(0));
    let mut lines = vec![name.clone()];
    lines.extend(missing.as_ref().map(download));
    lines.extend([
        format!(
            "needs {}: {} of weights, {} for a context of {context} tokens",
            human_bytes(fit.bytes(*context)),
            human_bytes(fit.requirements.weights),
            human_bytes(fit.bytes(*context) - fit.requirements.weights)
        ),
        fit::room(fit),
        format!(
            "reads per token: {} with an empty context, {} at {context} tokens",
            human_bytes(fit.read_per_token(0)),
            human_bytes(fit.read_per_token(*context))
        ),
        format!(
            "up to about {empty} tokens/s with an empty context; {}",
            fit::speed(fit, *context)
        ),
    ]);
    lines
}

/// The report as JSON.
pub(super) fn json(report: &SystemReport, problems: &[Problem]) -> Value {
    let driver = |driver: &super::Driver| {
        json!({
            "manifest": driver.manifest.display().to_string(),
            "devices": driver.devices.as_ref().ok(),
            "error": driver.devices.as_ref().err(),
        })
    };
    let cache = |cache: &super::CacheFolder| {
        json!({
            "what": cache.what,
            "path": cache.path.as_ref().map(|path| path.display().to_string()),
            "files": cache.files,
            "bytes": cache.bytes,
            "error": cache.fault,
        })
    };
    let problem = |problem: &Problem| json!({ "broken": problem.is_error, "what": problem.what, "mend": problem.fix });
    json!({
        "loader": {
            "version": report.loader.as_ref().ok().map(ToString::to_string),
            "error": report.loader.as_ref().err().map(ToString::to_string),
        },
        "drivers": report.drivers.iter().map(driver).collect::<Vec<_>>(),
        "devices": report.devices.iter().map(|device| &device.name).collect::<Vec<_>>(),
        "device": match &report.opened {
            Some(Ok(opened)) => device_json(report, opened),
            _ => Value::Null,
        },
        "caches": report.caches.iter().map(cache).collect::<Vec<_>>(),
        "model": report.model.as_ref().map(model_json),
        "findings": problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

fn device_json(report: &SystemReport, opened: &OpenedDevice) -> Value {
    let vulkan = opened.device.as_vulkan();
    let info = vulkan.map(|vulkan| vulkan.info());
    let heap = |(index, heap): (usize, &refrain_vulkan::Heap)| {
        let mut speeds = opened.speeds.iter().filter_map(|(_, speed)| speed.as_ref().ok());
        json!({
            "bytes": heap.size,
            "free_bytes": heap.free(),
            "device_local": heap.device_local,
            "read_gb_per_s": speeds.find(|speed| speed.heap == index).map(|speed| speed.bytes_per_second / 1e9),
        })
    };
    let verdict = |verdict: &refrain::self_test::FamilyVerdict| {
        json!({
            "family": verdict.family,
            "results": verdict.compared,
            "share_of_tolerance": json_f32(verdict.worst),
            "error": verdict.fault,
        })
    };
    let missing = missing(report);
    json!({
        "name": opened.device.name(),
        "driver": info.map(|info| format!("{} {}", info.driver_name, info.driver_info)),
        "features": vulkan.map(|vulkan| vulkan.features().iter().map(|feature| feature.name()).collect::<Vec<_>>()),
        "missing_features": missing.iter().map(|(feature, cost)| json!({ "name": feature.name(), "cost": cost })).collect::<Vec<_>>(),
        "heaps": opened.heaps.iter().enumerate().map(heap).collect::<Vec<_>>(),
        "read_gb_per_s": opened.capacity.bandwidth / 1e9,
        "dependent_step_us": (!opened.device.is_cpu()).then_some(1e6 * opened.capacity.step_seconds),
        "limits": info.map(|info| json!({
            "subgroup_size": info.limits.subgroup_size,
            "workgroup_invocations": info.limits.max_workgroup_invocations,
            "shared_bytes": info.limits.shared_memory_bytes,
            "push_constant_bytes": info.limits.max_push_constants,
            "allocation_bytes": info.limits.max_allocation_bytes,
        })),
        "self_test": opened.verdicts.iter().map(verdict).collect::<Vec<_>>(),
    })
}

fn model_json(model_fit: &ModelFit) -> Value {
    let ModelFit {
        name,
        download,
        fit,
        context,
    } = model_fit;
    let needed = fit.bytes(*context);
    json!({
        "model": name,
        "download": download.as_ref().map(|missing| json!({
            "bytes": missing.bytes,
            "from": missing.from,
            "free_space_bytes": missing.free_space,
        })),
        "context": context,
        "needed_bytes": needed,
        "weight_bytes": fit.requirements.weights,
        "free_bytes": fit.capacity.free,
        "fits": fit.capacity.free.map(|free| needed <= free),
        "context_that_fits": fit.context(),
        "read_bytes_per_token": [fit.read_per_token(0), fit.read_per_token(*context)],
        "tokens_per_s": [fit.expected(0), fit.expected(*context)],
        "limit": format!("{:?}", fit.limit(*context)).to_lowercase(),
    })
}
