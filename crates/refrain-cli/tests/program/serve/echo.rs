//! Prompts that `/v1/completions` returns with their texts.

use serde_json::{Value, json};

use super::Server;

#[test]
fn echo_returns_the_prompt_and_its_logprobs() {
    let server = Server::start(&["--ctx", "256"]);
    let path = "/v1/completions";
    let plain = json!({"prompt": "Once upon", "max_tokens": 6, "temperature": 0, "logprobs": 2});
    let (_, generated) = server.post(path, &plain);
    let text = format!("Once upon{}", generated["choices"][0]["text"].as_str().unwrap());
    let (status, echoed) = server.post(
        path,
        &json!({"prompt": text, "max_tokens": 0, "echo": true, "logprobs": 2}),
    );
    assert_eq!(status, 200, "{echoed}");
    let choice = &echoed["choices"][0];
    assert_eq!(choice["text"], text);
    let logprobs = |answer: &Value| {
        answer["choices"][0]["logprobs"]["token_logprobs"]
            .as_array()
            .unwrap()
            .clone()
    };
    let (all, known) = (logprobs(&echoed), logprobs(&generated));
    assert_eq!(
        (&all[0], &choice["logprobs"]["top_logprobs"][0]),
        (&Value::Null, &Value::Null)
    );
    for (echoed, known) in all[all.len() - known.len()..].iter().zip(&known) {
        let difference = echoed.as_f64().unwrap() - known.as_f64().unwrap();
        assert!(difference.abs() < 1e-3, "{all:?} {known:?}");
    }
    let usage = &echoed["usage"];
    assert_eq!(
        (&usage["completion_tokens"], &usage["prompt_tokens"]),
        (&json!(0), &json!(all.len())),
        "{echoed}"
    );
    let (_, echoed) = server.post(
        path,
        &json!({"prompt": "Once upon", "max_tokens": 6, "temperature": 0, "echo": true}),
    );
    assert_eq!(echoed["choices"][0]["text"], text);
    // What ends an answer does not end the prompt.
    let (_, echoed) = server.post(
        path,
        &json!({"prompt": "Once upon", "max_tokens": 6, "temperature": 0, "echo": true, "logprobs": 0, "stop": ["upon"],
            "guided_regex": "[a-z]{4}"}),
    );
    let answer = echoed["choices"][0]["text"].as_str().unwrap().strip_prefix("Once upon");
    assert!(answer.is_some_and(|answer| answer.len() == 4), "{echoed}");
    // The prompt is returned as it was written.
    let prompt = "<|im_start|>user\nHi<|im_end|>\n";
    let mut request = json!({"prompt": [prompt, "Grüße 😀 "], "max_tokens": 3, "temperature": 0, "echo": true});
    let (_, echoed) = server.post(path, &request);
    let texts = |answer: &Value| [0, 1].map(|at| answer["choices"][at]["text"].as_str().unwrap().to_owned());
    let [first, second] = texts(&echoed);
    assert!(first.starts_with(prompt) && second.starts_with("Grüße 😀 "), "{echoed}");
    request["logprobs"] = 0.into();
    let (_, scored) = server.post(path, &request);
    assert_eq!(texts(&scored), texts(&echoed));
    request["stream"] = true.into();
    let mut streamed = [String::new(), String::new()];
    for event in server.events(path, &request) {
        for choice in event["choices"].as_array().into_iter().flatten() {
            streamed[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
        }
    }
    assert_eq!(streamed, texts(&echoed));
}

/// The last token of a prompt stands where it is found in the text, also behind characters of several tokens.
#[test]
fn offsets_of_tokens_count_characters() {
    let server = Server::start(&["--ctx", "256"]);
    let prompt = "<|im_start|>Grüße aus Köln 😀 <|im_end|>";
    let request = json!({"prompt": prompt, "max_tokens": 3, "temperature": 0, "echo": true, "logprobs": 0});
    let (status, echoed) = server.post("/v1/completions", &request);
    assert_eq!(status, 200, "{echoed}");
    let choice = &echoed["choices"][0];
    let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
    let (tokens, offsets) = (&choice["logprobs"]["tokens"], &choice["logprobs"]["text_offset"]);
    for (token, offset) in tokens.as_array().unwrap().iter().zip(offsets.as_array().unwrap()) {
        let (token, offset) = (token.as_str().unwrap(), offset.as_u64().unwrap() as usize);
        if !token.contains(char::REPLACEMENT_CHARACTER) {
            let there: String = text[offset..].iter().take(token.chars().count()).collect();
            assert_eq!(there, token, "{echoed}");
        }
    }
}

#[test]
fn tokens_that_do_not_exist_are_refused_in_all_prompts() {
    let server = Server::start(&["--ctx", "64"]);
    for stream in [false, true] {
        let request = json!({"prompt": [[5, 6], [5, 99_999]], "max_tokens": 2, "stream": stream});
        let (status, reply) = server.post("/v1/completions", &request);
        assert_eq!(status, 400, "{reply}");
        assert!(reply["error"]["message"].as_str().unwrap().contains("99999"), "{reply}");
    }
}
