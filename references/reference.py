"""Reference logits by transformers in float32. Only parameters are rounded, to the precision of the checkpoint."""

import contextlib

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import drawing

# Minimum lead of a chosen expert over the next one. Rounding activations to 16 bits has changed router scores, which
# are of order 1, by half of this.
MIN_ROUTER_LEAD = 2e-3


def random_model(config, seed):
    """A model with parameters drawn from `seed`, all in float32."""
    model = auto_class(config).from_config(config, dtype=torch.float32, attn_implementation="eager")
    drawn = {name: draw(config, name, tuple(value.shape), seed) for name, value in learned(model)}
    return with_parameters(model, drawn)


def learned(model):
    """Names and values of the stored tensors: parameters and router correction biases."""
    corrections = [row for row in model.named_buffers() if row[0].endswith("e_score_correction_bias")]
    return [*model.named_parameters(), *corrections]


def draw(config, name, shape, seed):
    """Draws a parameter. Expert matrices of gpt-oss are large enough that some values are clamped."""
    if config.model_type == "gpt_oss" and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        experts, inputs, outputs = shape
        value = drawing.parameter(name, (experts, outputs, inputs), seed, config.tie_word_embeddings)
        return value.swapaxes(1, 2) * np.float32(3 if "gate_up" in name else 0.4)
    return drawing.parameter(name, shape, seed, config.tie_word_embeddings)


def auto_class(config):
    """The transformers class for a configuration with or without vision."""
    return AutoModelForCausalLM if config.get_text_config() is config else AutoModelForImageTextToText


def with_parameters(model, values):
    """Sets every parameter of `model` from float32 arrays. `values` must contain all of them."""
    parameters = dict(learned(model))
    if parameters.keys() != values.keys():
        raise ValueError(f"parameters differ: {sorted(parameters.keys() ^ values.keys())}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values[name], np.float32)))
    return model.eval()


def load_directory(path):
    """Loads a checkpoint directory with transformers, parameters widened to float32."""
    auto = auto_class(AutoConfig.from_pretrained(path))
    model = auto.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def logits(model, input_ids):
    """Logits [batch, length, vocabulary] in float32 for every position of `input_ids`."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_floating_point() and value.dtype != torch.float32:
            raise ValueError(f"{name} is {value.dtype}, not float32")
    with torch.no_grad(), clear_routing(model):
        out = model(torch.tensor(input_ids), use_cache=False).logits.numpy()
    check_distribution(out)
    return out


@contextlib.contextmanager
def clear_routing(model):
    """Rejects choices of experts that rounding may change."""
    leads = []
    hooks = [module.register_forward_hook(record_lead(leads)) for module in model.modules() if is_top_k_router(module)]
    yield
    for hook in hooks:
        hook.remove()
    if min(leads, default=MIN_ROUTER_LEAD) < MIN_ROUTER_LEAD:
        raise ValueError(f"experts lead by only {min(leads):.1e}: rounding may change the choice")


def is_top_k_router(module):
    """Whether a module is a router that selects the experts with the largest scores."""
    return type(module).__name__.endswith("TopKRouter")


def record_lead(leads):
    """Returns a hook that records the lead of the last chosen expert over the first one not chosen."""

    def hook(router, inputs, _):
        scores = torch.nn.functional.linear(inputs[0].flatten(0, -2), router.weight, getattr(router, "bias", None))
        last, next_best = scores.topk(router.top_k + 1).values[:, -2:].unbind(-1)
        leads.append(float((last - next_best).min()))

    return hook


def check_distribution(values):
    """Rejects logits that could hide an error: not finite, all equal, or equal at every position."""
    spread = float(values.std())
    between = float(values.std(axis=(0, 1)).mean())
    if not np.isfinite(values).all() or not 0.3 < spread < 5 or between < 0.3:
        raise ValueError(f"degenerate logits: standard deviation {spread:.3f}, {between:.3f} between positions")
