//! `run` and `chat` with models that answer in channels (gpt-oss), and the tokens that end an answer.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::scripted::{Piece, Script, Scripted, Text, Token};
use crate::support::{run, run_with_input};

const RETURN: &str = "<|return|>";
const CALL: &str = "<|call|>";

/// Begins an answer's messages as gpt-oss does.
const OWN_TEMPLATE: &str = "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}\
    {% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}\
    <|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant";

/// Returns the template, and about how many tokens its prompts have: gpt-oss's own, if it has been fetched.
fn templates() -> Vec<(String, usize)> {
    let fetched = "../../target/llama.cpp/templates/openai-gpt-oss-120b.jinja";
    let mut templates = vec![(OWN_TEMPLATE.to_owned(), 40)];
    match fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(fetched)) {
        Ok(own) => templates.push((own, 400)),
        Err(_) => refrain_testing::skip("gpt-oss's template is not below target: run references/fetch.sh"),
    }
    templates
}

/// A model that reasons about a greeting, and then says `answer`.
fn channels(template: &str, middle: usize, answer: &[Piece]) -> Scripted {
    let before = [
        Token("<|channel|>"),
        Text("analysis"),
        Token("<|message|>"),
        Text("A greeting."),
        Token("<|end|>"),
        Token("<|start|>"),
        Text("assistant"),
        Token("<|channel|>"),
        Text("final"),
        Token("<|message|>"),
    ];
    Script {
        says: [&before[..], answer].concat(),
        template: template.to_owned(),
        special: vec!["<|constrain|>"],
        eos: RETURN,
        ends: vec![CALL],
        middle,
        ..Script::default()
    }
    .write()
}

fn greeting(template: &str, middle: usize) -> Scripted {
    channels(template, middle, &[Text("Hello "), Text("you!")])
}

#[test]
fn run_separates_the_final_channel_from_reasoning() {
    for (template, middle) in templates() {
        let model = greeting(&template, middle);
        let ask = |more: &[&str]| run(&[&["run", model.path(), "hi", "-n", "40", "--temp", "0"], more].concat());
        assert_eq!(ask(&[]).done(), "Hello you!\n");
        assert!(ask(&["--reasoning", "show"]).done().contains("A greeting."));
        let json = ask(&["--json"]).json();
        assert_eq!(json["text"], "Hello you!");
        assert_eq!(json["reasoning"], "A greeting.");
        assert_eq!(json["finish"], "stop");
    }
}

#[test]
fn chat_keeps_only_the_final_channel_in_its_history() {
    for (template, middle) in templates() {
        let model = greeting(&template, middle);
        let saved = model.file("saved.json");
        let input = format!("hi\nand again\n/save {}\n", saved.to_str().unwrap());
        let chat = ["chat", model.path(), "-n", "40", "--temp", "0", "--no-history"];
        let said = run_with_input(&chat, input.as_bytes()).done();
        assert_eq!(said.matches("Hello you!").count(), 2, "{said:?}");
        assert!(!said.contains("analysis") && !said.contains("greeting"), "{said:?}");
        let saved: Value = serde_json::from_slice(&fs::read(saved).unwrap()).unwrap();
        let messages = saved.as_array().or(saved["messages"].as_array()).unwrap();
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert_eq!(messages[1]["content"], "Hello you!");
    }
}

#[test]
fn a_schema_holds_for_the_final_channel() {
    for (template, middle) in templates() {
        let model = channels(&template, middle, &[Text("{\"a\":"), Text(" 17"), Text("}")]);
        let schema = r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
        let ask = [
            "run",
            model.path(),
            "hi",
            "-n",
            "40",
            "--temp",
            "0",
            "--json-schema",
            schema,
            "--json",
        ];
        let json = run(&ask).json();
        let text = json["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({"a": 17}), "{json}");
        assert_eq!(json["finish"], "stop", "{json}");
    }
}

/// Converts a checkpoint to a GGUF file, and that to a directory again.
fn converted(model: &Scripted) -> (String, String) {
    let path = |name: &str| model.file(name).to_str().unwrap().to_owned();
    let (file, folder) = (path("converted.gguf"), path("again"));
    run(&["convert", model.path(), &file, "--format", "f16"]).done();
    run(&["convert", &file, &folder, "--format", "mlx8"]).done();
    (file, folder)
}

#[test]
fn the_end_of_a_message_is_not_the_end_of_an_answer() {
    let model = greeting(OWN_TEMPLATE, 40);
    let (file, folder) = converted(&model);
    for path in [&file, &folder] {
        let said = run(&["run", path, "hi", "-n", "40", "--temp", "0"]).done();
        assert_eq!(said, "Hello you!\n", "{path}");
    }
    let config: Value =
        serde_json::from_slice(&fs::read(Path::new(&folder).join("generation_config.json")).unwrap()).unwrap();
    let mut ends: Vec<u64> = config["eos_token_id"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    ends.sort_unstable();
    let mut expected = [RETURN, CALL].map(|name| model.id(name) as u64);
    expected.sort_unstable();
    assert_eq!(ends, expected);
}

#[test]
fn a_call_ends_an_answer() {
    let says = vec![
        Token("<|channel|>"),
        Text("commentary to=functions.f "),
        Token("<|constrain|>"),
        Text("json"),
        Token("<|message|>"),
        Text("{\"a\":1}"),
        Token(CALL),
        Text("beyond"),
    ];
    let model = Script {
        says,
        template: OWN_TEMPLATE.to_owned(),
        special: vec!["<|start|>", "<|end|>"],
        eos: RETURN,
        middle: 40,
        ..Script::default()
    };
    let model = model.write();
    for path in [model.path(), &converted(&model).0] {
        let json = run(&["run", path, "hi", "-n", "40", "--temp", "0", "--json"]).json();
        assert_eq!(json["finish"], "stop", "{path}: {json}");
        assert!(!json["text"].as_str().unwrap().contains("beyond"), "{path}: {json}");
    }
}

/// Files that list too few end tokens, or the wrong ones.
#[test]
fn end_tokens_are_found_by_name_and_in_all_files() {
    for name in [
        "[EOT]",
        "<turn|>",
        "<end_of_turn>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<EOT>",
    ] {
        let model = Script {
            says: vec![Text("Hello"), Token(name), Text("MORE")],
            ..Script::default()
        };
        let model = model.write();
        let ask = |path: &str| run(&["run", path, "hit", "-n", "20", "--temp", "0"]).done();
        assert_eq!(ask(model.path()), "Hello\n", "{name}");
        if name == "[EOT]" {
            assert_eq!(ask(&converted(&model).0), "Hello\n", "{name} of a GGUF file");
        }
    }
    let unknown = Script {
        says: vec![
            Text("Hello"),
            Token("<a>"),
            Text("MORE"),
            Token("<b>"),
            Text("YET"),
            Token("<c>"),
            Text("LAST"),
        ],
        eos: "<pad2>",
        ..Script::default()
    };
    let model = unknown.write();
    let ask = || run(&["run", model.path(), "hit", "-n", "20", "--temp", "0"]).done();
    assert_eq!(ask(), "HelloMOREYETLAST\n");
    let stale = json!(model.id("<pad>"));
    model.change_json("config.json", |config| config["eos_token_id"] = stale.clone());
    model.change_json("generation_config.json", |config| {
        config["eos_token_id"] = stale.clone()
    });
    model.change_json("tokenizer_config.json", |config| config["eos_token"] = json!("<c>"));
    assert_eq!(ask(), "HelloMOREYET\n");
    model.change_json("generation_config.json", |config| {
        config["eos_token_id"] = json!([model.id("<b>")])
    });
    assert_eq!(ask(), "HelloMORE\n");
    model.change_json("config.json", |config| config["eos_token_id"] = json!(model.id("<a>")));
    assert_eq!(ask(), "Hello\n");
}
