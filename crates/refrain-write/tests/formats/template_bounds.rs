//! Hostile templates: each ends soon, in little memory, with a matching error.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use refrain_testing::sample;
use refrain_text::{ChatTemplate, Conversation};

/// A hang guard, not a benchmark: each template takes seconds at most on an idle machine.
const MAX_TIME: Duration = Duration::from_secs(600);

/// Stands for whichever limit is reached first.
const LIMIT: &str = "a limit";
const LIMITS: [&str; 4] = [
    "of memory",
    "a text of more than 32 MiB",
    "seems to loop forever",
    "nesting exceeds",
];

/// Renders a template; returns a description if the result is unexpected or it took too long.
fn verdict(source: &str, expected: Result<&str, &str>) -> Option<String> {
    let head: String = source.chars().take(200).collect();
    let start = Instant::now();
    let found = render(source);
    if start.elapsed() > MAX_TIME {
        return Some(format!("{head}: took {:?}", start.elapsed()));
    }
    let matches = match (&found, expected) {
        (Ok(found), Ok(expected)) => found.trim() == expected,
        (Err(found), Err(LIMIT)) => LIMITS.iter().any(|limit| found.to_string().contains(limit)),
        (Err(found), Err(expected)) => found.to_string().contains(expected) && found.to_string().len() < 2000,
        _ => false,
    };
    let found: String = found
        .unwrap_or_else(|error| error.to_string())
        .chars()
        .take(300)
        .collect();
    (!matches).then(|| format!("{head}: {found} instead of {expected:?}"))
}

fn assert_none_failed(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn render(source: &str) -> Result<String, refrain_formats::Error> {
    ChatTemplate::new(source, BTreeMap::new()).render(&Conversation::from_prompt(Some("be kind"), "hi"), true)
}

/// A loop of a million iterations, enough to exceed the step limit.
fn million_times(body: &str) -> String {
    format!(
        "{{% set ns = namespace(x='x', l=[], d={{}}, n=0) %}}{{% for i in range(1000) %}}{{% for j in range(1000) %}}{body}{{% endfor %}}{{% endfor %}}"
    )
}

/// Loop bodies that make a value grow in each iteration.
const GROWTH: [&str; 33] = [
    "{% set ns.x = ns.x ~ ns.x %}",
    "{% set ns.x = ns.x + ns.x %}",
    "{% set ns.x = [ns.x, ns.x] | join %}",
    "{% set ns.x = ns.x.join([ns.x, ns.x]) %}",
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}",
    "{% set ns.x = ns.x | replace('x', 'xx') %}",
    "{% set ns.x = ns.x.replace('x', 'xx') %}",
    "{% set ns.x = ns.x.replace('', 'xx') %}",
    "{% set ns.x = ns.x * 2 %}",
    "{% set ns.x = '%s%s' % (ns.x, ns.x) %}",
    "{% set ns.x = '%s%s' | format(ns.x, ns.x) %}",
    "{% set ns.x = '{0}{0}'.format(ns.x) %}",
    "{% macro m() %}{{ ns.x }}{{ ns.x }}{% endmacro %}{% set ns.x = m() %}",
    "{% set ns.x = (ns.x ~ '<') | escape %}",
    "{% set ns.x = [ns.x, ns.x] | string %}",
    "{% set ns.x = [ns.x, ns.x] | tojson %}",
    "{% set ns.x = (ns.x ~ '\\n' ~ ns.x) | indent(3) %}",
    "{% set ns.x = '\\t'.expandtabs(100) ~ ns.x ~ ns.x %}",
    "{% set ns.l = ns.l + ns.l + [1] %}",
    "{% set ns.l = (ns.l + [1]) * 2 %}",
    "{% set ns.l = ns.l + ['x' * 1000000] %}",
    "{% set ns.l = ns.l + [[]] %}",
    "{% set ns.n = namespace(a=ns.n) %}",
    "{% set ns.l = [ns.l, ns.l] %}",
    "{% set ns.d = {'a': ns.d, 'b': ns.d} %}",
    "{% set ns.d = dict(ns.d, **{'k' ~ i ~ j: 'x' * 1000}) %}",
    "{{ 'x' * 1000 }}",
    "{% set ns.l = ns.l + [range(100000)] %}",
    "{% set ns.l = ns.l + [('x' * 1000000) | list] %}",
    "{% set ns.l = ns.l + [('x ' * 1000000).split()] %}",
    "{% set ns.l = ns.l + [('x\\n' * 1000000).splitlines()] %}",
    "{% set ns.l = ns.l + [(ns.x * 1000).upper] %}",
    "{% set ns.l = ns.l + [loop] %}",
];

/// Templates that use up memory, with their errors.
fn memory_cases() -> Vec<(String, &'static str)> {
    let mut cases: Vec<(String, &'static str)> = GROWTH.map(|body| (million_times(body), LIMIT)).to_vec();
    let million = "x".repeat(1 << 19);
    let plain = [
        ("{{ ('%' ~ '1000000000' ~ 'd') | format(1) }}", LIMIT),
        (
            "{{ ('%0' ~ '99999999999999999999999999999999999999999999' ~ 'd') | format(1) }}",
            LIMIT,
        ),
        (
            "{{ ('%.' ~ '1000000000' ~ 'f') | format(1) }}",
            "a precision of more than",
        ),
        ("{{ '%*d' % (1000000000, 1) }}", LIMIT),
        ("{{ '{:>1000000000}'.format(1) }}", LIMIT),
        ("{{ '{:{}}'.format(1, 1000000000) }}", LIMIT),
        ("{{ 'x' | center(1000000000) }}", LIMIT),
        ("{{ 'x'.center(1000000000) }}{{ 'x'.ljust(1000000000) }}", LIMIT),
        ("{{ 'x'.rjust(100000000000000000000) }}", LIMIT),
        ("{{ 'x'.zfill(1000000000) }}", LIMIT),
        ("{{ '\\t'.expandtabs(1000000000) }}", LIMIT),
        ("{{ 'x\\nx' | indent(1000000000) }}", LIMIT),
        ("{{ [[1]] | tojson(indent=1000000000) }}", LIMIT),
        ("{{ [1] * 1000000000 }}", LIMIT),
        ("{{ (1,) * 1000000000 }}", LIMIT),
        ("{{ [1] | batch(1000000000, 0) }}", LIMIT),
        ("{{ [1] | slice(1000000000) }}", LIMIT),
        ("{{ range(1000000000) }}", "a range of more than 100000 numbers"),
        ("{{ strftime_now('%c' * 1000000) }}", "the time format is too long"),
        ("{{ 10 ** 10 ** 10 }}", "too large"),
        ("{% set n = namespace() %}{% set n.a = n %}{{ n }}", LIMIT),
        ("{% set n = namespace() %}{% set n.a = [n, n] %}{{ n }}", LIMIT),
        (
            "{% set n = namespace() %}{% set n.a = {'n': n} %}{{ [n] | string }}",
            LIMIT,
        ),
        (
            "{% set n = namespace() %}{% set n.a = n %}{{ [n] | tojson }}",
            "is a Namespace",
        ),
    ];
    cases.extend(plain.map(|(source, expected)| (source.to_owned(), expected)));
    // A hundred thousand times half a megabyte.
    cases.push((format!("{{% for i in range(100000) %}}{million}{{% endfor %}}"), LIMIT));
    cases.push((
        format!("{{% for i in range(100000) %}}{{% set s %}}{million}{{% endset %}}{{% endfor %}}"),
        LIMIT,
    ));
    cases.push((
        format!("{{{{ raise_exception('{million}') }}}}"),
        "refuses these messages: xxx",
    ));
    cases
}

/// Templates that use up the stack, with their output or error.
fn stack_cases() -> Vec<(String, Result<&'static str, &'static str>)> {
    let chain = |first: &str, part: &str, count: usize| format!("{{{{ {first}{} }}}}", part.repeat(count));
    let nested = |open: &str, inner: &str, close: &str, count: usize| {
        format!("{{{{ {}{inner}{} }}}}", open.repeat(count), close.repeat(count))
    };
    let tags = |open: &str, close: &str, count: usize| format!("{}{}", open.repeat(count), close.repeat(count));
    vec![
        // A width is no part of Python's formats: the text stays as it is.
        ("{{ strftime_now('%1000000000Y') }}".to_owned(), Ok("%1000000000Y")),
        (chain("1", "+1", 20_000), Ok("20001")),
        (chain("1", " - 1", 20_000), Ok("-19999")),
        (chain("'a'", "|upper", 50_000), Ok("A")),
        (chain("'a'", " ~ ''", 50_000), Ok("a")),
        (chain("'a'", "[0]", 50_000), Ok("a")),
        (chain("'a'", ".upper()", 50_000), Ok("A")),
        (chain("1", " == 1", 20_000), Ok("True")),
        (chain("1", " and 1", 20_000), Ok("1")),
        (chain("0", " or 1", 20_000), Ok("1")),
        (chain("1", " ** 1", 20_000), Ok("1")),
        (chain("1", " if 1", 20_000), Err(LIMIT)),
        (chain("1", " if 0 else 1", 20_000), Err(LIMIT)),
        (nested("not ", "1", "", 20_000), Ok("True")),
        (nested("-", "1", "", 100_000), Ok("1")),
        (nested("(", "1", ")", 100_000), Err(LIMIT)),
        (nested("[", "1", "]", 100_000), Err(LIMIT)),
        (nested("[", "1", "]", 300), Err(LIMIT)),
        (nested("{1:", "1", "}", 100_000), Err(LIMIT)),
        (nested("a(", "1", ")", 100_000), Err(LIMIT)),
        (nested("a[", "1", "]", 100_000), Err(LIMIT)),
        (nested("1|default(", "1", ")", 50_000), Err(LIMIT)),
        (tags("{% if 1 %}", "{% endif %}", 20_000), Err(LIMIT)),
        (tags("{% for i in [1] %}", "{% endfor %}", 20_000), Err(LIMIT)),
        (tags("{% set x %}", "{% endset %}", 20_000), Err(LIMIT)),
        (tags("{% macro m() %}", "{% endmacro %}", 20_000), Err(LIMIT)),
        (tags("{% filter upper %}", "{% endfilter %}", 20_000), Err(LIMIT)),
        (tags("{% for i in [1] %}", "{% endfor %}", 900), Ok("")),
        (format!("{{% if 0 %}}{}{{% else %}}y{{% endif %}}", "{% elif 0 %}x".repeat(20_000)), Ok("y")),
        (format!("{{% set {}a{} = 1 %}}", "(".repeat(50_000), ")".repeat(50_000)), Err(LIMIT)),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(), Err(LIMIT)),
        ("{% macro m(a=m()) %}{% endmacro %}{{ m() }}".to_owned(), Err(LIMIT)),
        ("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}".to_owned(), Err(LIMIT)),
        ("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}{{ m() }}".to_owned(), Err(LIMIT)),
        ("{% macro m() %}{% for i in [1] %}{% if 1 %}{% set x %}{{ [m(*varargs)] | map('upper') | join }}{% endset %}{% endif %}{% endfor %}{% endmacro %}{{ m(*range(1000)) }}".to_owned(), Err(LIMIT)),
        ("{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(), Err(LIMIT)),
        (format!("{{{{ 'a' | map({}) | string }}}}", "'map',".repeat(100_000)), Err(LIMIT)),
        (format!("{{{{ '{}{}'.format(*range(100000)) }}}}", "{:".repeat(50_000), "}".repeat(50_000)), Err(LIMIT)),
        (million_times("{% set ns.l = [ns.l] %}"), Err(LIMIT)),
        (million_times("{% set ns.l = (ns.l,) %}"), Err(LIMIT)),
        (million_times("{% set ns.d = {'d': ns.d} %}"), Err(LIMIT)),
        (million_times("{% for a in [ns.l] %}{% set ns.l = loop %}{% endfor %}"), Err(LIMIT)),
        (million_times("{% for a in [1] %}{% set x = loop.changed(ns.l) %}{% set ns.l = loop %}{% endfor %}"), Err(LIMIT)),
        ("{% set ns = namespace() %}{% set ns.last = ns %}{% for i in range(100000) %}{% for n in [ns.last] %}{% set n.next = namespace() %}{% set ns.last = n.next %}{% endfor %}{% endfor %}x".to_owned(), Ok("x")),
        ("{% set a = namespace() %}{% set b = namespace() %}{% set a.x = [b] %}{% set b.x = [a] %}{{ a.x == b.x }}{{ a == a }}".to_owned(), Ok("FalseTrue")),
    ]
}

/// Templates that use up time.
fn time_cases() -> Vec<(String, Result<String, &'static str>)> {
    vec![
        ("{{ 1 }}".repeat(40_000), Ok("1".repeat(40_000))),
        ("{# a #}{% if 1 %}x{% endif %}".repeat(10_000), Ok("x".repeat(10_000))),
        ("{{".repeat(100_000), Err(LIMIT)),
        ("{ ".repeat(1 << 18) + "x", Ok("{ ".repeat(1 << 18) + "x")),
        ("{% raw %}".repeat(50_000), Err("unterminated raw block")),
        (
            format!("{{{{ x{} }}}}", ".a".repeat(200_000)),
            Err("undefined value: x"),
        ),
        (
            format!(
                "{{% set n = namespace() %}}{{% set n.a = n %}}{{{{ n{}.b.c }}}}",
                ".a".repeat(200_000)
            ),
            Err("undefined value"),
        ),
        (format!("{{{{ x|a{} }}}}", ".a".repeat(200_000)), Err("unknown filter")),
        (" ".repeat(2 << 20), Err("more than the limit of")),
        (million_times("{% if 'b' in ['a'] * 100000 %}{% endif %}"), Err(LIMIT)),
        (
            million_times("{% if ['a'] * 100000 == ['a'] * 100000 %}{% endif %}"),
            Err(LIMIT),
        ),
        (million_times("{{ ('a' * 10000000).find('b') }}"), Err(LIMIT)),
        (million_times("{{ ('a' * 100000).isalnum() }}"), Err(LIMIT)),
        (million_times("{{ ('é' * 100000) | title | length }}"), Err(LIMIT)),
        (million_times("{{ ('a' * 100000).strip('a' * 100000) }}"), Err(LIMIT)),
        (million_times("{{ (['b', 'a'] * 10000) | sort | length }}"), Err(LIMIT)),
        (million_times("{{ ['\\x00' * 100000] | string | length }}"), Err(LIMIT)),
        (
            format!(
                "{{% macro m({}) %}}{{% endmacro %}}{{{{ m({}) }}}}",
                vec!["a"; 50_000].join(","),
                vec!["b=1"; 50_000].join(",")
            ),
            Err(LIMIT),
        ),
        (
            format!(
                "{{% set {0} = 1 %}}{{% for i in range(99999) %}}{{% for j in range(9999) %}}{{{{ {0} }}}}{{% endfor %}}{{% endfor %}}",
                "a".repeat(300_000)
            ),
            Err(LIMIT),
        ),
    ]
}

#[test]
fn hostile_templates_use_little_memory() {
    if !refrain_testing::drawn(8) {
        return;
    }
    // Runs in a process of its own, so that its peak memory can be read.
    if std::env::var_os("REFRAIN_TEST_CHILD").is_none() {
        let this = std::env::current_exe().unwrap();
        let name = "template_bounds::hostile_templates_use_little_memory";
        let mut child = std::process::Command::new(this);
        let child = child
            .args(["--exact", name, "--nocapture"])
            .env("REFRAIN_TEST_CHILD", "1");
        let done = child.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        return;
    }
    let mut wrong = Vec::new();
    for (source, expected) in sample(memory_cases(), 12) {
        wrong.extend(verdict(&source, Err(expected)));
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
            continue;
        };
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak: u64 = peak.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
        assert!(
            peak < 256 << 10,
            "{source:.200}: the process held {peak} KiB\n{}",
            wrong.join("\n")
        );
    }
    assert_none_failed(wrong);
}

#[test]
fn deeply_nested_templates_use_little_stack() {
    if !refrain_testing::drawn(8) {
        return;
    }
    assert_none_failed(
        sample(stack_cases(), 4)
            .into_iter()
            .filter_map(|(source, expected)| verdict(&source, expected))
            .collect(),
    );
}

#[test]
fn long_templates_end_soon() {
    if !refrain_testing::drawn(8) {
        return;
    }
    assert_none_failed(
        sample(time_cases(), 4)
            .iter()
            .filter_map(|(source, expected)| verdict(source, expected.as_deref().map_err(|error| *error)))
            .collect(),
    );
}
