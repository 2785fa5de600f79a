//! Frameworks for agents and structured output against a scripted model: each carries out a tool call and gets the
//! answer, streams, and gets an object of a schema.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use super::{NPM, PYTHON, PYTHON_OPENAI_2, Packages, Server, root, succeeds};
use crate::scripted::{Script, Scripted, Text, Token};
use crate::support::refrain;

/// A model that says one text for each situation of the tests. The template chooses it.
pub fn scripted_model() -> Scripted {
    Script {
        start: Token("<story>"),
        says: vec![Text("Pip the fox "), Text("looked for "), Text("a key.")],
        more: vec![
            vec![Token("<sunny>"), Text("It is "), Text("sunny "), Text("in Ulm.")],
            vec![Token("<made>"), Text("The file "), Text("holds the words.")],
            vec![Token("<failed>"), Text("The tool "), Text("failed.")],
            vec![
                Token("<data>"),
                Text("{\"city\":"),
                Text("\"Ulm\","),
                Text("\"warm\":true}"),
            ],
            vec![
                Token("<weather_data>"),
                Text("<tool_call>\n{\"name\": \"Weather\", \"argu"),
                Text("ments\": {\"city\":\"Ulm\",\"warm\":true}"),
                Text("}\n</tool_call>"),
            ],
            vec![
                Token("<partial_weather_data>"),
                Text("<tool_call>\n{\"name\": \"Partial"),
                Text("Weather\", \"arguments\": "),
                Text("{\"city\":\"Ulm\""),
                Text(",\"warm\":true"),
                Text("}}\n</tool_call>"),
            ],
            vec![
                Token("<weather>"),
                Text("<tool_call>\n{\"name\": \"weather\", \"arguments\": "),
                Text("{\"city\": "),
                Text("\"Ulm\""),
                Text("}}\n</tool_call"),
                Text(">"),
            ],
            vec![
                Token("<exec_command>"),
                Text("<tool_call>\n{\"name\": \"exec_command\", "),
                Text("\"arguments\": {\"cmd\": \"echo a lost key"),
                Text(" | tee made.txt\", \"yield_time"),
                Text("_ms\": 30000}}\n</tool_call>"),
            ],
            vec![
                Token("<bash>"),
                Text("<tool_call>\n{\"name\": \"Bash\", "),
                Text("\"arguments\": {\"command\": \"echo a lost key |"),
                Text(" tee made.txt\", \"description\": \"Write"),
                Text(" a file\"}}\n</tool_call>"),
            ],
        ],
        template: include_str!("../../../../../../tests/clients/scripted/template.jinja").to_owned(),
        ..Script::default()
    }
    .write()
}

/// A server of the scripted model.
struct ScriptedServer {
    server: Server,
    _model: Scripted,
}

impl ScriptedServer {
    fn start() -> ScriptedServer {
        let model = scripted_model();
        let options = ["--alias", "scripted", "--port", "0", "--device", "cpu", "-q"];
        let server = Server::of(refrain(&[&["serve", model.path()], &options[..]].concat()));
        ScriptedServer { server, _model: model }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }
}

/// Lets a program reach nothing but this computer, gives it an empty home, and switches off what it would report.
pub fn keep_offline(command: &mut Command, home: &Path) {
    // Nothing listens there.
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
        command.env(name.to_lowercase(), "http://127.0.0.1:9");
    }
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    command.env("HOME", home);
    for (name, value) in [
        ("OPENAI_AGENTS_DISABLE_TRACING", "1"),
        ("LANGSMITH_TRACING", "false"),
        ("LITELLM_TELEMETRY", "False"),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ] {
        command.env(name, value);
    }
}

fn runs(packages: Packages, script: &str) {
    let Some(mut command) = packages.script(&format!("scripted/{script}"), &[]) else {
        return;
    };
    let home = tempfile::tempdir().expect("a folder");
    keep_offline(&mut command, home.path());
    let server = ScriptedServer::start();
    command.arg(server.url());
    succeeds(command);
}

#[test]
fn openai_agents_sdk_works() {
    if !refrain_testing::drawn(24) {
        return;
    }
    runs(PYTHON, "openai_agents_sdk.py");
}

#[test]
fn langchain_works() {
    if !refrain_testing::drawn(24) {
        return;
    }
    runs(PYTHON, "langchain_client.py");
}

#[test]
fn pydantic_ai_works() {
    if !refrain_testing::drawn(24) {
        return;
    }
    runs(PYTHON, "pydantic_ai_client.py");
}

#[test]
fn litellm_works() {
    if !refrain_testing::drawn(24) {
        return;
    }
    runs(PYTHON, "litellm_client.py");
}

#[test]
fn instructor_works() {
    if !refrain_testing::drawn(24) {
        return;
    }
    runs(PYTHON_OPENAI_2, "instructor_client.py");
}

#[test]
fn llama_index_works() {
    if !refrain_testing::drawn(24) {
        return;
    }
    runs(PYTHON_OPENAI_2, "llama_index_client.py");
}

#[test]
fn ai_sdk_works() {
    if !refrain_testing::drawn(24) || !NPM.are_installed_with(&["node"]) {
        return;
    }
    let server = ScriptedServer::start();
    let home = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("node");
    keep_offline(&mut command, home.path());
    // A script from standard input finds the packages of the current folder.
    command.args(["--input-type=module", "-", &server.url()]);
    let script = root().join("tests/clients/scripted/ai_sdk.mjs");
    command
        .current_dir(NPM.path())
        .stdin(File::open(script).expect("the script"));
    succeeds(command);
}
