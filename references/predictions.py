"""Multi-token prediction by a head of transformers' layers. Models that transformers loads skip the tensors of a head.

The input is the model's hidden state after its last norm; in further runs, the head's own after its norm.
"""

import copy

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

import reference

# Minimum lead of a drafted token over the next best one. Rounding activations to 16 bits changes less.
MIN_TOKEN_LEAD = 0.2

# Heads that are stored as a further layer: their names in it, by the start of Qwen3.5's.
LAYER_NAMES = {
    "fc.": "eh_proj.",
    "pre_fc_norm_embedding.": "enorm.",
    "pre_fc_norm_hidden.": "hnorm.",
    "norm.": "shared_head.norm.",
    "layers.0.": "",
}


def is_predicting(config):
    """Whether the text model has a head."""
    return is_layer(config) or bool(getattr(config, "mtp_num_hidden_layers", 0))


def is_layer(config):
    """Whether the head is stored as a layer after the model's, as for GLM-4.5 and DeepSeek-V3."""
    return bool(getattr(config, "num_mtp_layers", 0))


def layer_prefix(config):
    """The start of the names of such a head."""
    return f"model.layers.{config.num_hidden_layers}."


def stored_name(config, name):
    """The published name of a parameter of the head."""
    if not is_layer(config):
        return f"mtp.{name}"
    start = next(start for start in LAYER_NAMES if name.startswith(start))
    return layer_prefix(config) + LAYER_NAMES[start] + name.removeprefix(start)


def new_head(config):
    """A head with parameters still to be set: a model of one layer, and the parts before it.

    Its parameters have Qwen3.5's published names after `mtp.`.
    """
    config = copy.deepcopy(config)
    config.num_hidden_layers, config.layer_types, config.first_k_dense_replace = 1, ["full_attention"], 0
    head = AutoModel.from_config(config, dtype=torch.float32, attn_implementation="eager")
    del head.embed_tokens
    head.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    for part in ("pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        setattr(head, part, type(head.norm)(config.hidden_size, config.rms_norm_eps))
    return head


def tensors(config, seed, dtype):
    """The published tensors of a head drawn from `seed`; none if the model has no head."""
    if not is_predicting(config):
        return {}
    shapes = {stored_name(config, name): tuple(value.shape) for name, value in reference.learned(new_head(config))}
    drawn = {name: reference.draw(config, name, shape, seed) for name, shape in shapes.items()}
    if is_layer(config):  # has copies of two tensors of the model
        for copied, name in (("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")):
            shape = (config.vocab_size, config.hidden_size)
            drawn[f"{layer_prefix(config)}{copied}.weight"] = reference.draw(config, f"{name}.weight", shape, seed)
    return {name: torch.from_numpy(value).to(dtype) for name, value in drawn.items()}


def load_head(config, directory):
    """The head stored in model.safetensors, parameters widened to float32."""
    stored, head = load_file(directory / "model.safetensors"), new_head(config)
    names = [name for name, _ in reference.learned(head)]
    return reference.with_parameters(head, {name: stored_value(config, stored, name).numpy() for name in names})


def stored_value(config, stored, name):
    """A parameter of the head from stored tensors, which may hold each expert by itself."""
    name = stored_name(config, name)
    if name in stored:
        return stored[name].float()
    experts, _, fused = name.rpartition(".")
    parts = ("gate_proj", "up_proj") if fused == "gate_up_proj" else (fused,)
    rows = [[stored[f"{experts}.{at}.{part}.weight"] for part in parts] for at in range(config.n_routed_experts)]
    return torch.stack([torch.cat(row) for row in rows]).float()


def write(model, directory, ids):
    """Writes predictions.safetensors: logits of the head for the first row of `ids`, and of two further drafts."""
    head = load_head(model.config.get_text_config(), directory)
    first, second, third = predict(model, head, ids[0], 3)
    reference.check_distribution(first.numpy()[None])
    best = torch.stack([first[-1], second[-1], third[-1]]).topk(2).values
    lead = float((best[:, 0] - best[:, 1]).min())
    if lead < MIN_TOKEN_LEAD:
        raise ValueError(f"a drafted token leads by only {lead:.2f}: rounding may change the choice")
    rows = {"first": first, "second": second[-1].clone(), "third": third[-1].clone()}
    save_file(rows, directory / "predictions.safetensors")


def predict(model, head, ids, drafts):
    """Logits at every position, by each of `drafts` runs. A run is one position longer than the run before, whose best
    last token it takes.
    """
    tokens, found = torch.tensor(ids), []
    with torch.no_grad(), reference.clear_routing(head):
        hidden = model.base_model(tokens[None], use_cache=False).last_hidden_state[0, :-1]
        for _ in range(drafts):
            embedded = head.pre_fc_norm_embedding(model.get_input_embeddings()(tokens[1:]))
            mixed = head.fc(torch.cat([embedded, head.pre_fc_norm_hidden(hidden)], -1))
            outputs = head(inputs_embeds=mixed[None], use_cache=False).last_hidden_state[0]
            logits = model.get_output_embeddings()(outputs)
            found.append(logits)
            tokens = torch.cat([tokens, logits[-1:].argmax(-1)])
            hidden = torch.cat([hidden, outputs[-1:]])
    return found
