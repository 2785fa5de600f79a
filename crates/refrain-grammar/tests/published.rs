//! What published chat templates write for calls is what their dialects' grammars admit, so that a model is never made
//! to write calls in another way than it was trained to.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use refrain_engine::TokenConstraint;
use refrain_grammar::{AnswerForm, CallableFunction, GrammarCompiler, SpecialTokens};
use refrain_text::dialects::Dialect;
use refrain_text::{ChatTemplate, Conversation};
use serde_json::{Value, json};
use support::{BYTES, special_tokens, tokens};

/// Templates whose calls no grammar admits, and why.
const OTHERS: [(&str, &str); 1] = [(
    "openai-gpt-oss-120b",
    "the template writes earlier calls with another header than the model does",
)];

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    })
}

/// What a template writes for an answer with a call, and perhaps text before it; `None` if it writes no call.
fn answer(template: &ChatTemplate, text: &str, arguments: &Value) -> Option<String> {
    let function = json!({"name": "get_weather", "description": "Weather.", "parameters": schema()});
    let conversation = |answer: Option<Value>| Conversation {
        messages: [json!({"role": "user", "content": "Hi."})]
            .into_iter()
            .chain(answer)
            .collect(),
        tools: Some(vec![json!({"type": "function", "function": function})]),
        ..Conversation::default()
    };
    let call = json!({
        "id": "k3v9x1q7z", "type": "function", "function": {"name": "get_weather", "arguments": arguments},
    });
    let message = json!({"role": "assistant", "content": text, "tool_calls": [call]});
    let prompt = template.render(&conversation(None), true).ok()?;
    let whole = template.render(&conversation(Some(message)), false).ok()?;
    let answer = refrain_testing::continuation(&prompt, &whole).to_owned();
    answer.contains("Rome").then_some(answer)
}

/// Why a dialect's grammar does not admit an answer that a template writes.
fn refusal(dialect: &Dialect, answer: &str, special: &[String], strict: bool) -> Option<String> {
    let schema = schema();
    let functions = ["get_weather", "get_time"].map(|name| CallableFunction {
        name,
        parameters: Some(&schema),
        strict,
        input: None,
    });
    let form = AnswerForm {
        dialect,
        functions: &functions,
        several: true,
        text: None,
    };
    let tokenizer = support::tokenizer(special);
    let Some(grammar) = form.call_grammar(&SpecialTokens::of(&tokenizer)).unwrap() else {
        return Some("no grammar".to_owned());
    };
    let compiler = GrammarCompiler::new(&tokenizer).unwrap();
    let mut constraint = compiler.constraint(&grammar, None).unwrap();
    let (mut has_begun, mut taken) = (false, String::new());
    for token in tokens(answer, special) {
        if constraint.restricts() {
            has_begun = true;
            let allowed = support::allowed(&mut constraint, BYTES + special.len() as u32 + 1).unwrap();
            if !allowed.contains(&token) {
                return Some(format!("behind {taken:?} of {answer:?}"));
            }
        }
        taken.push(char::from(u8::try_from(token).unwrap_or(b'#')));
        constraint.accept(token).unwrap();
    }
    match (has_begun, constraint.restricts()) {
        (false, _) => Some(format!("no call begins in {answer:?}")),
        (true, true) => Some(format!("no call ends in {answer:?}")),
        (true, false) => None,
    }
}

#[test]
fn grammars_admit_the_calls_that_templates_write() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/llama.cpp/templates");
    let Ok(entries) = fs::read_dir(&folder) else {
        refrain_testing::skip("llama.cpp's templates are not below target: run references/fetch.sh");
        return;
    };
    let mut refused = BTreeMap::new();
    let mut admitted = 0;
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "jinja") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let template = ChatTemplate::new(fs::read_to_string(&path).unwrap(), BTreeMap::new());
        let dialect = Dialect::of(&template, None);
        let arguments = json!({"city": "Rome", "days": 3});
        let answers = [&arguments, &Value::String(arguments.to_string())]
            .into_iter()
            .find_map(|arguments| {
                let both = ["", "Let me see."].map(|text| answer(&template, text, arguments));
                both.iter().any(Option::is_some).then_some(both)
            });
        let Some(answers) = answers.filter(|_| dialect.knows_calls()) else {
            continue;
        };
        for (answer, strict) in answers
            .iter()
            .flatten()
            .flat_map(|answer| [(answer, true), (answer, false)])
        {
            for special in [special_tokens(&dialect), vec![]] {
                match refusal(&dialect, answer, &special, strict) {
                    Some(why) if OTHERS.iter().all(|(other, _)| *other != name) => {
                        drop(refused.insert(name.clone(), why))
                    }
                    _ => admitted += 1,
                }
            }
        }
    }
    assert!(
        refused.is_empty(),
        "{admitted} admitted, {} refused: {refused:#?}",
        refused.len()
    );
    assert!(admitted > 100, "{admitted}");
}
