"""Logits by transformers in float32, with only the parameters rounded to what the checkpoint stores."""

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import drawing

# Scores of experts, which are of some units, have differed by half of this where activations are rounded to 16 bits.
LEAST_LEAD = 2e-3


def random_model(config, seed):
    """A model of `config` with parameters drawn from `seed`, all in float32."""
    model = auto_class(config).from_config(config, dtype=torch.float32, attn_implementation="eager")
    drawn = {name: draw(config, name, tuple(value.shape), seed) for name, value in learned(model)}
    return with_parameters(model, drawn)


def learned(model):
    """Names and values of what checkpoints hold: parameters, and what corrects routers' choices."""
    corrections = [row for row in model.named_buffers() if row[0].endswith("e_score_correction_bias")]
    return [*model.named_parameters(), *corrections]


def draw(config, name, shape, seed):
    """A parameter; of experts by columns, drawn as others are, large enough that some values are clamped."""
    if config.model_type == "gpt_oss" and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        experts, inputs, outputs = shape
        value = drawing.parameter(name, (experts, outputs, inputs), seed, config.tie_word_embeddings)
        return value.swapaxes(1, 2) * np.float32(3 if "gate_up" in name else 0.4)
    return drawing.parameter(name, shape, seed, config.tie_word_embeddings)


def auto_class(config):
    """What makes the model of a configuration: of text alone, or of images too."""
    return AutoModelForCausalLM if config.get_text_config() is config else AutoModelForImageTextToText


def with_parameters(model, values):
    """Sets every parameter of `model` from the float32 arrays in `values`, which must name them all."""
    parameters = dict(learned(model))
    if parameters.keys() != values.keys():
        raise ValueError(f"parameters differ: {sorted(parameters.keys() ^ values.keys())}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values[name], np.float32)))
    return model.eval()


def load_directory(path):
    """The checkpoint in the directory `path` as transformers reads it, its parameters widened to float32."""
    auto = auto_class(AutoConfig.from_pretrained(path))
    model = auto.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def logits(model, input_ids):
    """Logits [batch, length, vocabulary] in float32 for every position of `input_ids`."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_floating_point() and value.dtype != torch.float32:
            raise ValueError(f"{name} is {value.dtype}, not float32")
    leads = []
    hooks = [module.register_forward_hook(lead_of(leads)) for module in model.modules() if chooses_by_scores(module)]
    with torch.no_grad():
        out = model(torch.tensor(input_ids), use_cache=False).logits.numpy()
    for hook in hooks:
        hook.remove()
    if min(leads, default=LEAST_LEAD) < LEAST_LEAD:
        raise ValueError(f"experts are chosen by {min(leads):.1e}: what rounds otherwise may choose others")
    check_lively(out)
    return out


def chooses_by_scores(module):
    """Whether a module is a router whose experts are those of the largest scores."""
    return type(module).__name__.endswith("TopKRouter")


def lead_of(leads):
    """A hook that adds how far the last expert that a router chooses leads before the first that it does not."""

    def hook(router, inputs, _):
        scores = torch.nn.functional.linear(inputs[0].flatten(0, -2), router.weight, getattr(router, "bias", None))
        last, next_best = scores.topk(router.top_k + 1).values[:, -2:].unbind(-1)
        leads.append(float((last - next_best).min()))

    return hook


def check_lively(values):
    """Refuses logits that could hide a mistake: not finite, all alike, or the same at every position."""
    spread = float(values.std())
    between = float(values.std(axis=(0, 1)).mean())
    if not np.isfinite(values).all() or not 0.3 < spread < 5 or between < 0.3:
        raise ValueError(f"dull logits: standard deviation {spread:.3f}, {between:.3f} between positions")
