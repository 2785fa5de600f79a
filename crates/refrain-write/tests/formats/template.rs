//! Chat templates as transformers renders them.

use std::collections::BTreeMap;
use std::path::Path;

use refrain_text::{ChatTemplate, Conversation, TokenizerFiles};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fetched::fetched;
use crate::support::{fixtures, message};

#[derive(Deserialize)]
struct Given {
    input: Value,
    add_generation_prompt: bool,
}

#[derive(Deserialize)]
struct Expected {
    name: String,
    rendered: Option<String>,
    error: Option<String>,
}

/// The template that a directory of expectations is about, `None` if it has not been fetched.
fn template(directory: &Path) -> Option<ChatTemplate> {
    let name = directory.file_name().unwrap().to_str().unwrap();
    if fixtures().join("tokenizers").join(name).exists() {
        let tokenizer = fetched(&format!("tokenizers/{name}"))?;
        return TokenizerFiles::open(&tokenizer).unwrap().chat_template().unwrap();
    }
    let own = directory.join("template.jinja");
    let source = if own.exists() {
        own
    } else {
        fetched(&format!("llama.cpp/templates/{name}.jinja"))?
    };
    let source = std::fs::read_to_string(source).unwrap();
    let special = TokenizerFiles::open(&fixtures().join("tokenizers/small-llama3"));
    Some(ChatTemplate::new(source, special.unwrap().special_tokens().unwrap()))
}

#[test]
fn conversations_render_as_by_transformers() {
    let templates = fixtures().join("templates");
    let given = std::fs::read(templates.join("conversations.json")).unwrap();
    let given: BTreeMap<String, Given> = serde_json::from_slice(&given).unwrap();
    let noon: jiff::civil::DateTime = "2024-07-26T12:00:00".parse().unwrap();
    let noon = noon.to_zoned(jiff::tz::TimeZone::system()).unwrap();
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(templates).unwrap() {
        let directory = entry.unwrap().path();
        let Ok(expected) = std::fs::read(directory.join("expected.json")) else {
            continue;
        };
        let Some(template) = template(&directory) else { continue };
        let template = template.at(noon.timestamp().into());
        let expected: Vec<Expected> = serde_json::from_slice(&expected).unwrap();
        for case in expected {
            let Given {
                input,
                add_generation_prompt,
            } = &given[&case.name];
            let conversation = Conversation::from_json(&input.to_string()).unwrap();
            let found = template.render(&conversation, *add_generation_prompt);
            if let Some(difference) = difference(&found, &case) {
                wrong.push(format!("{} by {}: {difference}", case.name, directory.display()));
            }
            checked += 1;
        }
    }
    assert!(checked > 100);
    assert!(wrong.is_empty(), "{} of {checked}: {}", wrong.len(), wrong.join("\n"));
}

/// What is wrong with a rendering, shortly.
fn difference(found: &Result<String, refrain_formats::Error>, expected: &Expected) -> Option<String> {
    match (found, &expected.rendered, &expected.error) {
        (Ok(found), Some(rendered), _) if found == rendered => None,
        (Ok(found), Some(rendered), _) => {
            let same = found.chars().zip(rendered.chars()).take_while(|(a, b)| a == b).count();
            let around = |text: &str| text.chars().skip(same.saturating_sub(40)).take(80).collect::<String>();
            Some(format!("{:?} instead of {:?}", around(found), around(rendered)))
        }
        (Err(error), Some(_), _) => Some(error.to_string()),
        (Err(found), None, Some(raised)) if !found.to_string().contains(raised) => {
            Some(format!("{found} instead of {raised}"))
        }
        (Err(_), None, _) => None,
        // Where Jinja breaks down on what is no list, the engine may take it for an empty one.
        (Ok(_), None, None) => None,
        (Ok(_), None, Some(raised)) => Some(format!("renders instead of {raised}")),
    }
}

fn render(source: &str, conversation: &Value) -> Result<String, refrain_formats::Error> {
    let special = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
    ChatTemplate::new(source, special).render(&Conversation::from_json(&conversation.to_string())?, true)
}

#[test]
fn expressions_and_white_space_come_out_as_by_jinja() {
    let cases = std::fs::read(fixtures().join("templates/expressions.json")).unwrap();
    let cases: Vec<(String, Option<String>)> = serde_json::from_slice(&cases).unwrap();
    assert!(cases.len() > 1000);
    let nothing = Conversation::default();
    let mut wrong = Vec::new();
    for (source, expected) in cases {
        let found = ChatTemplate::new(source.as_str(), BTreeMap::new()).render(&nothing, true);
        match (&found, &expected) {
            (Ok(found), Some(expected)) if found == expected => {}
            (Err(_), None) => {}
            _ => wrong.push(format!("{source:?}: {found:?} instead of {expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn values_are_written_as_python_writes_them() {
    let conversation = json!({
        "messages": [{"role": "user", "content": " hi\u{1c} "}],
        "x": {"b": 1, "a": [true, null, 1.0, 1e-7, 1e16, "it's \"é\"\n"]},
    });
    let cases = [
        (
            "{{ x | tojson }}",
            r#"{"b": 1, "a": [true, null, 1.0, 1e-07, 1e+16, "it's \"é\"\n"]}"#,
        ),
        ("{{ x.a[5] | tojson(ensure_ascii=true) }}", r#""it's \"\u00e9\"\n""#),
        (
            "{{ {'k': [1, {}], 'e': []} | tojson(indent=2) }}",
            "{\n  \"k\": [\n    1,\n    {}\n  ],\n  \"e\": []\n}",
        ),
        (
            "{{ x | tojson(separators=(',', ':'), sort_keys=true) }}",
            r#"{"a":[true,null,1.0,1e-07,1e+16,"it's \"é\"\n"],"b":1}"#,
        ),
        (
            "{{ x }}",
            r#"{'b': 1, 'a': [True, None, 1.0, 1e-07, 1e+16, 'it\'s "é"\n']}"#,
        ),
        (
            "{{ ['a\u{200d}\u{2028}\u{e0001}\u{301}\0', '\"'] }}",
            r#"['a\u200d\u2028\U000e0001́\x00', '"']"#,
        ),
        ("{{ '{\\n'|indent(4, first=true) }}}", "    {\n}"),
        (
            "{{ 'a\\n\\nb'|indent('> ') }}|{{ 'a\\n\\nb'|indent(width=1, blank=true) }}",
            "a\n\n> b|a\n \n b",
        ),
        (
            "{{ (1, 'a') }} {{ (1,) }} {{ none }} {{ 0.1 + 0.2 }}",
            "(1, 'a') (1,) None 0.30000000000000004",
        ),
        (
            "[{{ messages[0].content.strip() }}][{{ messages[0]['content'] | trim }}]",
            "[hi][hi]",
        ),
        (
            "{{ bos_token }}{{ tools is none }}{{ add_generation_prompt }}",
            "<s>TrueTrue",
        ),
        ("  {% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),
        (
            "{{ 'a b'.split(maxsplit=1) }}{{ '<x>y'.partition('>') }}",
            "['a', 'b']('<x', '>', 'y')",
        ),
        ("{% generation %}{{ 1 }}{% endgeneration %}!", "1!"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source, &conversation).unwrap(), expected, "{source}");
    }
}

#[test]
fn templates_that_fail_say_why() {
    let conversation = json!([{"role": "user", "content": "hi"}]);
    let endless = "{% macro m(n) %}{% for i in range(1000) %}{% for j in range(1000) %}\
                   {% for k in range(1000) %}x{% endfor %}{% endfor %}{% endfor %}{% endmacro %}{{ m(1) }}";
    let cases = [
        ("{% if %}", "chat template: line 1: does not parse: "),
        ("a\n{{ 'x' | nofilter }}", "chat template: line 2: unknown filter: "),
        (
            "{{ raise_exception('no ' ~ 1) }}",
            "chat template: refuses these messages: no 1",
        ),
        ("{{ a.b.c }}", "chat template: line 1: undefined value"),
        ("{{ 1 + 'a' }}", "chat template: line 1: invalid operation: "),
        ("{{ missing | tojson }}", "the value given to tojson is undefined"),
        ("{% for i in range(10) %}{{ i }", "chat template: "),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "chat template: "),
        (endless, "the template seems to loop without end"),
    ];
    for (source, expected) in cases {
        let found = message(render(source, &conversation));
        assert!(found.contains(expected), "{source}: {found:?} lacks {expected:?}");
    }
}

#[test]
fn messages_that_are_none_say_why() {
    let cases = [
        ("", "messages: not valid JSON: "),
        (
            "7",
            "messages: a number is neither a list of messages nor an object with \"messages\"",
        ),
        ("{}", "messages: the object has no \"messages\""),
        (r#"{"messages": 5}"#, "messages: \"messages\" is a number, not a list"),
        (
            r#"["hi"]"#,
            "messages: message 0 is a string, not an object with role and content",
        ),
        (
            r#"{"messages": [], "tools": {}}"#,
            "messages: \"tools\" is a object, not a list",
        ),
    ];
    for (text, expected) in cases {
        let found = message(Conversation::from_json(text));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[test]
fn named_templates_and_files_take_the_place_that_transformers_gives_them() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let list = json!({
        "bos_token": {"__type": "AddedToken", "content": "<b>"},
        "chat_template": [
            {"name": "default", "template": "D{{ bos_token }}"},
            {"name": "tool_use", "template": "T"}
        ]
    });
    write("tokenizer_config.json", &list.to_string());
    let plain = Conversation::from_prompt(Some("be kind"), "hi");
    assert_eq!(plain.messages.len(), 2);
    let tools = Conversation {
        tools: Some(vec![]),
        ..plain.clone()
    };
    let render = |conversation: &Conversation| {
        let files = TokenizerFiles::open(directory.path()).unwrap();
        files
            .chat_template()
            .unwrap()
            .unwrap()
            .render(conversation, true)
            .unwrap()
    };
    assert_eq!(render(&plain), "D<b>");
    assert_eq!(render(&tools), "T");
    write("chat_template.jinja", "file {{ messages[1].content }}");
    assert_eq!(render(&plain), "file hi");
    assert_eq!(render(&tools), "file hi");
    write("chat_template.jinja", "");
    write("tokenizer_config.json", r#"{"chat_template": 5}"#);
    std::fs::remove_file(directory.path().join("chat_template.jinja")).unwrap();
    let files = TokenizerFiles::open(directory.path()).unwrap();
    let found = message(files.chat_template());
    assert!(found.contains("chat_template is a number, not a template"), "{found}");
    write("tokenizer_config.json", "{}");
    assert!(files.chat_template().unwrap().is_none());
}
