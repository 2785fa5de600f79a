//! How findings are told.

use refrain_vulkan::MemoryClass;
use serde_json::{Value, json};

use super::features::missed;
use super::findings::{Finding, on_cpu};
use super::{Examination, ModelFit, OpenedDevice};
use crate::hub::MissingFiles;
use crate::output::{about_rate, human_bytes, json_f32};
use crate::{device, fit};

/// For people: subjects at the margin.
pub(super) fn text(examination: &Examination, findings: &[Finding]) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let mut section = |name: &'static str, entries: Vec<String>| {
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        lines.extend(names.zip(entries));
    };
    section("loader", vec![loader(examination)]);
    section("drivers", drivers(examination));
    section("devices", devices(examination));
    if let Some(Ok(opened)) = &examination.opened {
        section("device", vec![device::describe(&opened.device)]);
        section("features", features(examination, opened));
        section("memory", memory(opened));
        section("limits", limits(opened));
        section("self-test", self_test(opened));
    }
    section("caches", caches(examination));
    if let Some(placed) = &examination.model {
        section("model", model(placed));
    }
    let mut text: String = lines
        .iter()
        .map(|(name, entry)| format!("{name:<10} {entry}\n"))
        .collect();
    for finding in findings {
        let sign = if finding.broken { "broken" } else { "note" };
        text.push_str(&format!("\n{sign}: {}\n  to mend it: {}\n", finding.what, finding.mend));
    }
    if findings.is_empty() {
        text.push_str("\nnothing is wrong\n");
    }
    text
}

fn loader(examination: &Examination) -> String {
    match &examination.loader {
        Ok(version) => {
            let path = examination
                .library
                .as_ref()
                .map_or(String::new(), |path| format!(", {path}"));
            format!("Vulkan {version}{path}")
        }
        Err(error) => error.to_string(),
    }
}

fn drivers(examination: &Examination) -> Vec<String> {
    let line = |driver: &super::Driver| {
        let told = match &driver.devices {
            Ok(devices) if devices.is_empty() => "works, no device for it here".to_owned(),
            Ok(devices) => devices.join(", "),
            Err(fault) => format!("does not work: {fault}"),
        };
        format!("{}: {told}", driver.manifest.display())
    };
    if examination.drivers.is_empty() {
        vec!["no manifest of a driver was found".to_owned()]
    } else {
        examination.drivers.iter().map(line).collect()
    }
}

fn devices(examination: &Examination) -> Vec<String> {
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
    let mut lines: Vec<String> = examination.devices.iter().enumerate().map(line).collect();
    lines.push(match &examination.decision {
        Ok(decision) if on_cpu(examination) => format!("chosen: the CPU executor ({})", decision.reason),
        Ok(decision) => {
            let name = examination.chosen().map_or("", |device| &device.name);
            format!("chosen: {name} ({})", decision.reason)
        }
        Err(error) => format!("chosen: none, {error}"),
    });
    lines
}

fn features(examination: &Examination, opened: &OpenedDevice) -> Vec<String> {
    let Some(vulkan) = opened.device.as_vulkan() else {
        return Vec::new();
    };
    let mut lines = vec![
        "all that is needed is there".to_owned(),
        format!("optional features: {}", vulkan.features()),
    ];
    let missed = missed(examination);
    lines.extend(
        missed
            .iter()
            .map(|(feature, cost)| format!("without {feature}: {cost}")),
    );
    lines
}

/// What a heap serves, by the class that was measured in it.
fn purpose(class: MemoryClass) -> &'static str {
    match class {
        MemoryClass::Control => "read by both",
        MemoryClass::Staging => "uploads pass through it",
        _ => "weights, context and scratch",
    }
}

fn memory(opened: &OpenedDevice) -> Vec<String> {
    let speed = |index: usize| {
        let mut known = opened.speeds.iter().filter_map(|(_, speed)| speed.as_ref().ok());
        known.find(|speed| speed.heap == index)
    };
    let line = |(index, heap): (usize, &refrain_vulkan::Heap)| {
        let told = match speed(index) {
            Some(speed) => format!(
                "kernels read {} at about {} GB/s; {}",
                human_bytes(speed.bytes),
                about_rate(speed.bytes_per_second / 1e9),
                purpose(speed.class)
            ),
            None => "not used".to_owned(),
        };
        format!("{}, {} free: {told}", heap.describe(index), human_bytes(heap.free()))
    };
    let mut lines: Vec<String> = opened.heaps.iter().enumerate().map(line).collect();
    if opened.device.is_cpu() {
        let free = opened.offer.free.map_or("unknown".to_owned(), human_bytes);
        let rate = about_rate(opened.offer.bandwidth / 1e9);
        lines.push(format!("{free} free: plain sums read about {rate} GB/s"));
    } else {
        let micros = 1e6 * opened.offer.step_seconds;
        lines.push(format!("a step that waits for another takes {micros:.1} µs"));
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
            "subgroups of {subgroups}, workgroups up to {}, {} shared",
            limits.max_workgroup_invocations,
            human_bytes(limits.shared_memory_bytes.into())
        ),
        format!("largest buffer {}", human_bytes(limits.max_allocation_bytes)),
    ]
}

fn self_test(opened: &OpenedDevice) -> Vec<String> {
    if opened.device.is_cpu() {
        return vec!["nothing to test: the CPU executor is what kernels are compared with".to_owned()];
    }
    let line = |verdict: &refrain::self_test::FamilyVerdict| match &verdict.fault {
        Some(fault) => format!("{}: WRONG: {fault}", verdict.family),
        None => format!(
            "{}: {} results right, the largest difference {:.0} % of what is allowed",
            verdict.family,
            verdict.compared,
            100.0 * verdict.worst
        ),
    };
    opened.verdicts.iter().map(line).collect()
}

fn caches(examination: &Examination) -> Vec<String> {
    let line = |cache: &super::CacheFolder| {
        let place = cache
            .path
            .as_ref()
            .map_or("nowhere".into(), |path| path.display().to_string());
        let state = if cache.fault.is_some() { ", not writable" } else { "" };
        let (files, bytes) = (cache.files, human_bytes(cache.bytes));
        format!("{}: {place}, {files} files, {bytes}{state}", cache.what)
    };
    examination.caches.iter().map(line).collect()
}

fn download(download: &MissingFiles) -> String {
    let MissingFiles {
        bytes,
        from,
        free_space,
    } = download;
    let room = match free_space {
        Some(free) => format!("; the cache's disk has {} free", human_bytes(*free)),
        None => String::new(),
    };
    format!("{} to download from {from}{room}", human_bytes(*bytes))
}

fn model(placed: &ModelFit) -> Vec<String> {
    let ModelFit {
        name,
        download: missing,
        fit,
        context,
    } = placed;
    let empty = about_rate(fit.expected(0));
    let mut lines = vec![name.clone()];
    lines.extend(missing.as_ref().map(download));
    lines.extend([
        format!(
            "needs {}: {} of weights, {} for a context of {context} tokens",
            human_bytes(fit.bytes(*context)),
            human_bytes(fit.needs.weights),
            human_bytes(fit.bytes(*context) - fit.needs.weights)
        ),
        fit::room(fit),
        format!(
            "a token reads {} at first, {} at {context} tokens",
            human_bytes(fit.read_per_token(0)),
            human_bytes(fit.read_per_token(*context))
        ),
        format!("up to about {empty} tokens/s at first; {}", fit::speed(fit, *context)),
    ]);
    lines
}

/// For machines.
pub(super) fn json(examination: &Examination, findings: &[Finding]) -> Value {
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
    let finding = |finding: &Finding| json!({ "broken": finding.broken, "what": finding.what, "mend": finding.mend });
    json!({
        "loader": {
            "version": examination.loader.as_ref().ok().map(ToString::to_string),
            "error": examination.loader.as_ref().err().map(ToString::to_string),
        },
        "drivers": examination.drivers.iter().map(driver).collect::<Vec<_>>(),
        "devices": examination.devices.iter().map(|device| &device.name).collect::<Vec<_>>(),
        "device": match &examination.opened {
            Some(Ok(opened)) => device_json(examination, opened),
            _ => Value::Null,
        },
        "caches": examination.caches.iter().map(cache).collect::<Vec<_>>(),
        "model": examination.model.as_ref().map(model_json),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn device_json(examination: &Examination, opened: &OpenedDevice) -> Value {
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
    let missed = missed(examination);
    json!({
        "name": opened.device.name(),
        "driver": info.map(|info| format!("{} {}", info.driver_name, info.driver_info)),
        "features": vulkan.map(|vulkan| vulkan.features().iter().map(|feature| feature.name()).collect::<Vec<_>>()),
        "missing_features": missed.iter().map(|(feature, cost)| json!({ "name": feature.name(), "cost": cost })).collect::<Vec<_>>(),
        "heaps": opened.heaps.iter().enumerate().map(heap).collect::<Vec<_>>(),
        "read_gb_per_s": opened.offer.bandwidth / 1e9,
        "dependent_step_us": (!opened.device.is_cpu()).then_some(1e6 * opened.offer.step_seconds),
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

fn model_json(placed: &ModelFit) -> Value {
    let ModelFit {
        name,
        download,
        fit,
        context,
    } = placed;
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
        "weight_bytes": fit.needs.weights,
        "free_bytes": fit.offer.free,
        "fits": fit.offer.free.map(|free| needed <= free),
        "context_that_fits": fit.context(),
        "read_bytes_per_token": [fit.read_per_token(0), fit.read_per_token(*context)],
        "tokens_per_s": [fit.expected(0), fit.expected(*context)],
        "limit": format!("{:?}", fit.limit(*context)).to_lowercase(),
    })
}
