//! Generated requests, valid and invalid, to every route: no answer has a status, a header or a body that the OpenAPI
//! document does not list, and none is an error of the server.

use super::{Packages, Server, succeeds};

const SCHEMATHESIS: Packages = Packages {
    folder: "schemathesis",
    pins: "schemathesis.txt",
    installed: "schemathesis.txt",
};
/// Generated cases of each operation, beside those that cover each keyword of its schema. They take two minutes in CI.
const CASES: usize = 30;
/// One in this many is tried elsewhere.
const SHARE: usize = 10;

#[test]
fn answers_conform_to_the_openapi_document() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let Some(mut script) = SCHEMATHESIS.script("openapi.py", &[]) else {
        return;
    };
    let server = Server::start(&["--ctx", "256"]);
    let cases = refrain_testing::share(CASES, SHARE);
    script.arg(format!("http://{}", server.address));
    script.args(["--generation-deterministic", "--seed", "1", "--max-examples"]);
    script.arg(cases.to_string());
    if cases < CASES {
        // The output of a failed test shows this.
        eprintln!("{cases} of {CASES} generated cases of each operation, and none that cover its schema");
        script.args(["--phases", "fuzzing"]);
    }
    succeeds(script);
    assert_eq!(server.get("/health").0, 200);
}
