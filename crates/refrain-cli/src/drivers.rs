//! Installed Vulkan drivers, each tried in a process of its own.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Option of `refrain devices` that lists only what the loader reports, without trying the drivers one by one.
pub(crate) const AS_LOADED: &str = "--as-loaded";
/// Debian packages of the libraries that drivers need.
const PACKAGES: [(&str, &str); 14] = [
    ("libEGL.so", "libegl1"),
    ("libGLdispatch.so", "libegl1"),
    ("libGLX.so", "libglx0"),
    ("libX11.so", "libx11-6"),
    ("libX11-xcb.so", "libx11-xcb1"),
    ("libXext.so", "libxext6"),
    ("libxcb.so", "libxcb1"),
    ("libxcb-", "mesa-vulkan-drivers"),
    ("libwayland-client.so", "libwayland-client0"),
    ("libdrm_amdgpu.so", "libdrm-amdgpu1"),
    ("libdrm.so", "libdrm2"),
    ("libelf.so", "libelf1"),
    ("libexpat.so", "libexpat1"),
    ("libzstd.so", "libzstd1"),
];

/// Time limit for a driver to list its devices.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(30);
/// Environment variables that replace the default manifest directories; the newer one first.
const MANIFEST_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// An installed driver, identified by its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Driver {
    pub manifest: PathBuf,
    /// The devices that it offers, or the error.
    pub devices: Result<Vec<String>, String>,
}

impl Driver {
    /// A message about its failure, if it failed.
    pub fn fault(&self) -> Option<String> {
        let fault = self.devices.as_ref().err()?;
        Some(format!(
            "the driver of {} does not work: {fault}",
            self.manifest.display()
        ))
    }

    /// How to fix it.
    pub fn fix(&self) -> String {
        let fault = self.devices.as_ref().err().map_or("", String::as_str);
        match self.missing_package(fault) {
            Some(package) => format!(
                "install the missing library (Debian and Ubuntu: apt install {package}), or remove the manifest if this \
                 machine does not have the hardware"
            ),
            None => {
                "reinstall its package, or remove the manifest if this machine does not have the hardware".to_owned()
            }
        }
    }

    /// The package of the library that the loader did not find.
    fn missing_package(&self, fault: &str) -> Option<&'static str> {
        let named = PACKAGES.iter().find(|(library, _)| fault.contains(library));
        let name = self.manifest.file_name().unwrap_or_default().to_string_lossy();
        match named {
            Some((_, package)) => Some(package),
            // NVIDIA's driver library loads its dependencies itself and reports nothing if one is missing.
            None if name.contains("nvidia") && !fault.contains("cannot open shared object file") => Some("libegl1"),
            None => None,
        }
    }
}

/// Tries every installed driver in a process of its own, so that a crashing or hanging driver is detected and harms
/// nothing.
pub(crate) fn all() -> Vec<Driver> {
    std::thread::scope(|scope| {
        let start = |manifest: PathBuf| {
            scope.spawn(move || Driver {
                devices: devices(&manifest),
                manifest,
            })
        };
        let started: Vec<_> = manifests().into_iter().map(start).collect();
        started.into_iter().filter_map(|driver| driver.join().ok()).collect()
    })
}

/// The manifests of the installed drivers.
pub(crate) fn installed() -> Vec<PathBuf> {
    manifests().into_iter().filter(|manifest| manifest.is_file()).collect()
}

/// The manifests that the Vulkan loader reads, in its order.
fn manifests() -> Vec<PathBuf> {
    let listed = |name: &str| {
        let paths = env::var_os(name).filter(|paths| !paths.is_empty())?;
        Some(env::split_paths(&paths).collect::<Vec<_>>())
    };
    let paths = match MANIFEST_VARIABLES.iter().find_map(|name| listed(name)) {
        Some(named) => named,
        None => listed("VK_ADD_DRIVER_FILES")
            .into_iter()
            .flatten()
            .chain(default_folders())
            .collect(),
    };
    let mut seen = HashSet::new();
    paths
        .into_iter()
        .flat_map(|path| manifests_at(&path))
        .filter(|manifest| seen.insert(manifest.clone()))
        .collect()
}

/// The manifest directories of the XDG base directories (Vulkan loader, "Driver discovery on Linux").
fn default_folders() -> Vec<PathBuf> {
    let home = env::home_dir();
    let own = |name, below: &str| {
        let base = env::var_os(name).map(PathBuf::from);
        base.or_else(|| home.as_ref().map(|home| home.join(below)))
    };
    let shared = |name, default: &str| {
        let paths = env::var_os(name).filter(|paths| !paths.is_empty());
        env::split_paths(&paths.unwrap_or_else(|| OsString::from(default))).collect::<Vec<_>>()
    };
    let bases = own("XDG_CONFIG_HOME", ".config")
        .into_iter()
        .chain(shared("XDG_CONFIG_DIRS", "/etc/xdg"))
        .chain([PathBuf::from("/etc")])
        .chain(own("XDG_DATA_HOME", ".local/share"))
        .chain(shared("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
    bases.map(|base| base.join("vulkan/icd.d")).collect()
}

/// The manifests in a directory, or the path itself if it is a manifest.
fn manifests_at(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        let is_manifest = path.extension().is_some_and(|ending| ending == "json");
        return is_manifest.then(|| path.to_owned()).into_iter().collect();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    found.sort();
    found
}

fn devices(manifest: &Path) -> Result<Vec<String>, String> {
    if let Err(error) = fs::File::open(manifest) {
        return Err(format!("cannot read the manifest: {error}"));
    }
    let program = env::current_exe().map_err(|error| format!("cannot find this program's own path: {error}"))?;
    let mut command = Command::new(program);
    command.args(["devices", "--json", AS_LOADED]);
    for name in MANIFEST_VARIABLES {
        command.env(name, manifest);
    }
    command.env_remove("REFRAIN_DEVICE").env_remove("REFRAIN_DISABLE");
    command.env("VK_LOADER_DEBUG", "error");
    let output = run(command)?;
    if !output.status.success() {
        return Err(format!("the driver crashed ({})", output.status));
    }
    if let Some(fault) = fault(&String::from_utf8_lossy(&output.stderr)) {
        return Err(fault);
    }
    let listed: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let names = listed["devices"].as_array().into_iter().flatten();
    Ok(names
        .filter_map(|device| Some(device["name"].as_str()?.to_owned()))
        .collect())
}

/// Runs a command, and kills it after [`DRIVER_TIMEOUT`].
fn run(mut command: Command) -> Result<Output, String> {
    let failed = |error: std::io::Error| format!("cannot try the driver: {error}");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let start = Instant::now();
    while child.try_wait().map_err(failed)?.is_none() {
        if start.elapsed() > DRIVER_TIMEOUT {
            // It may have ended in the meantime; then kill fails harmlessly.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!(
                "the driver did not answer within {} s",
                DRIVER_TIMEOUT.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().map_err(failed)
}

/// The first three loader errors that concern the driver itself.
fn fault(stderr: &str) -> Option<String> {
    let errors = stderr.lines().filter_map(|line| {
        let line = line.trim_start_matches("[Vulkan Loader]").trim_start();
        line.strip_prefix("ERROR")?.split_once(':').map(|(_, text)| text.trim())
    });
    // A driver without matching hardware is not an error.
    let faults = errors.filter(|text| !text.contains("valid GPUs") && !text.contains("Found no drivers"));
    let mut seen = HashSet::new();
    let faults: Vec<&str> = faults.filter(|text| seen.insert(*text)).take(3).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_loader_errors_except_missing_hardware() {
        let missing = "ERROR:            /usr/lib/libnothere.so: cannot open shared object file\nERROR: later\n\
                       ERROR: later";
        assert_eq!(
            fault(missing).unwrap(),
            "/usr/lib/libnothere.so: cannot open shared object file; later"
        );
        let newer = "[Vulkan Loader] ERROR | DRIVER: loader_get_json: broken";
        assert_eq!(fault(newer).unwrap(), "loader_get_json: broken");
        let idle = "ERROR:  setup_loader_term_phys_devs:  Failed to detect any valid GPUs in the current config";
        assert_eq!(fault(idle), None);
        assert_eq!(fault("MESA: warning"), None);
    }

    #[test]
    fn names_the_package_of_a_missing_library() {
        let fix = |manifest: &str, fault: &str| {
            let driver = Driver {
                manifest: Path::new("/etc/vulkan/icd.d").join(manifest),
                devices: Err(fault.to_owned()),
            };
            assert!(driver.fault().unwrap().contains(manifest) && driver.fault().unwrap().contains(fault));
            driver.fix()
        };
        let missing = |library: &str| format!("{library}: cannot open shared object file: No such file or directory");
        assert!(fix("nvidia_icd.json", &missing("libGLdispatch.so.0")).contains("apt install libegl1"));
        assert!(fix("radeon_icd.json", &missing("libdrm_amdgpu.so.1")).contains("apt install libdrm-amdgpu1"));
        // NVIDIA's library loads, looks for libEGL itself, and exports no functions without it.
        let silent = "loader_scanned_icd_add: Could not get 'vkCreateInstance' via 'vk_icdGetInstanceProcAddr' for ICD \
                      libGLX_nvidia.so.0";
        assert!(fix("nvidia_icd.json", silent).contains("apt install libegl1"));
        // If that library itself is missing, its own package must be reinstalled.
        assert!(fix("nvidia_icd.json", &missing("libGLX_nvidia.so.0")).contains("reinstall its package"));
        assert!(fix("other_icd.json", silent).contains("reinstall its package"));
    }

    #[test]
    fn finds_manifests_in_folders_and_by_path() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.json", "a.json", "readme.txt"] {
            fs::write(folder.path().join(name), "{}").unwrap();
        }
        let found = manifests_at(folder.path());
        assert_eq!(found, ["a.json", "b.json"].map(|name| folder.path().join(name)));
        let missing = folder.path().join("missing.json");
        assert_eq!(manifests_at(&missing), [missing]);
        assert!(manifests_at(&folder.path().join("missing")).is_empty());
    }
}
