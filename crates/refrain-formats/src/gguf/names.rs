//! GGUF's names of tensors, in Hugging Face's naming.

use crate::Architecture;

/// The parts of a block (`blk.N.`) and what they are called under `model.layers.N.`.
const BLOCK: [(&str, &str); 12] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Parts that some families call otherwise.
fn own_parts(architecture: Architecture) -> &'static [(&'static str, &'static str)] {
    match architecture {
        Architecture::Phi3 => &[("ffn_up", "mlp.gate_up_proj")],
        Architecture::Olmo2 | Architecture::Olmo3 => &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("post_ffw_norm", "post_feedforward_layernorm"),
        ],
        Architecture::Gemma3 => &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("post_ffw_norm", "post_feedforward_layernorm"),
        ],
        _ => &[],
    }
}

/// All parts of a family's block, its own first.
fn parts(architecture: Architecture) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    own_parts(architecture).iter().chain(&BLOCK)
}

/// The Hugging Face name of a tensor; names that are not known stay as they are.
pub(super) fn hugging_face(architecture: Architecture, name: &str) -> String {
    translate(architecture, name).unwrap_or_else(|| name.to_owned())
}

/// GGUF's name of a tensor under its Hugging Face name, `None` if it has none.
pub(crate) fn gguf(architecture: Architecture, name: &str) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
        "model.norm.weight" => return Some("output_norm.weight".to_owned()),
        "lm_head.weight" => return Some("output.weight".to_owned()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    let (known, _) = parts(architecture).find(|(_, own)| *own == part)?;
    Some(format!("blk.{layer}.{known}.{kind}"))
}

fn translate(architecture: Architecture, name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some("model.embed_tokens.weight".to_owned()),
        "output_norm.weight" => return Some("model.norm.weight".to_owned()),
        "output.weight" => return Some("lm_head.weight".to_owned()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let (part, kind) = rest.rsplit_once('.')?;
    let (_, own) = parts(architecture).find(|(known, _)| *known == part)?;
    matches!(kind, "weight" | "bias").then(|| format!("model.layers.{layer}.{own}.{kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated_or_kept() {
        let cases = [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight"),
            ("blk.11.ffn_down.bias", "model.layers.11.mlp.down_proj.bias"),
            ("blk.0.attn_rot_embd.weight", "blk.0.attn_rot_embd.weight"),
            ("blk.x.attn_q.weight", "blk.x.attn_q.weight"),
            ("something", "something"),
        ];
        for (name, expected) in cases {
            assert_eq!(hugging_face(Architecture::Qwen3, name), expected);
            assert_eq!(
                gguf(Architecture::Qwen3, expected).as_deref(),
                (name != expected).then_some(name)
            );
        }
    }

    #[test]
    fn names_are_those_of_the_family() {
        let cases = [
            (Architecture::Llama, "ffn_norm", "post_attention_layernorm"),
            (Architecture::Gemma3, "ffn_norm", "pre_feedforward_layernorm"),
            (Architecture::Gemma3, "post_attention_norm", "post_attention_layernorm"),
            (Architecture::Olmo2, "post_ffw_norm", "post_feedforward_layernorm"),
            (Architecture::Phi3, "attn_qkv", "self_attn.qkv_proj"),
            (Architecture::Phi3, "ffn_up", "mlp.gate_up_proj"),
        ];
        for (architecture, part, expected) in cases {
            let (name, expected) = (
                format!("blk.1.{part}.weight"),
                format!("model.layers.1.{expected}.weight"),
            );
            assert_eq!(hugging_face(architecture, &name), expected);
            assert_eq!(gguf(architecture, &expected), Some(name));
        }
    }
}
