//! Ollama's API, as its command line and its Go package use it.

use serde_json::{Value, json};

use super::anthropic::{VERBOSE, with_template};
use super::multiple_models::two;
use super::{Server, chat, content};

/// Bodies of Ollama's command line: two names for the model, nulls and empty strings.
fn go_bodies() -> [(&'static str, Value); 6] {
    [
        (
            "/api/show",
            json!({"model": "demo", "system": "", "template": "", "verbose": false, "options": null, "name": ""}),
        ),
        (
            "/api/generate",
            json!({"model": "demo", "prompt": "", "suffix": "", "system": "", "template": "", "options": null}),
        ),
        (
            "/api/generate",
            json!({"model": "demo", "name": "", "prompt": "hi", "images": null, "raw": null, "context": null,
                   "keep_alive": null, "format": null, "think": null, "stream": false, "options": {"num_predict": 2}}),
        ),
        (
            "/api/chat",
            json!({"model": "demo", "messages": [{"role": "user", "content": "hi"}], "options": null, "tools": null}),
        ),
        (
            "/api/pull",
            json!({"model": "demo", "username": "", "password": "", "name": ""}),
        ),
        (
            "/api/embed",
            json!({"model": "demo", "input": "a", "options": null, "truncate": null}),
        ),
    ]
}

#[test]
fn bodies_of_ollamas_own_programs_are_accepted() {
    let server = Server::start(&[]);
    for (path, body) in go_bodies() {
        let (status, reply) = server.ask("POST", path, "", &body.to_string());
        assert_eq!(status, 200, "{path} {body}: {reply}");
        assert!(!reply.contains("\"error\""), "{path} {body}: {reply}");
    }
    for body in [
        json!({"model": "demo", "messages": null}),
        json!({"name": "demo", "model": "", "messages": []}),
    ] {
        let (status, loaded) = server.post("/api/chat", &body);
        assert_eq!((status, &loaded["done_reason"]), (200, &json!("load")), "{loaded}");
        assert_eq!(loaded["message"]["content"], "");
    }
    let (_, unloaded) = server.post("/api/generate", &json!({"model": "demo", "keep_alive": 0}));
    assert_eq!(unloaded["done_reason"], "unload");
    let (status, reply) = server.post("/api/show", &json!({"name": "gpt-9"}));
    assert!(
        status == 404 && reply["error"].as_str().unwrap().contains("gpt-9"),
        "{reply}"
    );
}

#[test]
fn digests_tell_models_apart() {
    let server = two(&[]);
    let digests = |path: &str| -> Vec<String> {
        let listed: Value = serde_json::from_str(&server.get(path).1).expect("JSON");
        let models = listed["models"].as_array().expect("a list").iter();
        models
            .map(|model| model["digest"].as_str().expect("a digest").to_owned())
            .collect()
    };
    let tags = digests("/api/tags");
    assert_ne!(tags[0], tags[1]);
    for digest in &tags {
        let is_hex = digest
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        assert!(digest.len() == 64 && is_hex, "{digest}");
    }
    assert_eq!(digests("/api/ps")[0], tags[0]);
}

#[test]
fn a_model_is_described_by_what_it_can_do() {
    let server = Server::start(&[]);
    let version: Value = serde_json::from_str(&server.get("/api/version").1).expect("JSON");
    let parts: Vec<u32> = version["version"]
        .as_str()
        .unwrap()
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect();
    assert!(parts >= vec![0, 13, 4], "{version}");
    assert_eq!(version["refrain"], env!("CARGO_PKG_VERSION"));
    let (_, shown) = server.post("/api/show", &json!({"model": "demo"}));
    assert_eq!(shown["capabilities"], json!(["completion"]));
    assert!(shown["template"].as_str().unwrap().contains("<|im_start|>"), "{shown}");
    assert_eq!(shown["model_info"]["qwen3.embedding_length"], 256);
    let template = "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{% for m in messages %}{{ m.content }}\
                    {% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": \
                    {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}\
                    {% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}";
    let (_copy, server) = with_template(template);
    let (_, shown) = server.post("/api/show", &json!({"model": "demo"}));
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking"]));
}

#[test]
fn options_are_followed_as_ollama_has_them() {
    let server = Server::start(&[]);
    let ask = |options: Value| {
        let body = json!({"prompt": "Tell me a story.", "stream": false, "options": options});
        server.post("/api/generate", &body)
    };
    for options in [
        json!({"top_k": 40.0, "num_predict": 3.0, "seed": 7.0}),
        json!({"num_predict": 3, "seed": -1, "num_ctx": 4096, "num_gpu": 1, "temperature": null}),
        json!({"num_predict": 3, "repeat_last_n": -1, "repeat_penalty": 1.1}),
        json!({"num_predict": 3, "repeat_last_n": 0, "repeat_penalty": 1.1, "top_p": 0}),
    ] {
        let (status, answer) = ask(options.clone());
        assert_eq!((status, &answer["eval_count"]), (200, &json!(3)), "{options} {answer}");
    }
    for count in [-1, -2] {
        let (status, answer) = ask(json!({"num_predict": count, "temperature": 0, "stop": ["."]}));
        assert_eq!((status, &answer["done_reason"]), (200, &json!("stop")), "{answer}");
    }
    // A strong penalty changes the text only if it counts tokens.
    let text = |last: i32| {
        let options = json!({"num_predict": 40, "temperature": 0, "repeat_penalty": 9.0, "repeat_last_n": last});
        ask(options).1["response"].as_str().expect("a text").to_owned()
    };
    assert_ne!(text(0), text(-1));
    for (options, name) in [
        (json!({"repeat_last_n": -2}), "repeat_last_n"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"num_predict": "x"}), "max_tokens"),
    ] {
        let (status, reply) = ask(options.clone());
        let error = reply["error"].as_str().expect("an error");
        assert!(
            status == 400 && error.contains("options") && error.contains(name),
            "{options} {reply}"
        );
    }
}

#[test]
fn a_conversation_goes_on_by_its_context() {
    let server = Server::start(&[]);
    let ask = |body: Value| {
        let (status, answer) = server.post("/api/generate", &body);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let options = json!({"temperature": 0, "num_predict": 30});
    let first = ask(json!({"prompt": "What is 12 + 30?", "stream": false, "options": options}));
    let count = |answer: &Value| answer["context"].as_array().expect("a context").len() as u64;
    let tokens = |answer: &Value| ["prompt_eval_count", "eval_count"].map(|name| answer[name].as_u64().unwrap());
    assert_eq!(count(&first), tokens(&first).iter().sum::<u64>());
    let next =
        ask(json!({"prompt": "What is 1 + 1?", "context": first["context"], "stream": false, "options": options}));
    let alone = ask(json!({"prompt": "What is 1 + 1?", "stream": false, "options": options}));
    assert_eq!(tokens(&next)[0], count(&first) + tokens(&alone)[0]);
    let raw = ask(json!({"prompt": "Once", "raw": true, "stream": false, "options": options}));
    assert!(raw["context"].is_null(), "{raw}");
    let streamed = server.lines(
        "/api/generate",
        &json!({"prompt": "What is 12 + 30?", "options": options}),
    );
    assert_eq!(streamed[streamed.len() - 1]["context"], first["context"]);
    let (status, reply) = server.post("/api/generate", &json!({"prompt": "a", "context": "x"}));
    assert!(
        status == 400 && reply["error"].as_str().unwrap().contains("context"),
        "{reply}"
    );
}

#[test]
fn levels_of_reasoning_and_earlier_reasoning_reach_the_template() {
    let (_copy, server) = with_template(VERBOSE);
    let user = json!({"role": "user", "content": "q"});
    let tokens = |messages: Value, think: Value| {
        let options = json!({"num_predict": 1});
        let body = json!({"messages": messages, "think": think, "stream": false, "options": options});
        let (status, answer) = server.post("/api/chat", &body);
        assert_eq!(status, 200, "{answer}");
        answer["prompt_eval_count"].as_u64().unwrap()
    };
    let by_anthropic = |effort: &str| {
        let config = json!({"effort": effort});
        server.input_tokens(&json!({"messages": [user], "thinking": {"type": "adaptive"}, "output_config": config}))
    };
    for level in ["low", "medium", "high"] {
        assert_eq!(tokens(json!([user]), json!(level)), by_anthropic(level), "{level}");
    }
    assert!(tokens(json!([user]), json!("high")) > tokens(json!([user]), json!(true)));
    let (status, reply) = server.post("/api/chat", &json!({"messages": [user], "think": "often"}));
    assert!(
        status == 400 && reply["error"].as_str().unwrap().starts_with("think: "),
        "{reply}"
    );
    let answer = |name: &str| json!([user, {"role": "assistant", "content": "a", (name): "hm hm"}, user]);
    assert_eq!(
        tokens(answer("thinking"), Value::Null),
        tokens(answer("reasoning_content"), Value::Null)
    );
    assert!(tokens(answer("thinking"), Value::Null) > tokens(answer("other"), Value::Null));
}

#[test]
fn unsupported_requests_are_refused_by_name() {
    let server = Server::start(&[]);
    let user = |images: Value| json!({"messages": [{"role": "user", "content": "a", "images": images}]});
    for (path, body, word) in [
        ("/api/generate", json!({"prompt": "a", "suffix": "b"}), "suffix"),
        (
            "/api/generate",
            json!({"prompt": "a", "template": "{{ .Prompt }}"}),
            "template",
        ),
        ("/api/generate", json!({"prompt": "a", "images": ["x"]}), "images"),
        ("/api/chat", user(json!(["x"])), "images"),
        ("/api/chat", json!({"messages": 7}), "messages"),
        ("/api/chat", json!({"messages": [], "keep_alive": "soon"}), "keep_alive"),
        ("/api/chat", json!({"messages": [], "options": 7}), "options"),
    ] {
        let (status, reply) = server.post(path, &body);
        let error = reply["error"].as_str().expect("an error");
        assert!(status == 400 && error.contains(word), "{body}: {status} {reply}");
    }
    // An empty list of images is none.
    assert!(server.lines("/api/chat", &user(json!([]))).len() > 1);
    let (status, _) = server.ask("HEAD", "/api/blobs/sha256:00", "", "");
    assert_eq!(status, 404, "no blob is here");
}

#[test]
fn ollama_clients_can_list_and_show_the_model() {
    let server = Server::start(&[]);
    let get = |path: &str| serde_json::from_str::<Value>(&server.get(path).1).expect("JSON");
    assert_eq!(get("/api/version")["refrain"], env!("CARGO_PKG_VERSION"));
    let tags = get("/api/tags");
    assert_eq!(tags["models"][0]["name"], "demo");
    assert_eq!(tags["models"][0]["details"]["family"], "qwen3");
    assert_eq!(get("/api/ps")["models"][0]["context_length"], 1024);
    let (_, shown) = server.post("/api/show", &json!({"model": "demo:latest"}));
    assert_eq!(shown["model_info"]["general.architecture"], "qwen3");
}

#[test]
fn ollama_and_openai_clients_get_the_same_text() {
    let server = Server::start(&[]);
    let question = "What is 348 + 276?";
    let (_, expected) = server.post("/v1/chat/completions", &chat(question));
    let messages = json!([{"role": "user", "content": question}]);
    let options = json!({"temperature": 0, "num_predict": -1});
    let whole = json!({"model": "demo:latest", "messages": messages, "options": options, "stream": false});
    let (status, answer) = server.post("/api/chat", &whole);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["message"]["content"], content(&expected));
    assert_eq!(
        (&answer["done"], &answer["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    assert_eq!(answer["eval_count"], expected["usage"]["completion_tokens"]);
    assert_eq!(answer["prompt_eval_count"], expected["usage"]["prompt_tokens"]);

    // Streams by default.
    let streamed = server.lines("/api/chat", &json!({"messages": messages, "options": options}));
    let texts = streamed.iter().filter_map(|line| line["message"]["content"].as_str());
    assert_eq!(texts.collect::<String>(), content(&expected));
    let last = &streamed[streamed.len() - 1];
    assert!(streamed.len() > 2 && streamed[0]["done"] == false, "{streamed:?}");
    assert_eq!(
        (&last["done"], &last["eval_count"]),
        (&json!(true), &answer["eval_count"])
    );

    let request = server.lines("/api/generate", &json!({"prompt": question, "options": options}));
    let texts = request.iter().filter_map(|line| line["response"].as_str());
    assert_eq!(texts.collect::<String>(), content(&expected));
    let options = json!({"num_predict": 3, "temperature": 0});
    let raw = json!({"prompt": "Once upon", "raw": true, "stream": false, "options": options});
    let (_, answer) = server.post("/api/generate", &raw);
    assert_eq!(
        (&answer["eval_count"], &answer["done_reason"]),
        (&json!(3), &json!("length"))
    );
    let (_, loaded) = server.post("/api/generate", &json!({"model": "demo"}));
    assert_eq!(
        (&loaded["done_reason"], &loaded["response"]),
        (&json!("load"), &json!(""))
    );
}

#[test]
fn ollama_clients_get_errors() {
    let server = Server::start(&[]);
    for (path, body, status, why) in [
        ("/api/chat", "{", 400, "EOF"),
        ("/api/chat", "{\"model\": \"gpt-9\", \"messages\": []}", 404, "gpt-9"),
        ("/api/chat", "{\"messages\": [7]}", 400, "message 0 is no object"),
        (
            "/api/chat",
            "{\"messages\": [{\"role\": \"user\", \"images\": [\"x\"]}]}",
            400,
            "images",
        ),
        (
            "/api/generate",
            "{\"prompt\": \"a\", \"format\": \"poem\"}",
            400,
            "format",
        ),
        (
            "/api/generate",
            "{\"prompt\": \"a\", \"options\": {\"temperature\": \"hot\"}}",
            400,
            "options",
        ),
        ("/api/generate", "{\"prompt\": \"a\", \"suffix\": \"b\"}", 400, "suffix"),
    ] {
        let (found, reply) = server.ask("POST", path, "", body);
        let reply: Value = serde_json::from_str(&reply).expect(&reply);
        let reply = reply["error"].as_str().expect("a text");
        assert!(found == status && reply.contains(why), "{body}: {found} {reply}");
    }
}
