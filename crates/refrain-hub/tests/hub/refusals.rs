//! Errors of the hub, and what they advise the user to do.

use refrain_hub::Error;

use crate::fake::{FakeHub, HubFault};
use crate::support::{REPO, TestUser, random_bytes};

fn hub() -> (FakeHub, TestUser) {
    let hub = FakeHub::new(
        REPO,
        &[
            ("m-Q4_K_M.gguf", &random_bytes(2000, 1)),
            ("m-Q8_0.gguf", &random_bytes(3000, 2)),
        ],
    );
    let user = TestUser::of(&hub);
    (hub, user)
}

#[track_caller]
fn refused(user: &TestUser, name: &str, words: &[&str]) {
    let error = user.pull(name).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "no {word:?} in {error:?}");
    }
}

#[test]
fn unknown_models_and_revisions_are_reported() {
    let (hub, user) = hub();
    refused(&user, "acme/nothing", &["acme/nothing", "spelling"]);
    hub.fail("/api/", HubFault::Status(404, "X-Error-Code: RevisionNotFound\r\n"));
    refused(&user, "acme/tiny@v9", &["acme/tiny@v9", "revision"]);
    hub.fail("Q8_0", HubFault::Status(404, "X-Error-Code: EntryNotFound\r\n"));
    refused(&user, "acme/tiny:Q8_0", &["m-Q8_0.gguf", "no such file"]);
    // Each was requested once.
    assert_eq!(hub.take_requests().len(), 4);
}

#[test]
fn gated_models_ask_for_licence_and_token() {
    let (hub, user) = hub();
    let page = format!("{}/acme/tiny", hub.address);
    hub.fail("Q8_0", HubFault::Status(401, "X-Error-Code: GatedRepo\r\n"));
    refused(&user, "acme/tiny:Q8_0", &["licence", &page, "HF_TOKEN"]);
    hub.fail("Q8_0", HubFault::Status(403, "X-Error-Code: GatedRepo\r\n"));
    refused(&user.with_token(), "acme/tiny:Q8_0", &["licence", &page, "HF_TOKEN"]);
}

#[test]
fn private_models_ask_for_a_token() {
    let (hub, user) = hub();
    hub.fail("/api/", HubFault::Status(401, "X-Error-Code: RepoNotFound\r\n"));
    refused(&user, REPO, &["private", "HF_TOKEN"]);
    let user = user.with_token();
    hub.fail("/api/", HubFault::Status(401, ""));
    refused(&user, REPO, &["HF_TOKEN", "not valid"]);
    hub.fail("/api/", HubFault::Status(403, ""));
    refused(&user, REPO, &["HF_TOKEN", "permission"]);
}

#[test]
fn missing_quantisation_lists_the_available_ones() {
    let (_hub, user) = hub();
    refused(&user, "acme/tiny:Q2_K", &["Q2_K", "Q4_K_M, Q8_0"]);
}

#[test]
fn offline_mode_makes_no_request() {
    let (hub, mut user) = hub();
    user.pull(REPO).unwrap();
    user.settings.offline = true;
    hub.take_requests();
    assert!(matches!(user.pull(REPO), Err(Error::Offline { .. })));
    assert!(user.find(REPO).is_some());
    assert_eq!(hub.take_requests().len(), 0);
}

#[test]
fn name_without_organisation_makes_no_request() {
    let (hub, user) = hub();
    refused(&user, "tiny", &["organisation"]);
    assert_eq!(hub.take_requests().len(), 0);
}
