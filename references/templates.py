"""Expected renderings, by transformers, of chat templates under the conversations in conversations.py."""

import json

import jinja2

from conversations import CONVERSATIONS
from tokenizations import load


def write_own(directory):
    """Renders the templates written for these tests, with the special tokens of small-llama3."""
    tokenizer = load(directory / "tokenizers" / "small-llama3")
    for source in sorted((directory / "templates").glob("*/template.jinja")):
        write_expected(tokenizer, source.read_text("utf-8"), source.parent)


def write_fetched(fetched, directory):
    """Renders the templates of the real tokenizers that fetch.sh has fetched."""
    for source in sorted(fetched.glob("*")):
        tokenizer = load(source)
        if tokenizer.chat_template:
            write_expected(tokenizer, None, directory / "templates" / source.name)


def write_expected(tokenizer, template, folder):
    """Writes a JSON list with one object a conversation.

    name, input (what the messages file holds), add_generation_prompt, and either `rendered` or `error`:
    the text that the template raised, or null where rendering failed for another reason.
    """
    cases = []
    for name, conversation in CONVERSATIONS.items():
        wanted = conversation.get("add_generation_prompt", True)
        given = {key: value for key, value in conversation.items() if key != "add_generation_prompt"}
        case = {"name": name, "input": given, "add_generation_prompt": wanted}
        try:
            case["rendered"] = render(tokenizer, template, given, wanted)
        except jinja2.TemplateError as error:
            case["error"] = str(error) if type(error) is jinja2.TemplateError else None
        except TypeError:
            case["error"] = None
        cases.append(case)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (folder / "expected.json").write_text(f"[\n{lines}\n]\n", "utf-8")
    failed = [case["name"] for case in cases if "error" in case]
    print(f"{folder.name}: {len(cases)} conversations, refused: {', '.join(failed) or 'none'}")


def render(tokenizer, template, given, add_generation_prompt):
    """The prompt as transformers renders it."""
    variables = {key: value for key, value in given.items() if key != "messages"}
    return tokenizer.apply_chat_template(
        given["messages"],
        chat_template=template,
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
        **variables,
    )
