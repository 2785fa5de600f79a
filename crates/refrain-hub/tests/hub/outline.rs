//! Models of which only the description is fetched.

use std::fs;
use std::path::Path;

use refrain_hub::{Hub, Outline};

use crate::fake::{FakeHub, HubFault};
use crate::support::{REPO, User, noise};

const GGUF: &str = "m-Q4_0.gguf";
const GGUF_HEADER: usize = 3 << 20;
const SIZE: usize = 8 << 20;

fn outline(hub: &FakeHub) -> Outline {
    let user = User::of(hub);
    let client = Hub::new(user.settings.clone());
    let plan = client.plan(&REPO.parse().unwrap(), &()).unwrap();
    hub.offered();
    let is_whole = |here: &[u8]| here.len() >= GGUF_HEADER;
    let outline = client.outline(&plan, &is_whole, &()).unwrap();
    assert!(!user.repository().exists());
    outline
}

/// A file that begins as `content` does, so far as is needed, and is as long.
#[track_caller]
fn begins_as(path: &Path, content: &[u8], needed: usize) {
    let found = fs::read(path).unwrap();
    assert_eq!(found.len(), content.len());
    assert!(found[..needed] == content[..needed]);
    assert!(found[content.len() - 1000..] == [0; 1000]);
}

fn ranges(hub: &FakeHub, file: &str) -> Vec<String> {
    let seen = hub.seen().into_iter().filter(|seen| seen.path.ends_with(file));
    seen.filter_map(|seen| seen.range).collect()
}

#[test]
fn of_a_gguf_file_twice_its_header_is_fetched_at_most() {
    let content = noise(SIZE, 1);
    let hub = FakeHub::new(REPO, &[(GGUF, &content)]);
    let outline = outline(&hub);
    begins_as(&outline.path, &content, GGUF_HEADER);
    let asked = ["bytes=0-1048575", "bytes=1048576-2097151", "bytes=2097152-4194303"];
    assert_eq!(ranges(&hub, GGUF), asked);
    assert_eq!(hub.offered(), 4 << 20);
}

#[test]
fn of_a_safetensors_file_its_header_is_fetched() {
    let header = 200_000;
    let content = [&(header as u64).to_le_bytes()[..], &noise(SIZE, 2)].concat();
    let files: [(&str, &[u8]); 3] = [
        ("config.json", b"{}"),
        ("model.safetensors", &content),
        ("tokenizer.json", &[b' '; 100_000]),
    ];
    let hub = FakeHub::new(REPO, &files);
    let outline = outline(&hub);
    begins_as(&outline.path.join("model.safetensors"), &content, 8 + header);
    assert_eq!(fs::read(outline.path.join("config.json")).unwrap(), b"{}");
    assert_eq!(hub.offered(), 8 + header + 2);
}

#[test]
fn a_description_arrives_over_connections_that_break_and_from_servers_without_ranges() {
    let content = noise(SIZE, 3);
    for fault in [
        HubFault::Cut(1000),
        HubFault::NoRanges,
        HubFault::Status(503, ""),
        HubFault::Stall(10),
    ] {
        let hub = FakeHub::new(REPO, &[(GGUF, &content)]);
        hub.fail(GGUF, fault);
        begins_as(&outline(&hub).path, &content, GGUF_HEADER);
    }
}
