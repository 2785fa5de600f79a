//! The notations that are known, each with the models that write it.

mod expressions;
mod named;
mod objects;
mod tagged;

use super::{CallForm, CallId, Marks, NamedCall, Notation, ObjectKeys};
use expressions::{GEMMA_4, LFM2, LLAMA_4};
use named::{DEEPSEEK_V3, DEEPSEEK_V3_1, FUNCTIONARY_3_1, KIMI_K2, MISTRAL, SOLAR};
use objects::{
    APERTUS, COHERE2_MOE, COMMAND_A, COMMAND_R, FIREFUNCTION, GIGACHAT_3, GIGACHAT_3_1, GRANITE_3, LLAMA_3,
    MISTRAL_LIST, NEMOTRON_2, PHI_4, TOOL_CALLS,
};
use tagged::{DEEPSEEK_V3_2, DEEPSEEK_V4, GLM, HUNYUAN, KIMI_K3, MINICPM_5, MINIMAX_M2, MINIMAX_M3, QWEN_XML, SEED};

pub(super) use objects::HERMES;

/// The notation of models whose template knows no tools, but whose client offers some. It is Hermes', and a reader takes
/// [`ALTERNATIVES`], too.
pub(super) const ASSUMED: Notation = Notation {
    name: "assumed",
    ..HERMES
};

/// Notations with the same mark as Hermes'.
pub(super) const ALTERNATIVES: [&Notation; 2] = [&QWEN_XML, &GLM];

pub(in crate::dialects) const fn marks(open: &'static str, close: &'static str) -> Marks {
    Marks { open, close }
}

/// A notation of JSON objects between marks, without a section.
const fn objects(name: &'static str, open: &'static str, close: &'static str) -> Notation {
    notation(name, None, marks(open, close), OBJECTS)
}

/// Objects as OpenAI's interface has them, each for itself.
const OBJECTS: CallForm = CallForm::Objects(ObjectKeys {
    name: "name",
    arguments: "arguments",
    is_list: false,
});

/// A list of such objects.
const OBJECT_LIST: CallForm = CallForm::Objects(ObjectKeys {
    name: "name",
    arguments: "arguments",
    is_list: true,
});

/// A notation without marks around text.
const fn notation(name: &'static str, section: Option<Marks>, call: Marks, form: CallForm) -> Notation {
    Notation {
        name,
        section,
        call,
        form,
        text: None,
        ignored: &[],
    }
}

pub(in crate::dialects) const fn named(name_ends: &'static [&'static str]) -> NamedCall {
    NamedCall {
        name_ends,
        id: CallId::None,
    }
}

/// The marks of reasoning, the most frequent first.
pub(in crate::dialects) const REASONING: [Marks; 14] = [
    marks("<think>", "</think>"),
    // Mistral
    marks("[THINK]", "[/THINK]"),
    // Gemma
    marks("<|channel>thought", "<channel|>"),
    // Cohere
    marks("<|START_THINKING|>", "<|END_THINKING|>"),
    // Seed-OSS
    marks("<seed:think>", "</seed:think>"),
    // MiniMax-M3
    marks("<mm:think>", "</mm:think>"),
    // Hunyuan
    marks("<think:opensource>", "</think:opensource>"),
    // Solar
    marks("<|think|>", "<|end|>"),
    // Kimi-K3
    marks("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    // Apriel
    marks("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    // Apertus
    marks("<|inner_prefix|>", "<|inner_suffix|>"),
    // EXAONE Deep
    marks("<thought>", "</thought>"),
    // Reka, older R1 derivatives
    marks("<reasoning>", "</reasoning>"),
    marks("<thinking>", "</thinking>"),
];

/// The notations by which an answer with calls may be read, in the order in which they are tried: of two that read the
/// same, the one with more marks stands first.
pub(in crate::dialects) const NOTATIONS: [&Notation; 32] = [
    &HERMES,
    &QWEN_XML,
    &SEED,
    &GLM,
    &HUNYUAN,
    &MINIMAX_M2,
    &MINIMAX_M3,
    &DEEPSEEK_V3_2,
    &DEEPSEEK_V4,
    &DEEPSEEK_V3_1,
    &DEEPSEEK_V3,
    &KIMI_K2,
    &KIMI_K3,
    &MISTRAL_LIST,
    &MISTRAL,
    &COMMAND_A,
    &COHERE2_MOE,
    &COMMAND_R,
    &NEMOTRON_2,
    &TOOL_CALLS,
    &APERTUS,
    &PHI_4,
    &GRANITE_3,
    &FIREFUNCTION,
    &GIGACHAT_3_1,
    &GIGACHAT_3,
    &SOLAR,
    &FUNCTIONARY_3_1,
    &MINICPM_5,
    &LFM2,
    &GEMMA_4,
    &LLAMA_3,
];

/// Notations that nothing but the model's name or vocabulary tells: marks in the template's text, and the notation.
pub(in crate::dialects) const BY_TEXT: [(&str, &Notation); 21] = [
    ("<|tool_list_start|>", &LFM2),
    ("<|tool_calls_section_begin|>", &KIMI_K2),
    ("<arg_key>", &GLM),
    ("<function=example_function_name>", &QWEN_XML),
    ("<minimax:tool_call>", &MINIMAX_M2),
    ("<｜DSML｜function_calls>", &DEEPSEEK_V3_2),
    ("<｜DSML｜tool_calls>", &DEEPSEEK_V4),
    ("<TOOLCALL>", &NEMOTRON_2),
    ("<seed:tool_call>", &SEED),
    ("<|START_ACTION|>", &COMMAND_A),
    ("<|tool_call_start|>", &LFM2),
    ("<|python_start|>", &LLAMA_4),
    ("<tool_call>", &HERMES),
    ("<|/tool_call|>", &PHI_4),
    ("<|tool_call|>", &GRANITE_3),
    ("[TOOL_CALLS]", &MISTRAL),
    ("<｜tool▁calls▁begin｜>", &DEEPSEEK_V3),
    ("functools[", &FIREFUNCTION),
    ("Write 'Action:'", &COMMAND_R),
    ("<|python_tag|>", &LLAMA_3),
    ("[func_name1(", &LLAMA_4),
];
