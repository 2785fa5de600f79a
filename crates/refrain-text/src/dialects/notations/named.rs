//! Notations of calls with a name, a mark and JSON arguments.

use super::{marks, named};
use crate::dialects::{CallForm, CallId, NamedCall, Notation};

/// DeepSeek V3.1.
pub(super) const DEEPSEEK_V3_1: Notation = Notation {
    name: "deepseek-v3.1",
    section: Some(marks("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
    call: marks("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    form: CallForm::Named(named(&["<｜tool▁sep｜>"])),
    text: None,
    ignored: &[],
};

/// DeepSeek V3 and R1: the arguments stand in a block of code.
pub(super) const DEEPSEEK_V3: Notation = Notation {
    name: "deepseek-v3",
    section: Some(marks("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
    call: marks("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "```<｜tool▁call▁end｜>"),
    form: CallForm::Named(named(&["\n```json\n"])),
    text: None,
    ignored: &["<｜end▁of▁sentence｜>", "<｜Assistant｜>"],
};

/// Kimi K2.
pub(super) const KIMI_K2: Notation = Notation {
    name: "kimi-k2",
    section: Some(marks("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")),
    call: marks("<|tool_call_begin|>", "<|tool_call_end|>"),
    form: CallForm::Named(NamedCall {
        name_ends: &["<|tool_call_argument_begin|>"],
        id: CallId::InName,
    }),
    text: None,
    ignored: &[],
};

/// Mistral from Small 3.2 on, Devstral, Ministral: `[TOOL_CALLS]NAME[ARGS]{…}`. It also reads the list of older ones.
pub(super) const MISTRAL: Notation = Notation {
    name: "mistral",
    section: None,
    call: marks("[TOOL_CALLS]", ""),
    form: CallForm::Named(NamedCall {
        name_ends: &["[ARGS]"],
        id: CallId::Behind("[CALL_ID]", "[ARGS]"),
    }),
    text: None,
    ignored: &[],
};

/// Solar.
pub(super) const SOLAR: Notation = Notation {
    name: "solar",
    section: Some(marks("<|tool_calls|>", "<|calls|>")),
    call: marks("<|tool_call:begin|>", "<|tool_call:end|>"),
    form: CallForm::Named(NamedCall {
        name_ends: &["<|tool_call:args|>"],
        id: CallId::Before("<|tool_call:name|>"),
    }),
    text: Some(marks("<|content|>", "<|end|>")),
    ignored: &["<|begin|>assistant"],
};

/// Functionary 3.1, Llama 3.1 with custom tools: `<function=NAME>{…}</function>`.
pub(super) const FUNCTIONARY_3_1: Notation = Notation {
    name: "functionary-3.1",
    section: None,
    call: marks("<function=", "</function>"),
    form: CallForm::Named(named(&[">"])),
    text: None,
    ignored: &[],
};
