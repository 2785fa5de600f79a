//! Chat templates compared with transformers.

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

/// Returns the template of a directory of expectations; `None` if it has not been fetched.
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
fn renders_conversations_as_transformers_does() {
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

/// Describes how a rendering differs from the expected one.
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
        // Where Jinja fails because a value is not a list, the engine may treat it as an empty one.
        (Ok(_), None, None) => None,
        (Ok(_), None, Some(raised)) => Some(format!("renders instead of {raised}")),
    }
}

fn render(source: &str, conversation: &Value) -> Result<String, refrain_formats::Error> {
    let special = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
    ChatTemplate::new(source, special).render(&Conversation::from_json(&conversation.to_string())?, true)
}

#[test]
fn evaluates_expressions_and_white_space_as_jinja_does() {
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
fn prints_values_as_python_does() {
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
        ("{{ strftime_now('%f') | length }} {{ strftime_now('%Z') }}|", "6 |"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source, &conversation).unwrap(), expected, "{source}");
    }
}

/// The sandbox of transformers forbids these; llama.cpp has them, and its templates for Kimi K2 need them.
#[test]
fn methods_change_the_variable_that_holds_a_list_or_dictionary() {
    let conversation = json!([{"role": "user", "content": "hi"}]);
    let cases = [
        ("{% set a = [1] %}{% set _ = a.append(2) %}{{ a }}{{ _ }}", "[1, 2]None"),
        (
            "{% set a = [] %}{% for i in [1, 2] %}{% if a.append(i) %}{% endif %}{% endfor %}{{ a }}",
            "[1, 2]",
        ),
        (
            "{% set ns = namespace(ids=[1, 2, 3]) %}{{ ns.ids.pop(0) }}{{ ns.ids.pop() }}{{ ns.ids }}",
            "13[2]",
        ),
        (
            "{% set a = [2] %}{% do a.extend([3, 4]) %}{% do a.insert(0, 1) %}{% do a.insert(9, 5) %}\
             {% do a.insert(-1, 0) %}{% do a.remove(3) %}{{ a }}",
            "[1, 2, 4, 0, 5]",
        ),
        (
            "{% set a = [2, 3, 1] %}{% do a.sort() %}{{ a }}{% do a.sort(reverse=true) %}{{ a }}\
             {% do a.reverse() %}{{ a }}{% do a.clear() %}{{ a }}",
            "[1, 2, 3][3, 2, 1][1, 2, 3][]",
        ),
        (
            "{% set d = {'l': [1]} %}{% do d.l.append(2) %}{% do d['l'].append(3) %}{% do d.update(b=4) %}\
             {{ d.pop('l') }}{{ d.pop('l', 0) }}{{ d.setdefault('c', 5) }}{{ d }}{{ d.popitem() }}{{ d }}",
            "[1, 2, 3]05{'b': 4, 'c': 5}('c', 5){'b': 4}",
        ),
        (
            "{% set a = [[1], [2]] %}{% do a[-1].append(3) %}{{ a }}{% set a = [a] %}{% do a.append(a) %}{{ a }}",
            "[[1], [2, 3]][[[1], [2, 3]], [[[1], [2, 3]]]]",
        ),
        ("{{ messages.pop().content }}{{ messages }}", "hi[]"),
        ("{% set d = {'append': 1} %}{{ d.append }}", "1"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source, &conversation).unwrap(), expected, "{source}");
    }
}

/// SmolLM3's own template reads `xml_tools` and `python_tools`.
#[test]
fn tools_are_passed_under_the_names_that_the_template_reads() {
    let conversation = json!({"messages": [], "tools": [{"name": "f"}]});
    let both = "{% if xml_tools %}X{{ xml_tools[0].name }}{% endif %}{% if python_tools %}P{% endif %}";
    assert_eq!(render(both, &conversation).unwrap(), "Xf");
    assert_eq!(render("{{ python_tools[0].name }}", &conversation).unwrap(), "f");
    assert_eq!(render(both, &json!({"messages": []})).unwrap(), "");
    let given = json!({"messages": [], "tools": [{"name": "f"}], "xml_tools": [{"name": "g"}]});
    assert_eq!(render(both, &given).unwrap(), "Xg");
}

#[test]
fn failing_templates_state_the_reason() {
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
        ("{{ lipsum() }}", "lipsum writes random text"),
        ("{{ [1].append(2) }}", "only a list in a variable can be changed"),
        (
            "{% set a = [1] %}\n{{ a.pop(1) }}",
            "line 2: invalid operation: pop index out of range",
        ),
        ("{% set a = {} %}{{ a.pop('x') }}", "the key is not in the dictionary"),
        ("{% for i in range(10) %}{{ i }", "chat template: "),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "chat template: "),
        (endless, "the template seems to loop forever"),
    ];
    for (source, expected) in cases {
        let found = message(render(source, &conversation));
        assert!(found.contains(expected), "{source}: {found:?} lacks {expected:?}");
    }
}

#[test]
fn rejects_invalid_messages() {
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
fn named_templates_and_files_have_the_precedence_of_transformers() {
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
