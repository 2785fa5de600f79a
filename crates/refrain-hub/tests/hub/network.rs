//! Connections that stall, break and lie.

use std::fs;

use crate::fake::{FakeHub, HubFault, etag};
use crate::support::{HeardNotices, REPO, User, noise};

const FILE: &str = "m-Q4_0.gguf";

fn hub(content: &[u8]) -> (FakeHub, User) {
    let hub = FakeHub::new(REPO, &[(FILE, content)]);
    let user = User::of(&hub);
    (hub, user)
}

/// Downloads, and checks that it arrives whole after all; returns what was said meanwhile.
#[track_caller]
fn arrives(user: &User, content: &[u8]) -> Vec<String> {
    let notices = HeardNotices::default();
    let model = user.pull_watched(REPO, &notices).unwrap();
    assert!(fs::read(model.path).unwrap() == content, "the content is another");
    let size = content.len() as u64;
    assert_eq!(notices.positions.lock().unwrap().last(), Some(&(size, size)));
    notices.lines.into_inner().unwrap()
}

#[test]
fn a_connection_that_breaks_is_taken_up_where_it_broke() {
    let content = noise(300_000, 1);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Cut(100_000));
    hub.fail(FILE, HubFault::Cut(50_000));
    let lines = arrives(&user, &content);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let ranges: Vec<Option<String>> = hub.seen().into_iter().skip(1).map(|seen| seen.range).collect();
    let bytes = |from: u32| Some(format!("bytes={from}-"));
    assert_eq!(ranges, [None, bytes(100_000), bytes(150_000)]);
}

#[test]
fn a_connection_that_stalls_is_given_up_and_taken_up_again() {
    let content = noise(50_000, 2);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Stall(20_000));
    hub.fail("/api/", HubFault::Stall(10));
    let lines = arrives(&user, &content);
    assert!(lines.iter().all(|line| line.contains("stalled")), "{lines:?}");
    assert_eq!(hub.seen().last().unwrap().range.as_deref(), Some("bytes=20000-"));
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let content = noise(50_000, 3);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Cut(20_000));
    hub.fail(FILE, HubFault::NoRanges);
    arrives(&user, &content);
}

#[test]
fn busy_and_broken_servers_are_asked_again() {
    let content = noise(50_000, 4);
    let (hub, user) = hub(&content);
    hub.fail("/api/", HubFault::Status(500, ""));
    hub.fail("/api/", HubFault::Status(429, "Retry-After: 1\r\n"));
    hub.fail(FILE, HubFault::Status(503, ""));
    hub.fail(FILE, HubFault::Status(504, ""));
    let lines = arrives(&user, &content);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(
        lines[1].contains("too many requests") && lines[1].contains("1.0 s"),
        "{lines:?}"
    );
}

#[test]
fn a_server_that_never_recovers_is_given_up_and_what_arrived_is_kept() {
    let content = noise(50_000, 5);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::Cut(30_000));
    for _ in 0..6 {
        hub.fail(FILE, HubFault::Status(500, ""));
    }
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(
        error.contains("500") && error.contains("keeps what has arrived"),
        "{error}"
    );
    assert_eq!(
        fs::read(user.blob(&(etag(&content) + ".incomplete"))).unwrap(),
        content[..30_000]
    );
    assert_eq!(user.find(REPO), None);
    let notices = arrives(&user, &content);
    assert!(notices.len() < 3, "{notices:?}");
}

#[test]
fn what_arrives_damaged_is_fetched_once_more_and_then_refused() {
    let content = noise(50_000, 6);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::WrongByte);
    let lines = arrives(&user, &content);
    assert!(lines[0].contains("damaged"), "{lines:?}");

    let content = noise(50_000, 7);
    let (hub, user) = self::hub(&content);
    hub.fail(FILE, HubFault::WrongByte);
    hub.fail(FILE, HubFault::WrongByte);
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(error.contains(FILE) && error.contains(&etag(&content)), "{error}");
    assert_eq!((user.find(REPO), user.tree()), (None, vec![]));
}

#[test]
fn a_damaged_beginning_of_an_earlier_attempt_is_not_kept() {
    let content = noise(50_000, 8);
    for beginning in [noise(20_000, 9), noise(60_000, 9)] {
        let (_hub, user) = hub(&content);
        let partial = user.blob(&(etag(&content) + ".incomplete"));
        fs::create_dir_all(partial.parent().unwrap()).unwrap();
        fs::write(partial, beginning).unwrap();
        arrives(&user, &content);
    }
}

#[test]
fn small_files_are_checked_too() {
    let content = noise(500, 10);
    let (hub, user) = hub(&content);
    hub.fail(FILE, HubFault::WrongByte);
    hub.fail(FILE, HubFault::WrongByte);
    assert!(user.pull(REPO).unwrap_err().to_string().contains(&etag(&content)));
    arrives(&user, &content);
    let (_hub, user) = self::hub(b"");
    arrives(&user, b"");
}

#[test]
fn a_server_that_lies_about_the_size_is_not_believed() {
    let content = noise(50_000, 11);
    for cut in [None, Some(10_000)] {
        let (hub, user) = hub(&content);
        if let Some(bytes) = cut {
            hub.fail(FILE, HubFault::Cut(bytes));
        }
        hub.fail(FILE, HubFault::Longer(5));
        let error = user.pull(REPO).unwrap_err().to_string();
        assert!(error.contains("50000") && error.contains("50005"), "{error}");
        assert_eq!(user.find(REPO), None);
    }
}

#[test]
fn the_token_stays_with_the_hub_when_the_content_is_elsewhere() {
    let content = noise(50_000, 12);
    let (hub, user) = hub(&content);
    let user = user.with_token();
    let store = FakeHub::new(REPO, &[(FILE, &content)]);
    let path = format!("/{REPO}/resolve/{}/{FILE}", crate::fake::COMMIT);
    hub.fail(FILE, HubFault::Elsewhere(path.clone()));
    hub.fail(FILE, HubFault::Elsewhere(format!("{}{path}", store.address)));
    arrives(&user, &content);
    let sent =
        |hub: &FakeHub| -> Vec<Option<String>> { hub.seen().into_iter().map(|seen| seen.authorization).collect() };
    assert_eq!(sent(&hub), vec![Some("Bearer hf_secret".to_owned()); 3]);
    assert_eq!(sent(&store), [None]);
}

#[test]
fn redirects_that_go_round_in_circles_end() {
    let (hub, user) = hub(b"x");
    for _ in 0..20 {
        hub.fail(
            FILE,
            HubFault::Elsewhere(format!("/{REPO}/resolve/{}/{FILE}", crate::fake::COMMIT)),
        );
    }
    assert!(user.pull(REPO).unwrap_err().to_string().contains("redirects"));
}

#[test]
fn nobody_there_is_said_with_the_host() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut user = hub(b"x").1;
    user.settings.endpoint = format!("http://{address}");
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1") && error.contains("5 attempts"), "{error}");
}

/// Writing to /dev/full fails as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_nothing_is_found_afterwards() {
    let content = noise(50_000, 13);
    let (_hub, user) = hub(&content);
    let partial = user.blob(&(etag(&content) + ".incomplete"));
    fs::create_dir_all(partial.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &partial).unwrap();
    let error = user.pull(REPO).unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(user.find(REPO), None);
    assert!(!user.blob(&etag(&content)).exists());
    fs::remove_file(partial).unwrap();
    arrives(&user, &content);
}
