"""The conversations that chat templates are rendered with: messages, tools and other variables, by name."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather at a place, <b>now</b> & later: "it\'s" in °C',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Zürich, 東京 or 🌍"},
                "days": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city"],
        },
    },
}
NUMBERS = {
    "type": "function",
    "function": {
        "name": "numbers",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {
                "x": {
                    "type": "number",
                    "default": 1.0,
                    "examples": [0.1, 1e20, 1e-7, -0.0, 12345678901234567890, 1.5e300],
                },
                "y": {"type": ["boolean", "null"], "default": None, "const": True},
                "empty": {},
                "list": [],
            },
            "strict": False,
        },
    },
}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, identity="call12345"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, identity="call12345"):
    return {"role": "tool", "tool_call_id": identity, "name": "get_weather", "content": content}


ASKED = [system("You help."), user("What is the weather in Zürich?")]
CALLED = [
    *ASKED,
    assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "precise": True, "x": None})]),
]

CONVERSATIONS = {
    "single": {"messages": [user("Hello!")]},
    "system": {"messages": [system("You are a pirate."), user("Hello!")]},
    "several-turns": {
        "messages": [
            system("Be brief."),
            user("What is 2 + 2?"),
            assistant("4"),
            user("And 3 + 3?"),
            assistant("6"),
            user("Thanks"),
        ]
    },
    "ends-with-assistant": {"messages": [user("Say yes."), assistant("Yes.")]},
    "no-answer-wanted": {"messages": [user("Hello!"), assistant("Hi.")], "add_generation_prompt": False},
    "unicode": {
        "messages": [
            system("Réponds en français 🇫🇷"),
            user("日本語 e\u0301 👩‍👩‍👧 \u202ertl \u200b مرحبا"),
            assistant("ÄÖÜ ß"),
            user("…"),
        ]
    },
    "white-space": {"messages": [system("  spaces  "), user("\n\n line\n\n"), assistant("\ttab\t"), user("  ")]},
    "empty": {"messages": [system(""), user("")]},
    "markup": {"messages": [user("<b>&amp;</b> {{ not }} {% a %} {# template #} <|im_end|> \\n \"quoted\" 'single'")]},
    "parts": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this? "},
                    {"type": "image"},
                    {"type": "text", "text": " Tell."},
                ],
            }
        ]
    },
    "system-only": {"messages": [system("Alone.")]},
    "user-twice": {"messages": [user("One."), user("Two.")]},
    "assistant-first": {"messages": [assistant("I begin."), user("Fine.")]},
    "unknown-role": {"messages": [{"role": "narrator", "content": "Night fell."}, user("Go on.")]},
    "late-system": {"messages": [user("Hello!"), assistant("Hi."), system("Now rhyme."), user("Go.")]},
    "tools": {"messages": ASKED, "tools": [WEATHER, NUMBERS]},
    "tools-without-system": {"messages": ASKED[1:], "tools": [WEATHER]},
    "tool-answer": {"messages": [*CALLED, tool('{"temperature": 21.5}')], "tools": [WEATHER]},
    "tool-answers": {
        "messages": [
            *ASKED,
            assistant(
                "Let me look.",
                tool_calls=[
                    call("get_weather", {"city": "Bern"}, "callAAAAA"),
                    call("get_weather", {"city": "東京"}, "callBBBBB"),
                ],
            ),
            tool("sunny", "callAAAAA"),
            tool("雨", "callBBBBB"),
            assistant("Sun and rain."),
            user("Which is better?"),
        ],
        "tools": [WEATHER],
    },
    "tool-call-as-text": {
        "messages": [*ASKED, assistant(None, tool_calls=[call("get_weather", '{"city": "Zürich"}')]), tool("21")],
        "tools": [WEATHER],
    },
    "tool-call-without-tools": {"messages": [*CALLED, tool("21")]},
    "reasoning": {
        "messages": [
            user("2 + 2?"),
            assistant("4", reasoning_content="\nTwo and two.\n"),
            user("3 + 3?"),
            assistant("6", reasoning_content="Three twice."),
        ],
        "add_generation_prompt": False,
    },
    "reasoning-inside": {
        "messages": [user("2 + 2?"), assistant("<think>\nTwo and two.\n</think>\n\n4"), user("3 + 3?")]
    },
    "thinking-off": {"messages": [user("2 + 2?")], "enable_thinking": False},
    "thinking-on": {"messages": [user("2 + 2?")], "enable_thinking": True},
    "documents": {
        "messages": [user("Where do penguins live?")],
        "documents": [
            {"title": "Tall penguins", "text": "Emperor penguins are the tallest."},
            {"title": "Habitats", "text": "Antarctica."},
        ],
    },
}

# Some templates print the current date unless `date_string` is set.
for conversation in CONVERSATIONS.values():
    conversation["date_string"] = "26 Jul 2024"
