"""Expected renderings of chat templates by transformers, for the conversations in conversations.py."""

import datetime
import json
from unittest import mock

import jinja2
from transformers.utils import chat_template_utils

from conversations import CONVERSATIONS
from tokenizations import load


# Current time for templates.
FIXED_TIME = datetime.datetime(2024, 7, 26, 12)

# Models whose templates llama.cpp publishes.
PUBLISHED = [
    "Apertus-8B-Instruct",
    "ByteDance-Seed-OSS",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "GLM-4.6",
    "GLM-4.7-Flash",
    "GigaChat3.1-10B-A1.8B",
    "HuggingFaceTB-SmolLM3-3B",
    "Kimi-K2-Thinking",
    "LFM2-8B-A1B",
    "MiniMax-M2",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "NVIDIA-Nemotron-Nano-v2",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4",
    "google-gemma-2-2b-it",
    "google-gemma-4-31B-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "ibm-granite-granite-4.0",
    "meetkai-functionary-medium-v3.2",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
    "openai-gpt-oss-120b",
    "openbmb-MiniCPM5-1B",
    "unsloth-mistral-Devstral-Small-2507",
    "upstage-Solar-Open-100B",
]


def write_conversations(directory):
    """Writes a JSON object of the conversations by name: `input` (the messages file) and `add_generation_prompt`."""
    lines = []
    for name, given, generate in cases():
        line = json.dumps({"input": given, "add_generation_prompt": generate}, ensure_ascii=False)
        lines.append(f"{json.dumps(name)}: {line}")
    joined = ",\n".join(lines)
    (directory / "conversations.json").write_text(f"{{\n{joined}\n}}\n", "utf-8")


def cases():
    """Yields the conversations by name, with the content of the messages file and whether to add a generation prompt."""
    for name, conversation in CONVERSATIONS.items():
        given = {key: value for key, value in conversation.items() if key != "add_generation_prompt"}
        yield name, given, conversation.get("add_generation_prompt", True)


def write_own(directory):
    """Renders the templates written for these tests, with the special tokens of small-llama3."""
    tokenizer = load(directory / "tokenizers" / "small-llama3")
    for source in sorted((directory / "templates").glob("*/template.jinja")):
        write_expected(tokenizer, source.read_text("utf-8"), source.parent)


def write_published(fetched, directory):
    """Renders the llama.cpp templates fetched by fetch.sh, with the same special tokens."""
    tokenizer = load(directory / "tokenizers" / "small-llama3")
    for name in PUBLISHED:
        source = (fetched / "templates" / f"{name}.jinja").read_text("utf-8")
        write_expected(tokenizer, source, directory / "templates" / name)


def write_fetched(fetched, directory):
    """Renders the templates of the real tokenizers fetched by fetch.sh."""
    for source in sorted(fetched.glob("*")):
        tokenizer = load(source)
        if tokenizer.chat_template:
            write_expected(tokenizer, None, directory / "templates" / source.name)


def write_expected(tokenizer, template, folder):
    """Writes a JSON list with one object per conversation.

    Each has a name, and either `rendered` or `error`: the message that the template raised, or null if rendering failed
    otherwise.
    """
    expected = []
    for name, given, generate in cases():
        case = {"name": name}
        try:
            case["rendered"] = render(tokenizer, template, given, generate)
        except jinja2.TemplateError as error:
            case["error"] = str(error) if type(error) is jinja2.TemplateError else None
        except (TypeError, ValueError, RecursionError):
            case["error"] = None
        expected.append(case)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in expected)
    (folder / "expected.json").write_text(f"[\n{lines}\n]\n", "utf-8")
    failed = [case["name"] for case in expected if "error" in case]
    print(f"{folder.name}: {len(expected)} conversations, rejected: {', '.join(failed) or 'none'}")


def render(tokenizer, template, given, add_generation_prompt):
    """Renders the prompt with transformers at FIXED_TIME."""
    variables = {key: value for key, value in given.items() if key != "messages"}
    with mock.patch.object(chat_template_utils, "datetime") as clock:
        clock.now.return_value = FIXED_TIME
        return tokenizer.apply_chat_template(
            given["messages"],
            chat_template=template,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )
