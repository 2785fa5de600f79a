//! The program as people meet it: exit codes, messages, results.

mod bad_checkpoints;
mod bad_gguf;
mod bad_input;
mod bench_table;
mod chat;
mod convert;
mod decode;
mod demo;
mod devices;
mod doctor;
mod eval;
mod examples;
#[allow(dead_code)] // what the tests of the hub itself need
#[path = "../../../refrain-hub/tests/hub/fake.rs"]
mod fake_hub;
mod forms;
#[cfg(target_os = "linux")]
mod full_disk;
mod help;
mod hub;
mod logits;
mod plan_check;
mod printing;
mod prompts;
mod serve;
#[cfg(target_os = "linux")]
mod service;
mod support;
mod synth;
#[cfg(unix)]
mod terminal;
mod text;
mod thinking;
mod usage;
mod words;
mod workplace;
