//! What the hub does not give, and what the user should do then.

use refrain_hub::Error;

use crate::fake::{FakeHub, HubFault};
use crate::support::{REPO, User, noise};

fn hub() -> (FakeHub, User) {
    let hub = FakeHub::new(
        REPO,
        &[("m-Q4_K_M.gguf", &noise(2000, 1)), ("m-Q8_0.gguf", &noise(3000, 2))],
    );
    let user = User::of(&hub);
    (hub, user)
}

#[track_caller]
fn refused(user: &User, name: &str, words: &[&str]) {
    let error = user.pull(name).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "no {word:?} in {error:?}");
    }
}

#[test]
fn an_unknown_model_is_said_to_be_unknown() {
    let (hub, user) = hub();
    refused(&user, "acme/nothing", &["acme/nothing", "spelling"]);
    hub.fail("/api/", HubFault::Status(404, "X-Error-Code: RevisionNotFound\r\n"));
    refused(&user, "acme/tiny@v9", &["acme/tiny@v9", "revision"]);
    hub.fail("Q8_0", HubFault::Status(404, "X-Error-Code: EntryNotFound\r\n"));
    refused(&user, "acme/tiny:Q8_0", &["m-Q8_0.gguf", "no such file"]);
    // Each was asked for once.
    assert_eq!(hub.seen().len(), 4);
}

#[test]
fn a_gated_model_needs_its_licence_accepted_and_a_token() {
    let (hub, user) = hub();
    let page = format!("{}/acme/tiny", hub.address);
    hub.fail("Q8_0", HubFault::Status(401, "X-Error-Code: GatedRepo\r\n"));
    refused(&user, "acme/tiny:Q8_0", &["licence", &page, "HF_TOKEN"]);
    hub.fail("Q8_0", HubFault::Status(403, "X-Error-Code: GatedRepo\r\n"));
    refused(&user.with_token(), "acme/tiny:Q8_0", &["licence", &page, "HF_TOKEN"]);
}

#[test]
fn a_private_model_looks_like_none_to_strangers() {
    let (hub, user) = hub();
    hub.fail("/api/", HubFault::Status(401, "X-Error-Code: RepoNotFound\r\n"));
    refused(&user, REPO, &["private", "HF_TOKEN"]);
    let user = user.with_token();
    hub.fail("/api/", HubFault::Status(401, ""));
    refused(&user, REPO, &["HF_TOKEN", "not valid"]);
    hub.fail("/api/", HubFault::Status(403, ""));
    refused(&user, REPO, &["HF_TOKEN", "may not"]);
}

#[test]
fn a_quantisation_that_is_not_there_is_refused_with_those_that_are() {
    let (_hub, user) = hub();
    refused(&user, "acme/tiny:Q2_K", &["Q2_K", "Q4_K_M, Q8_0"]);
}

#[test]
fn offline_mode_makes_no_request() {
    let (hub, mut user) = hub();
    user.pull(REPO).unwrap();
    user.settings.offline = true;
    hub.seen();
    assert!(matches!(user.pull(REPO), Err(Error::Offline { .. })));
    assert!(user.find(REPO).is_some());
    assert_eq!(hub.seen().len(), 0);
}

#[test]
fn a_name_without_organisation_is_not_asked_for() {
    let (hub, user) = hub();
    refused(&user, "tiny", &["organisation"]);
    assert_eq!(hub.seen().len(), 0);
}
