"""Schemas, grammars and regular expressions that cost much to compile, or much at each token, in every interface."""

import random

QUESTION = [{"role": "user", "content": "Answer in JSON."}]


def properties(count, **more):
    return {
        "type": "object",
        "properties": {f"p{number}": {"type": "string"} for number in range(count)},
        "additionalProperties": False,
        **more,
    }


def required(count):
    return properties(count, required=[f"p{number}" for number in range(count)])


def nested(depth, leaf):
    schema = leaf
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return schema


def nested_lists(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1}
    return schema


def references(count):
    """A chain of references."""
    chain = {f"r{number}": {"$ref": f"#/$defs/r{number + 1}"} for number in range(count)}
    return {"$defs": {**chain, f"r{count}": {"type": "string"}}, "$ref": "#/$defs/r0"}


def shared_references(depth):
    """Each definition is used twice by the one before: 2^depth paths."""
    link = lambda number: {"$ref": f"#/$defs/r{number}"}
    chain = {
        f"r{number}": {"type": "object", "properties": {"a": link(number + 1), "b": link(number + 1)}}
        for number in range(depth)
    }
    return {"$defs": {**chain, f"r{depth}": {"type": "string"}}, "$ref": "#/$defs/r0"}


def every_branch(width, depth):
    options = lambda level: [
        {"type": "object", "properties": {f"a{level}_{option}": {"type": "string"}}} for option in range(width)
    ]
    return {"allOf": [{"anyOf": options(level)} for level in range(depth)]}


def schemas():
    node = {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}
    yield "500 properties", properties(500)
    yield "1,000 optional properties", properties(1000)
    yield "2,000 required properties", required(2000)
    yield "5,000 optional properties", properties(5000)
    yield "5,000 required properties", required(5000)
    yield "50,000 properties", properties(50_000)
    yield "nesting of 60", nested(60, {"type": "string"})
    yield "nesting of 400", nested(400, {"type": "string"})
    yield "lists in lists", nested_lists(60)
    yield "recursion", {"$defs": {"n": node}, "$ref": "#/$defs/n"}
    yield "reference to itself", {"$ref": "#"}
    yield "references in a circle", {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    yield "chain of 190 references", references(190)
    yield "chain of 5,000 references", references(5000)
    yield "2^18 paths of references", shared_references(18)
    yield "remote reference", {"$ref": "http://127.0.0.1:9/x.json"}
    yield "file reference", {"$ref": "file:///etc/passwd"}
    yield "4^10 branches", every_branch(4, 10)
    yield "10^9 items", {"type": "array", "items": {"type": "integer"}, "minItems": 10**9}
    yield "10^6 characters", {"type": "string", "minLength": 10**6}
    yield "10,000 items of any of 200", {
        "type": "array",
        "items": {"enum": [f"word {number}" for number in range(200)]},
        "minItems": 10_000,
    }
    yield "exponential pattern", {"type": "string", "pattern": "^(a|b)*a(a|b){28}$"}
    yield "nested repetition", {"type": "string", "pattern": "^((a{1,50}){1,50}){1,50}$"}
    yield "letters of any script", {"type": "string", "pattern": "^(\\p{L}{1,300}\\p{N}{1,300}){1,100}$"}
    yield "multiples of 10^-12", {"type": "number", "multipleOf": 1e-12}
    yield "multiples of 997 beside 991", {"allOf": [{"type": "integer", "multipleOf": number} for number in (997, 991)]}
    yield "100,000 values", {"enum": [f"v{number}" for number in range(100_000)]}
    yield "15,000 long values", {"enum": [f"value number {number} of a long list" for number in range(5_000)]}
    yield "numbers up to 10^308", {"type": "number", "minimum": -1e308, "maximum": 1e308}
    yield "500 patterns of names", {
        "type": "object",
        "patternProperties": {f"^x{number}[a-z]+$": {"type": "string"} for number in range(500)},
    }
    yield "times and addresses", {
        "type": "object",
        "properties": {
            f"f{number}": {"type": "string", "format": name}
            for number, name in enumerate(["date-time", "uri", "email", "ipv6", "uuid", "hostname"] * 30)
        },
    }
    yield "no value", {"type": "string", "enum": [], "minLength": 5}


def expressions():
    yield "a? 5,000 times", "a?" * 5000
    yield "a? 400 times", "a?" * 400
    yield "letters? 450 times", "\\p{L}?" * 450
    yield "(a{1000}){1000}", "(a{1000}){1000}"
    yield "a{1000000}", "a{1000000}"
    yield "((a|aa|aaa)*b){60}", "((a|aa|aaa)*b){60}"
    yield "(a|b)*a(a|b){25}", "(a|b)*a(a|b){25}"
    yield "(a|b)*a(a|b){14}", "(a|b)*a(a|b){14}"
    yield "classes of letters", "(\\p{L}{1,500}\\p{N}{1,500}){1,200}"
    yield "120,000 words", "|".join(f"w{number}" for number in range(120_000))
    yield "1,000 groups", "(" * 1000 + "a" + ")" * 1000
    yield "any text, then any text", "(.*a.*b.*c){30}"


def grammars():
    rules = lambda count: "\n".join(f'r{number}: "a" r{number + 1} | "b" r{number + 1}' for number in range(count))
    yield "chain of 300 rules", f'start: r0\n{rules(300)}\nr300: "z"'
    yield "chain of 20,000 rules", f'start: r0\n{rules(20_000)}\nr20000: "z"'
    yield "left recursion", 'start: a\na: a "x" | a a | "y"'
    yield "ambiguity", 'start: s\ns: s s s | s s | "a" | '
    yield "10^6 repetitions", 'start: "a"{1000000}'
    yield "undefined rule", "start: foo"
    yield "another notation", 'root ::= "yes" | "no"'
    yield "deep groups", "start: " + "(" * 140 + '"a"' + ")" * 140
    yield "400 terminals", "start: w*\n" + "w: " + " | ".join(f"T{n}" for n in range(400)) + "\n" + "\n".join(
        f"T{n}: /[a-z]{{1,{n % 40 + 2}}}{n}/" for n in range(400)
    )


def bodies():
    """Requests with names, paths and bodies."""
    tokens = {"max_tokens": 24}
    for name, schema in schemas():
        json_schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        function = {"name": "f", "description": "d", "parameters": schema}
        tools = [{"type": "function", "function": function}]
        anthropic = [{"name": "f", "input_schema": schema}]
        yield name, "/v1/completions", {"prompt": "Once", "response_format": json_schema, **tokens}
        yield name, "/v1/chat/completions", {"messages": QUESTION, "response_format": json_schema, "n": 3, **tokens}
        yield name, "/v1/chat/completions", {"messages": QUESTION, "tools": tools, "tool_choice": "required", **tokens}
        yield name, "/v1/chat/completions", {"messages": QUESTION, "tools": tools, **tokens}
        yield name, "/v1/messages", {"messages": QUESTION, "tools": anthropic, "tool_choice": {"type": "any"}, **tokens}
        yield name, "/v1/completions", {"prompt": ["a"] * 64, "n": 64, "response_format": json_schema, "max_tokens": 1}
        yield name, "/v1/responses", {
            "input": "JSON",
            "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}},
            "max_output_tokens": 24,
        }
        yield name, "/api/chat", {"messages": QUESTION, "format": schema, "options": {"num_predict": 24}}
        yield name, "/completion", {"prompt": "Once", "json_schema": schema, "n_predict": 24}
    for name, expression in expressions():
        yield name, "/v1/completions", {"prompt": "Once", "guided_regex": expression, **tokens}
        yield name, "/v1/chat/completions", {"messages": QUESTION, "structured_outputs": {"regex": expression}, **tokens}
    for name, grammar in grammars():
        yield name, "/v1/completions", {"prompt": "Once", "guided_grammar": grammar, **tokens}
        yield name, "/completion", {"prompt": "Once", "grammar": grammar, "n_predict": 24}
    words = [f"word {number}" for number in range(100_000)]
    yield "100,000 choices", "/v1/completions", {"prompt": "Once", "guided_choice": words, **tokens}
    many = [{"type": "function", "function": {"name": f"f{n}", "parameters": properties(30)}} for n in range(128)]
    yield "128 functions", "/v1/chat/completions", {"messages": QUESTION, "tools": many, "tool_choice": "required", **tokens}


def run(attack):
    """Sends as many of the requests as the time allows, in any order."""
    requests = list(bodies())
    random.shuffle(requests)
    attack.each(requests, lambda request: attack.send(*request), threads=6)
