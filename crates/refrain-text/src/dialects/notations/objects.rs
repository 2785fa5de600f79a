//! Notations of calls that are JSON objects.

use super::{OBJECT_LIST, marks, notation, objects};
use crate::dialects::{CallForm, Notation, ObjectKeys};

/// Qwen 2.5 and 3, Hermes, SmolLM3, Granite 4 and many others: `<tool_call>{"name": …, "arguments": …}</tool_call>`.
pub(in crate::dialects) const HERMES: Notation = objects("hermes", "<tool_call>", "</tool_call>");

/// Objects as Cohere has them.
const TOOL_LIST: CallForm = CallForm::Objects(ObjectKeys {
    name: "tool_name",
    arguments: "parameters",
    is_list: true,
});

/// Objects as Llama has them.
const PARAMETERS: CallForm = CallForm::Objects(ObjectKeys {
    name: "name",
    arguments: "parameters",
    is_list: false,
});

/// Command R7B and A.
pub(super) const COMMAND_A: Notation = Notation {
    name: "command-a",
    section: Some(marks("<|START_ACTION|>", "<|END_ACTION|>")),
    call: marks("", ""),
    form: TOOL_LIST,
    text: Some(marks("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    ignored: &[],
};

/// Cohere's mixtures: as Command A, with other marks around text.
pub(super) const COHERE2_MOE: Notation = Notation {
    name: "cohere2-moe",
    section: Some(marks("<|START_ACTION|>", "<|END_ACTION|>")),
    call: marks("", ""),
    form: TOOL_LIST,
    text: Some(marks("<|START_TEXT|>", "<|END_TEXT|>")),
    ignored: &[],
};

/// Command R and R+.
pub(super) const COMMAND_R: Notation = Notation {
    name: "command-r",
    section: Some(marks("Action:\n```json", "```")),
    call: marks("", ""),
    form: TOOL_LIST,
    text: None,
    ignored: &[],
};

/// Nemotron Nano 2.
pub(super) const NEMOTRON_2: Notation = Notation {
    name: "nemotron-2",
    section: Some(marks("<TOOLCALL>", "</TOOLCALL>")),
    call: marks("", ""),
    form: OBJECT_LIST,
    text: None,
    ignored: &["<SPECIAL_12>\n<SPECIAL_11>Assistant\n"],
};

/// Apriel, MiniMax-M1.
pub(super) const TOOL_CALLS: Notation = Notation {
    name: "tool-calls",
    section: Some(marks("<tool_calls>", "</tool_calls>")),
    call: marks("", ""),
    form: OBJECT_LIST,
    text: None,
    ignored: &[],
};

/// Apertus.
pub(super) const APERTUS: Notation = Notation {
    name: "apertus",
    section: Some(marks("<|tools_prefix|>", "<|tools_suffix|>")),
    call: marks("", ""),
    form: CallForm::KeyedObjects,
    text: None,
    ignored: &[],
};

/// Phi-4-mini.
pub(super) const PHI_4: Notation = Notation {
    name: "phi-4-mini",
    section: Some(marks("<|tool_call|>", "<|/tool_call|>")),
    call: marks("", ""),
    form: OBJECT_LIST,
    text: None,
    ignored: &[],
};

/// Granite 3: as Phi-4-mini, without a closing mark.
pub(super) const GRANITE_3: Notation = notation(
    "granite-3",
    Some(marks("<|tool_call|>", "")),
    marks("", ""),
    OBJECT_LIST,
);

/// Mistral up to Nemo and Small 3.1: `[TOOL_CALLS][{"name": …, "arguments": …}]`.
pub(super) const MISTRAL_LIST: Notation = notation(
    "mistral-list",
    Some(marks("[TOOL_CALLS]", "")),
    marks("", ""),
    OBJECT_LIST,
);

/// FireFunction.
pub(super) const FIREFUNCTION: Notation =
    notation("firefunction", Some(marks("functools", "")), marks("", ""), OBJECT_LIST);

/// GigaChat 3.1.
pub(super) const GIGACHAT_3_1: Notation = objects("gigachat-3.1", "<|function_call|>", "<|message_sep|>");

/// GigaChat 3.
pub(super) const GIGACHAT_3: Notation = objects(
    "gigachat-3",
    "<|message_sep|>\n\nfunction call<|role_sep|>\n",
    "<|message_sep|>",
);

/// Llama 3: an object that is the whole answer, perhaps behind a mark.
pub(super) const LLAMA_3: Notation = Notation {
    name: "llama-3",
    section: None,
    call: marks("", ""),
    form: PARAMETERS,
    text: None,
    ignored: &["<|python_tag|>"],
};
