//! `refrain plan-check`.

use crate::support::{Outcome, refrain, run};

#[test]
fn proves_plans_without_a_device() {
    let table = run(&["plan-check", "synthetic:tiny:q4_0", "--device", "null"]).done();
    let names: Vec<&str> = table.lines().map(|line| line[..12].trim()).collect();
    let chunks = (0..10).map(|power| format!("prefill {}", 1 << power));
    let expected: Vec<String> = ["plan", "decode"]
        .map(str::to_owned)
        .into_iter()
        .chain(chunks)
        .collect();
    assert_eq!(names, expected, "{table}");
    assert!(table.lines().skip(1).all(|line| line.ends_with(" 0")), "{table}");
}

#[test]
fn names_the_steps_that_need_a_dropped_barrier() {
    let check = [
        "plan-check",
        "synthetic:tiny:q4_0",
        "--device",
        "null",
        "--drop-barrier",
    ];
    let words = [
        "not ordered",
        "decode: step 2 (",
        "which step ",
        "and nothing orders them",
    ];
    run(&[&check[..], &["1"]].concat()).failed(1, &words);
    run(&[&check[..], &["100000"]].concat()).failed(2, &["--drop-barrier 100000", "counted from 0"]);
}

#[test]
fn rejects_hardware_without_memory_by_name() {
    let on_null_hardware = |arguments: &[&str]| {
        let mut command = refrain(arguments);
        command.env("RADV_FORCE_FAMILY", "polaris10");
        command.env_remove("VK_DRIVER_FILES").env_remove("VK_ICD_FILENAMES");
        Outcome::from(command.output().unwrap())
    };
    let listed = on_null_hardware(&["devices", "--json"]).json();
    let devices = listed["devices"].as_array().unwrap();
    if !devices
        .iter()
        .any(|device| device["name"].as_str().unwrap().contains("POLARIS10"))
    {
        refrain_testing::skip("Mesa's driver for AMD is not installed");
        return;
    }
    let check = ["plan-check", "synthetic:tiny:q4_0", "--device", "POLARIS10"];
    on_null_hardware(&check).failed(1, &["POLARIS10", "memory (the driver reports none"]);
}
