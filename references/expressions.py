"""Template expressions and white space, with their renderings by Jinja as transformers configures it."""

import json
import random

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEXTS = [
    "hello world", "HELLO", "ǆabc ΣΑΣ Σ", "ß straße ŉ İı", "½²Ⅷ٣", "١٢٣", "12", "a1", "一二", "Ⅷ", "x_1", "",
    "  pad\t\x1c", "Ab Cd", "A", "ªº", "ﬁx", "ᾳx ᾼ", "Ꭰꭰ", "O'Neil it's", "a\u0301b", "ⓐ", "\u1c5cabc", "𝟘𝟙",
    "ΑΣ'x ΑΣ'", "ა", "café\n", "\u200b", "\xad", "①⑳", "ǅ ǅx", "x y\r\n\u2028z", "1e5", "-3", "+4.5", "__init__",
]
METHODS = [
    "upper", "lower", "title", "capitalize", "swapcase", "casefold", "isalpha", "isalnum", "isdecimal", "isdigit",
    "isnumeric", "isidentifier", "islower", "isupper", "istitle", "isspace", "isprintable", "isascii", "strip",
    "lstrip", "rstrip", "split", "rsplit", "splitlines", "expandtabs",
]
CALLS = [
    "center(9)", "center(10, '*')", "ljust(7)", "rjust(8, 'é')", "zfill(6)", "split(' ', 1)", "rsplit(' ', 1)",
    "split(none, 1)", "rsplit(none, 1)", "partition(' ')", "rpartition('l')", "replace('l', 'L')",
    "replace('', '-', 2)", "find('l')", "rfind('l', 2)", "count('l')", "count('')", "startswith('h')",
    "endswith(('d', 'O'))", "find('l', -5, -1)", "index('o')", "removeprefix('he')", "removesuffix('ld')",
    "splitlines(true)", "strip('hd ')", "expandtabs(3)", "find('')", "rfind('')", "find('', 99)", "count('', 1, 3)",
]
TEXT_FILTERS = [
    "upper", "title", "capitalize", "wordcount", "length", "reverse", "list", "first", "trim", "tojson", "int",
    "float", "e", "unique | list", "sort", "join('-')", "center(20)", "truncate(3)", "truncate(3, true)", "indent",
    "tojson(ensure_ascii=true)",
]
NUMBERS = ["0", "-1", "7", "2.5", "-2.5", "0.1", "1e20", "1e-7", "123456789", "true", "99999.5", "0.00012345"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "<", "<=", "==", "~"]
PERCENTS = [
    "%d", "%5d", "%-5d|", "%05d", "%+d", "% d", "%x", "%#x", "%o", "%e", "%.2e", "%f", "%.0f", "%10.2f", "%-10.2f|",
    "%010.2f", "%g", "%.3g", "%s", "%r", "%5s", "%.2s", "%i", "%c",
]
FORMATS = [
    "", "d", "5", "<5", "^7", ">7", "05", "+", "x", "#x", "o", "b", "e", ".2e", "f", ".0f", "10.2f", ",", "_", ",.2f",
    "g", ".3g", "%", ".1%", "s", "*^9", "=+7", "08.3f", "+,.1f",
]
NUMBER_FILTERS = ["round", "round(1)", "round(-1)", "round(2, 'ceil')", "int", "float", "abs", "string", "tojson"]
LISTS = [
    "[]", "[1]", "[3, 1, 2]", "['b', 'A', 'c']", "[1, 'a']", "(1, 2)", "{'b': 1, 'a': 2}", "'abc'",
    "[[2, 'x'], [1, 'y']]", "[{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}, {'a': 1, 'b': 'z'}]", "none", "5", "x",
    "[none, 0, '', 1]", "[1.5, true]",
]
LIST_FILTERS = [
    "list", "first", "last", "length", "join", "join(',')", "sort", "sort(reverse=true)", "reverse | list",
    "unique | list", "sum", "min", "max", "batch(2) | list", "batch(2, 'f') | list", "slice(2) | list",
    "slice(3, 'f') | list", "map('upper') | join", "select | list", "reject | list", "map(attribute='a') | list",
    "selectattr('a') | list", "selectattr('a', 'equalto', 1) | list", "rejectattr('a', 'eq', 1) | list",
    "groupby('a') | list", "sort(attribute='a')", "dictsort", "dictsort(by='value')", "items | list", "tojson",
    "tojson(indent=2)", "string", "default('d')", "default('d', true)", "sum(attribute='a')",
    "unique(attribute='a') | list", "max(attribute='a')", "tojson(separators=(',', ':'), sort_keys=true)",
]
TESTS = [
    "defined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true",
    "odd", "eq(5)", "in [5]", "sameas none", "divisibleby(5)", "lower",
]
ITEMS = ["[0]", "[-1]", "[7]", "['a']", ".a", ".b.c", "[0:1]", "[::-1]", "[::2]", "[-2:]", "[1:9:3]"]
PIECES = [
    "a", "\n", "  ", "\t", "\n\n", " b ", "{{ 1 }}", "{{- 2 }}", "{{ 3 -}}", "{% if true %}", "{% endif %}",
    "{%- if true %}", "{% if true -%}", "{%+ if true %}", "{% if true +%}", "{%- endif -%}", "{% endif -%}",
    "{%+ endif %}", "{# c #}", "{#- c #}", "{# c -#}", "{% raw %}r{% endraw %}", "{%- raw -%} r {%- endraw -%}",
    "{% raw %}\n r\n{% endraw %}\n", "{% for i in [1, 2] %}", "{% endfor %}", "{%- for i in [1, 2] -%}",
]
STATEMENTS = [
    "{% set x = 9 %}{% for i in [1, 2] %}[{{ x }}]{% set x = i %}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% set b %}{% set q = 1 %}x{% endset %}[{{ q }}]{{ b }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% macro f(x) %}{{ caller(x) }}{% endmacro %}{% call(y) f(3) %}<{{ y }}>{% endcall %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle(1, 2) }}{{ loop.foo }}{% endfor %}",
    "{% for i in [1, 2] %}{% break %}{% else %}none{% endfor %}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% else %}none{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a in [[1, [2]], [3]] recursive %}{{ loop.depth }}{% if a is iterable %}{{ loop(a) }}{% endif %}{% endfor %}",
    "{{ ''[::-1][0] }}|{{ 'abc'[5] }}|{{ [1][7] is undefined }}",
    "{{ 'a' 'b' }} {{ 1_000 }} {{ 0x1f }} {{ 1.5e-3 }} {{ '\\x41\\u00e9\\q\\n\\101' }}",
    "{{ {'items': 1}.items is callable }}{{ {'items': 1}['items'] }}{{ namespace(a=1) }}{{ dict(a=1) }}",
    "{{ '[%s]' % x }}{% macro m() %}{% call n() %}{{ varargs }}{% endcall %}{% endmacro %}{% macro n() %}{{ caller(1) }}{% endmacro %}{{ m(2) }}",
    "{{ x.y }}", "{{ x + 1 }}", "{{ [].append(1) }}", "{{ 1 in 5 }}", "{{ '%s %s' % (1,) }}", "{{ '%(a)s' % {'a': 1} }}",
    "{{ '{a[b]} {a.b} {0[1]} {{}}'.format([1, 2], a={'b': 1}) }}", "{{ 1 is string is string }}", "{% endif %}",
    "{% set j = joiner() %}{% for i in [1, 2, 3] %}{{ j() }}{{ i }}{% endfor %}",
    "{% set j = joiner(' | ') %}{% if x %}{{ j() }}{% endif %}{{ j() }}a{{ j() }}b", "{{ joiner(1, 2) }}",
    "{% set c = cycler('a', 'b') %}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    "{% set ns = namespace(c=cycler(1, 2, 3)) %}{% for i in range(5) %}{{ ns.c.next() }}{% endfor %}",
    "{{ cycler(1)() }}", "{{ cycler(1).foo }}", "{{ {'b': 1, 'a': {'d': 2, 'c': 'x'}} | pprint }}", "{{ 'a' | pprint }}",
    "{{ range(40) | list | pprint }}", "{{ ('word ' * 30) | pprint }}", "{{ ('a' * 100) | pprint }}", "{{ ('a' * 78) | pprint }}",
    "{{ {'k': 'multi\\nline text that is fairly long and must be broken somewhere, since it has many words'} | pprint }}",
    "{{ {'one': ('z' * 90,), 't': ('x' * 60, 'y' * 30), 'l': [[1] * 30, {'b': 'v' * 70, 'a': []}]} | pprint }}",
    "{{ [none, 1.5, true, 'it\\'s'] | pprint }}", "{{ [{'a': 'b ' * 40}, ('c ' * 40, 1)] | pprint }}",
    "{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1}.items() | list }}",
]


def environment():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = to_json
    return environment


def sources():
    for text in TEXTS:
        quoted = json.dumps(text, ensure_ascii=False)
        yield from (f"{{{{ {quoted}.{method}() }}}}" for method in METHODS)
        yield from (f"{{{{ {quoted} | {name} }}}}" for name in TEXT_FILTERS)
        yield f"{{{{ [{quoted}] }}}}{{{{ {quoted}[::-1] }}}}{{{{ {quoted}[-2:] }}}}{{{{ {quoted}[5:0:-2] }}}}"
    for text in ("hello world", "O'Neil it's", "ääl\tl x"):
        yield from (f"{{{{ {json.dumps(text, ensure_ascii=False)}.{call} }}}}" for call in CALLS)
    for number in NUMBERS:
        yield from (f"{{{{ '{form}' % {number} }}}}" for form in PERCENTS)
        yield from (f"{{{{ '{{:{form}}}'.format({number}) }}}}" for form in FORMATS)
        yield from (f"{{{{ {number} | {name} }}}}" for name in NUMBER_FILTERS)
        yield from (f"{{{{ {number} {operator} {other} }}}}" for operator in OPERATORS for other in NUMBERS[1:7])
    for value in LISTS:
        yield from (f"{{{{ {value} | {name} }}}}" for name in LIST_FILTERS)
        yield from (f"{{{{ {value} is {test} }}}}" for test in TESTS)
        yield from (f"{{{{ {value}{item} }}}}" for item in ITEMS)
        yield from (f"{{{{ {value} {operator} {LISTS[index]} }}}}" for operator in ("+", "==", "in", "<") for index in (1, 3, 7))
        yield f"{{% for x in {value} %}}[{{{{ loop.index }}}}{{{{ x }}}}]{{% else %}}E{{% endfor %}}"
    yield from STATEMENTS
    draw = random.Random(5)
    yield from (white_space(draw) for _ in range(400))


def white_space(draw):
    parts, open_blocks = [], []
    for _ in range(draw.randrange(2, 12)):
        piece = draw.choice(PIECES)
        for block in ("if", "for"):
            if f"end{block}" in piece:
                piece = piece if open_blocks[-1:] == [block] else ""
                open_blocks[-1:] = open_blocks[-1:] if not piece else []
            elif f" {block} " in piece:
                open_blocks.append(block)
        parts.append(piece)
    return "".join(parts) + "".join(f"  {{% end{block} %}}\n" for block in reversed(open_blocks))


def write(path):
    """Writes a JSON list of pairs: a template, and its rendering (null if it fails)."""
    jinja = environment()
    lines = []
    for source in dict.fromkeys(sources()):
        try:
            rendered = jinja.from_string(source).render()
        except (jinja2.TemplateError, AttributeError, TypeError, ValueError, ArithmeticError, LookupError):
            rendered = None
        lines.append(json.dumps([source, rendered], ensure_ascii=False))
    joined = ",\n".join(lines)
    path.write_text(f"[\n{joined}\n]\n", "utf-8")
    print(f"{path.name}: {len(lines)} templates by Jinja {jinja2.__version__}")
