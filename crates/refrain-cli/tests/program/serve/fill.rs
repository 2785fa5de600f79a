//! Text between two texts: `/infill` of llama-server, `suffix` of completions and of Ollama's clients.

use serde_json::json;

use super::Server;
use crate::scripted::{Script, Text, Token};
use crate::support::refrain;

const MARKS: [&str; 4] = ["<|fim_prefix|>", "<|fim_suffix|>", "<|file_sep|>", "<|repo_name|>"];

#[test]
fn gaps_are_filled_where_the_tokenizer_has_the_marks() {
    let script = Script {
        start: Token("<|fim_middle|>"),
        says: vec![Text("gap"), Text("fill"), Token("<|file_sep|>"), Text("other")],
        special: MARKS.to_vec(),
        ..Script::default()
    };
    let model = script.write();
    let server = Server::of(refrain(&[
        "serve",
        model.path(),
        "--port",
        "0",
        "--device",
        "cpu",
        "-q",
    ]));
    let count = |text: &str| {
        server
            .post("/tokenize", &json!({"content": text, "add_special": false}))
            .1["count"]
            .clone()
    };
    let request = json!({"input_prefix": "ab", "input_suffix": "c", "n_predict": 8, "temperature": 0});
    let (status, filled) = server.post("/infill", &request);
    assert_eq!(status, 200, "{filled}");
    assert_eq!(filled["content"], "gapfill", "it ends where another file begins");
    let tokens = |texts: &[&str]| texts.iter().map(|text| count(text).as_u64().unwrap()).sum::<u64>();
    assert_eq!(filled["tokens_evaluated"], tokens(&["ab", "c"]) + 3);
    // Marks in the texts are text, and other files come first.
    let mut request = request.clone();
    request["input_prefix"] = "<|fim_middle|>".into();
    request["input_extra"] = json!([{"filename": "f.rs", "text": "x"}]);
    let (_, filled) = server.post("/infill", &request);
    let texts = ["myproject\n", "f.rs\n", "x", "filename\n", "<|fim_middle|>", "c"];
    let counted = server
        .post("/tokenize", &json!({"content": "<|fim_middle|>", "add_special": true}))
        .1["count"]
        .clone();
    assert_eq!(counted, 1, "the text of the mark would be one token");
    assert_eq!(filled["tokens_evaluated"], tokens(&texts) + 6, "{filled}");

    let completion = json!({"prompt": "ab", "suffix": "c", "max_tokens": 8, "temperature": 0});
    let (_, answer) = server.post("/v1/completions", &completion);
    assert_eq!(answer["choices"][0]["text"], "gapfill", "{answer}");
    let several = json!({"prompt": ["a", "b"], "suffix": "c"});
    assert_eq!(server.post("/v1/completions", &several).1["error"]["param"], "suffix");
    let ollama = json!({"prompt": "ab", "suffix": "c", "stream": false, "options": {"temperature": 0}});
    assert_eq!(server.post("/api/generate", &ollama).1["response"], "gapfill");
    let shown = server.post("/api/show", &json!({})).1;
    assert!(
        shown["capabilities"].as_array().unwrap().contains(&json!("insert")),
        "{shown}"
    );
}

#[test]
fn models_without_the_marks_refuse_gaps() {
    let server = Server::start(&[]);
    for (path, body, field) in [
        (
            "/infill",
            json!({"input_prefix": "a", "input_suffix": "b"}),
            "input_prefix",
        ),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"}), "suffix"),
    ] {
        let (status, refused) = server.post(path, &body);
        assert_eq!((status, &refused["error"]["param"]), (400, &json!(field)), "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("fill-in-the-middle"), "{message}");
    }
}
