//! Notations of calls whose arguments stand between marks.

use super::{marks, named};
use crate::dialects::ValueType::{BySchema, Json, Text};
use crate::dialects::{ArgumentTags, CallForm, CallId, ElementTags, NamedCall, Notation};

/// Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5.
pub(super) const QWEN_XML: Notation = Notation {
    name: "qwen-xml",
    section: Some(marks("<tool_call>", "</tool_call>")),
    call: marks("<function=", "</function>"),
    form: CallForm::Tagged(
        named(&[">"]),
        ArgumentTags {
            key: "<parameter=",
            key_ends: &[(">", BySchema)],
            value: "",
            value_end: "</parameter>",
            on_lines: true,
        },
    ),
    text: None,
    ignored: &[],
};

/// Seed-OSS.
pub(super) const SEED: Notation = Notation {
    name: "seed-oss",
    section: Some(marks("<seed:tool_call>", "</seed:tool_call>")),
    call: marks("<function=", "</function>"),
    form: CallForm::Tagged(
        named(&[">"]),
        ArgumentTags {
            key: "<parameter=",
            key_ends: &[(">", BySchema)],
            value: "",
            value_end: "</parameter>",
            on_lines: false,
        },
    ),
    text: None,
    ignored: &[],
};

/// GLM 4.5 to 4.7, Ling, Laguna, Spark: `<tool_call>NAME<arg_key>…</arg_key><arg_value>…</arg_value></tool_call>`.
pub(super) const GLM: Notation = Notation {
    name: "glm",
    section: Some(marks("<tool_call>", "</tool_call>")),
    call: marks("", ""),
    form: CallForm::Tagged(
        named(&["\n"]),
        ArgumentTags {
            key: "<arg_key>",
            key_ends: &[("</arg_key>", BySchema)],
            value: "<arg_value>",
            value_end: "</arg_value>",
            on_lines: false,
        },
    ),
    text: None,
    ignored: &[],
};

/// Hunyuan.
pub(super) const HUNYUAN: Notation = Notation {
    name: "hunyuan",
    section: Some(marks("<tool_calls:opensource>", "</tool_calls:opensource>")),
    call: marks("<tool_call:opensource>", "</tool_call:opensource>"),
    form: CallForm::Tagged(
        named(&["<tool_sep:opensource>"]),
        ArgumentTags {
            key: "<arg_key:opensource>",
            key_ends: &[("</arg_key:opensource>", BySchema)],
            value: "<arg_value:opensource>",
            value_end: "</arg_value:opensource>",
            on_lines: false,
        },
    ),
    text: None,
    ignored: &[],
};

/// MiniMax-M2.
pub(super) const MINIMAX_M2: Notation = Notation {
    name: "minimax-m2",
    section: Some(marks("<minimax:tool_call>", "</minimax:tool_call>")),
    call: marks("<invoke name=\"", "</invoke>"),
    form: CallForm::Tagged(named(&["\">"]), PARAMETER_TAGS),
    text: None,
    ignored: &[],
};

const PARAMETER_TAGS: ArgumentTags = ArgumentTags {
    key: "<parameter name=\"",
    key_ends: &[("\">", BySchema)],
    value: "",
    value_end: "</parameter>",
    on_lines: false,
};

/// MiniMax-M3: each argument is an element of its own name, before each tag a mark.
pub(super) const MINIMAX_M3: Notation = Notation {
    name: "minimax-m3",
    section: Some(marks("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>")),
    call: marks("]<]minimax[>[<invoke name=\"", "]<]minimax[>[</invoke>"),
    form: CallForm::Elements(
        named(&["\">"]),
        ElementTags {
            prefix: "]<]minimax[>[",
            item: "item",
        },
    ),
    text: None,
    ignored: &[],
};

/// DeepSeek V3.2.
pub(super) const DEEPSEEK_V3_2: Notation = Notation {
    name: "deepseek-v3.2",
    section: Some(marks("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")),
    call: marks("<｜DSML｜invoke name=\"", "</｜DSML｜invoke>"),
    form: CallForm::Tagged(named(&["\">"]), DSML_TAGS),
    text: None,
    ignored: &[],
};

/// DeepSeek V4.
pub(super) const DEEPSEEK_V4: Notation = Notation {
    name: "deepseek-v4",
    section: Some(marks("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")),
    call: marks("<｜DSML｜invoke name=\"", "</｜DSML｜invoke>"),
    form: CallForm::Tagged(named(&["\">"]), DSML_TAGS),
    text: None,
    ignored: &[],
};

const DSML_TAGS: ArgumentTags = ArgumentTags {
    key: "<｜DSML｜parameter name=\"",
    key_ends: &[
        ("\" string=\"true\">", Text),
        ("\" string=\"false\">", Json),
        ("\">", BySchema),
    ],
    value: "",
    value_end: "</｜DSML｜parameter>",
    on_lines: false,
};

/// Kimi K3.
pub(super) const KIMI_K3: Notation = Notation {
    name: "kimi-k3",
    section: Some(marks("<|open|>tools<|sep|>", "<|close|>tools<|sep|>")),
    call: marks("<|open|>call tool=\"", "<|close|>call<|sep|>"),
    form: CallForm::Tagged(
        NamedCall {
            name_ends: &["<|sep|>"],
            id: CallId::Skipped("\""),
        },
        ArgumentTags {
            key: "<|open|>argument key=\"",
            key_ends: &[
                ("\" type=\"string\"<|sep|>", Text),
                ("\" type=\"number\"<|sep|>", Json),
                ("\" type=\"integer\"<|sep|>", Json),
                ("\" type=\"boolean\"<|sep|>", Json),
                ("\" type=\"object\"<|sep|>", Json),
                ("\" type=\"array\"<|sep|>", Json),
                ("\" type=\"null\"<|sep|>", Json),
                ("\"<|sep|>", BySchema),
            ],
            value: "",
            value_end: "<|close|>argument<|sep|>",
            on_lines: false,
        },
    ),
    text: Some(marks("<|open|>response<|sep|>", "<|close|>response<|sep|>")),
    ignored: &["<|close|>message<|sep|>", "<|end_of_msg|>"],
};

/// MiniCPM5.
pub(super) const MINICPM_5: Notation = Notation {
    name: "minicpm-5",
    section: None,
    call: marks("<function name=\"", "</function>"),
    form: CallForm::Tagged(
        named(&["\">"]),
        ArgumentTags {
            key: "<param name=\"",
            key_ends: &[("\">", BySchema)],
            value: "",
            value_end: "</param>",
            on_lines: false,
        },
    ),
    text: None,
    ignored: &[],
};
