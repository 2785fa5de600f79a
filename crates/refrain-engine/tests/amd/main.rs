//! What AMD's compiler makes of every kernel that models use. Mesa's RADV compiles for any family of GPUs without
//! one (`RADV_FORCE_FAMILY`). A process has one family, so the test starts itself again for each.
//!
//! `REFRAIN_AMD=navi21,gfx1100` compiles only for those; `UPDATE=1` compiles for all and rewrites `registers.txt`,
//! the worst of each kind of kernel. All kernels of a family, one per line, are left in `target/tmp/amd`.

mod kernels;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use refrain_testing::{sample, skip};
use refrain_vulkan::{DeviceInfo, OpenOptions, Options, Vulkan};
use report::Report;

/// Families with their subgroup sizes: GCN 2, 4 and 5, RDNA 1, 2 and 3.
const FAMILIES: [(&str, &[u32]); 6] = [
    ("hawaii", &[64]),
    ("polaris10", &[64]),
    ("vega10", &[64]),
    ("navi10", &[64, 32]),
    ("navi21", &[64, 32]),
    ("gfx1100", &[64, 32]),
];
/// The driver's own variable.
const FAMILY: &str = "RADV_FORCE_FAMILY";
/// The folder in which a process for one family leaves its results.
const OUT: &str = "REFRAIN_AMD_OUT";
/// Families to compile for, separated by commas; a sample of all if unset.
const ONLY: &str = "REFRAIN_AMD";

#[test]
fn every_kernel_compiles_for_amd_without_spills() {
    let is_asked = [ONLY, "UPDATE"].iter().any(|name| std::env::var_os(name).is_some());
    if !is_asked && !refrain_testing::drawn(24) {
        return;
    }
    if let (Some(out), Ok(family)) = (std::env::var_os(OUT), std::env::var(FAMILY)) {
        return compile(&family, Path::new(&out));
    }
    let folder = tmp("amd");
    std::fs::create_dir_all(&folder).expect("a folder");
    let only = std::env::var(ONLY).ok();
    let (mut tables, mut spills) = (String::new(), String::new());
    let is_update = std::env::var_os("UPDATE").is_some();
    let families = FAMILIES.map(|(family, _)| family);
    let families = match &only {
        Some(only) => Vec::from_iter(
            families
                .into_iter()
                .filter(|family| only.split(',').any(|name| name == *family)),
        ),
        None if is_update => families.to_vec(),
        None => sample(families, 6),
    };
    // Each has a process of its own, which mostly waits for one thread.
    let reports = std::thread::scope(|scope| {
        let report_of = |family| {
            scope.spawn({
                let folder = &folder;
                move || report_of(family, folder)
            })
        };
        let all: Vec<_> = families.into_iter().map(report_of).collect();
        all.into_iter()
            .map(|one| one.join().expect("does not panic"))
            .collect::<Vec<_>>()
    });
    for reports in reports {
        let Some([table, spilling]) = reports else {
            skip("Mesa's driver for AMD is not installed (Debian: apt install mesa-vulkan-drivers)");
            return;
        };
        print!("{table}");
        tables += &table;
        spills += &spilling;
    }
    assert!(spills.is_empty(), "kernels that keep registers in memory:\n{spills}");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/amd/registers.txt");
    if is_update && only.is_none() {
        return std::fs::write(kept, tables).expect("writes");
    }
    let kept = std::fs::read_to_string(kept).unwrap_or_default();
    for table in tables.split_inclusive("\n\n") {
        let head = table.lines().next().expect("a table has a head");
        // Another version of the compiler allocates other registers.
        if kept.contains(head) {
            assert!(
                kept.contains(table),
                "{table}differs from registers.txt: UPDATE=1 renews it"
            );
        }
    }
}

/// Runs this test for one family in a process of its own. Returns a table and the kernels that spill; `None`
/// without the driver.
fn report_of(family: &str, folder: &Path) -> Option<[String; 2]> {
    let files = ["table", "spills"].map(|kind| folder.join(format!("{family}.{kind}")));
    // They may be left from an earlier run.
    files.iter().for_each(|file| drop(std::fs::remove_file(file)));
    let name = "every_kernel_compiles_for_amd_without_spills";
    let status = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", name, "--nocapture"])
        .env(FAMILY, family)
        .env(OUT, folder)
        .env_remove("VK_ICD_FILENAMES")
        .env_remove("VK_DRIVER_FILES")
        .status();
    assert!(status.expect("starts").success(), "{family}");
    let [table, spills] = files.map(|file| std::fs::read_to_string(file).ok());
    Some([table?, spills?])
}

fn tmp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Compiles for the driver's forced family, and writes a table and a list of all kernels.
fn compile(family: &str, out: &Path) {
    let Ok(vulkan) = Vulkan::load(Options::default()) else {
        return;
    };
    let is_meant = |info: &DeviceInfo| info.name.contains(&format!("RADV {}", family.to_uppercase()));
    let Some(index) = vulkan.devices().iter().position(is_meant) else {
        return;
    };
    let info = &vulkan.devices()[index];
    let options = OpenOptions {
        cache_dir: Some(tmp("refrain")),
        statistics: true,
        ..OpenOptions::default()
    };
    let compiler = vulkan.compiler(index, &options).expect("opens");
    let (mut table, mut all, mut spills) = (String::new(), String::new(), String::new());
    let (_, sizes) = FAMILIES
        .iter()
        .find(|(name, _)| *name == family)
        .expect("a known family");
    for &lanes in *sizes {
        let kernels = kernels::of_models(info, lanes);
        let report = Report::new(&compiler, &kernels);
        let title = format!("{family}, subgroups of {lanes}, {}", info.driver_info);
        table += &report.table(&title);
        all += &report.all(&title);
        spills.extend(report.spills().map(|kernel| format!("{title}: {kernel}\n")));
    }
    std::fs::write(out.join(format!("{family}.txt")), all).expect("writes");
    std::fs::write(out.join(format!("{family}.table")), table).expect("writes");
    std::fs::write(out.join(format!("{family}.spills")), spills).expect("writes");
}
