"""Random configurations of every family: shapes, RoPE, sliding windows, biases, tied embeddings."""

import math

import families
import shapes

# The kinds of RoPE scaling in `config.json` and in GGUF files.
FLAT_ROPES = ("default", "linear", "llama3", "yarn", "dynamic")
GGUF_ROPES = ("default", "linear", "llama3", "yarn")


class Choices:
    """Random choices for one configuration. Row lengths are multiples of `unit`."""

    def __init__(self, rng, storage, unit):
        self.rng, self.storage, self.unit = rng, storage, unit
        self.gguf = storage == "gguf"

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def flip(self):
        return bool(self.rng.integers(2))

    def multiple(self, unit, low, high):
        """A random multiple of `unit` between about `low` and `high`."""
        return unit * int(self.rng.integers(max(1, low // unit), max(1, high // unit) + 1))

    def heads(self, *sizes):
        """Query heads, KV heads and head size, whose product is a multiple of the quantisation group."""
        kv_heads, head_dim = self.pick(1, 1, 2, 3), self.pick(*sizes)
        heads = kv_heads * self.pick(1, 1, 2, 3)
        while heads * head_dim % self.unit:
            heads, kv_heads = 2 * heads, 2 * kv_heads
        return heads, kv_heads, head_dim

    def intermediate(self):
        return self.multiple(self.unit, 1, 400)

    def layers(self):
        return self.pick(1, 2, 3)

    def vocabulary(self):
        return int(self.rng.integers(401, 700))

    def window(self):
        """A sliding window, shorter or longer than the sequences."""
        return self.pick(1, 2, 7, 16, 33, 100, 4096)

    def rope(self, *kinds):
        """RoPE settings of one of `kinds`, and other settings that belong to them."""
        kind = self.pick(*kinds, kinds[-1])
        rope = {"rope_type": kind, "rope_theta": self.pick(1e4, 5e5, 1e6)}
        original = self.pick(16, 32, 64, 256, 4096)
        if kind != "default":
            rope["factor"] = self.pick(2.0, 4.0, 8.0, 32.0)
        if kind == "llama3":
            rope |= {"low_freq_factor": 1.0, "high_freq_factor": self.pick(2.0, 4.0)}
        if kind in ("llama3", "yarn"):
            rope["original_max_position_embeddings"] = original
        if kind == "yarn" and not self.gguf:
            rope |= self.pick({}, {"attention_factor": 1.21}, {"beta_fast": 16.0, "beta_slow": 2.0})
            rope |= self.pick({}, {"truncate": False}, {"mscale": 0.7, "mscale_all_dim": 0.9})
        # Dynamic RoPE changes the frequencies beyond the original context length.
        return rope, {"max_position_embeddings": self.pick(64, 100) if kind == "dynamic" else 4096}


def qwen3(draw):
    heads, kv_heads, head_dim = draw.heads(32, 40, 48, 64, 80, 96, 128, 256)
    hidden = draw.multiple(draw.unit, 48, 256)
    sizes = (hidden, draw.intermediate(), draw.layers(), heads, kv_heads, head_dim, draw.vocabulary())
    config = shapes.qwen3(*sizes, tied=draw.flip(), bias=not draw.gguf and draw.flip())
    return with_rope(config, draw)


def llama(draw):
    heads, kv_heads, head_dim = draw.heads(32, 40, 48, 64, 80, 96, 128)
    hidden = draw.multiple(math.lcm(draw.unit, heads), 64, 256)  # transformers wants a multiple of heads
    config = shapes.llama(
        hidden,
        draw.intermediate(),
        draw.layers(),
        heads,
        kv_heads,
        draw.vocabulary(),
        head_dim=head_dim,
        tied=draw.flip(),
        attention_bias=draw.flip(),
        mlp_bias=draw.flip(),
        eps=draw.pick(1e-5, 1e-6),
    )
    return with_rope(config, draw)


def qwen2(draw):
    """Head size is hidden / heads."""
    windows = {} if draw.gguf or draw.flip() else {"window": draw.window(), "first_windowed": draw.pick(0, 1, 2)}
    return with_rope(families.qwen2(*joint_sizes(draw), tied=draw.flip(), **windows), draw)


def mistral(draw):
    heads, kv_heads, head_dim = draw.heads(32, 48, 64, 128)
    hidden = draw.multiple(draw.unit, 48, 256)
    sizes = (hidden, draw.intermediate(), draw.layers(), heads, kv_heads, draw.vocabulary())
    # GGUF files of Mistral models store no window.
    window = None if draw.gguf else draw.pick(None, draw.window())
    config = families.mistral(*sizes, head_dim=head_dim, window=window)
    config.tie_word_embeddings = draw.flip()
    return with_rope(config, draw)


def smollm3(draw):
    interval = 4 if draw.gguf else draw.pick(1, 2, 3, 4)
    config = families.smollm3(*joint_sizes(draw), no_rope_layer_interval=interval)
    config.tie_word_embeddings = draw.flip()
    config.attention_bias = not draw.gguf and draw.flip()
    return with_rope(config, draw)


def olmo2(draw):
    config = families.olmo2(*joint_sizes(draw), bias=not draw.gguf and draw.flip())
    config.tie_word_embeddings = draw.flip()
    return with_rope(config, draw)


def olmo3(draw):
    config = families.olmo3(*joint_sizes(draw), window=draw.window())
    config.tie_word_embeddings = draw.flip()
    return with_two_ropes(config, draw, local_theta=None)


def phi3(draw):
    config = families.phi3(*joint_sizes(draw), window=draw.pick(None, draw.window()))
    config.tie_word_embeddings = draw.flip()
    head_dim = config.hidden_size // config.num_attention_heads
    part = draw.pick(1.0, 1.0, 0.5, 0.75)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": part}
    if draw.flip():
        original = draw.pick(32, 64, 512)
        config.max_position_embeddings = original * draw.pick(8, 32)
        config.original_max_position_embeddings = original
        pairs = int(head_dim * part) // 2
        rope |= {
            "rope_type": "longrope",
            "short_factor": [round(float(f), 3) for f in draw.rng.uniform(1, 2, pairs)],
            "long_factor": [round(float(f), 3) for f in draw.rng.uniform(1, 40, pairs)],
            "original_max_position_embeddings": original,
        }
    config.rope_parameters = rope
    return config


def gemma3(draw):
    heads, kv_heads, head_dim = draw.heads(32, 48, 64, 256)
    hidden = draw.multiple(math.lcm(draw.unit, heads), 48, 256)
    sizes = (hidden, draw.intermediate(), draw.pick(2, 3, 6, 7), heads, kv_heads, draw.vocabulary())
    config = families.gemma3(
        *sizes,
        head_dim=head_dim,
        window=draw.window(),
        pattern=draw.pick(2, 3, 6),
        # GGUF files have no key for this.
        scalar=head_dim if draw.gguf else draw.pick(head_dim, 24, 168),
        cap=draw.pick(None, 3.0, 30.0),
    )
    return with_two_ropes(config, draw, local_theta=1e4)


def qwen3_moe(draw):
    heads, kv_heads, head_dim = draw.heads(32, 40, 64, 96, 128)
    hidden = draw.multiple(draw.unit, 48, 256)
    sizes = (hidden, draw.intermediate(), draw.layers(), heads, kv_heads, draw.vocabulary())
    experts = draw.pick(2, 3, 7, 16)
    config = families.qwen3_moe(
        *sizes,
        head_dim=head_dim,
        experts=(experts, draw.pick(1, 2, experts)),
        width=draw.multiple(draw.unit, 1, 130),
        # llama.cpp always normalises the weights.
        renormalised=draw.gguf or draw.flip(),
        tied=draw.flip(),
    )
    return with_rope(config, draw)


def granite(draw):
    config = families.granite(
        *joint_sizes(draw),
        multipliers=(draw.pick(1.0, 12.0), draw.pick(0.02, 0.125, 0.3), draw.pick(0.22, 1.0), draw.pick(1.5, 6.0)),
        tied=draw.flip(),
        bias=not draw.gguf and draw.flip(),
        mlp_bias=not draw.gguf and draw.flip(),
    )
    return with_rope(config, draw)


def starcoder2(draw):
    # GGUF files store no window and always have biases.
    window = None if draw.gguf else draw.pick(None, draw.window())
    sizes = joint_sizes(draw)
    return with_rope(families.starcoder2(*sizes, tied=draw.flip(), window=window, bias=draw.gguf or draw.flip()), draw)


def cohere(draw):
    # mlx-lm does not quantise norms, but the MLX writer would treat these as matrices.
    config = families.cohere(
        *joint_sizes(draw),
        logits=draw.pick(0.7, 1.3, 1.6),
        normalised=draw.storage != "mlx" and draw.flip(),
        tied=draw.flip(),
    )
    config.attention_bias = not draw.gguf and draw.flip()
    return with_rope(config, draw)


def cohere2(draw):
    # llama.cpp supports only this period.
    config = families.cohere2(*joint_sizes(draw), logits=draw.pick(0.7, 1.4), window=draw.window(), tied=draw.flip())
    return with_rope(config, draw)


def glm4_moe(draw):
    heads, kv_heads, head_dim = draw.heads(32, 64, 80, 96, 128)
    hidden = draw.multiple(draw.unit, 48, 256)
    layers = draw.layers()
    sizes = (hidden, draw.intermediate(), layers, heads, kv_heads, draw.vocabulary())
    groups, each = draw.pick((1, 1), (2, 1), (3, 2), (4, 2)), draw.pick(2, 3, 5)
    return families.glm4_moe(
        *sizes,
        head_dim=head_dim,
        experts=(groups[0] * each, draw.pick(1, 2, groups[1] * each)),
        width=draw.multiple(draw.unit, 1, 130),
        dense=draw.pick(0, 1, layers),
        groups=groups,
        scale=draw.pick(1.0, 1.7, 2.5),
        normalised=draw.flip(),
        part=draw.pick(0.5, 0.25, 1.0),
    )


FAMILIES = {
    "qwen3": (qwen3, ("qwen2",)),
    "llama": (llama, ("llama3", "llama2")),
    "qwen2": (qwen2, ("qwen2",)),
    "mistral": (mistral, ("llama2",)),
    "smollm3": (smollm3, ("llama3",)),
    "olmo2": (olmo2, ("qwen2",)),
    "olmo3": (olmo3, ("qwen2",)),
    "phi3": (phi3, ("llama2",)),
    "gemma3": (gemma3, ("qwen2",)),
    "qwen3-moe": (qwen3_moe, ("qwen2",)),
    "granite": (granite, ("llama2",)),
    "starcoder2": (starcoder2, ("qwen2",)),
    "cohere": (cohere, ("qwen2",)),
    "cohere2": (cohere2, ("qwen2",)),
    "glm4-moe": (glm4_moe, ("qwen2",)),
}


def joint_sizes(draw):
    """Sizes of families whose heads together have the width of the residual stream."""
    heads, kv_heads, head_dim = draw.heads(32, 40, 64, 80, 96, 128)
    return heads * head_dim, draw.intermediate(), draw.layers(), heads, kv_heads, draw.vocabulary()


def with_rope(config, draw):
    """Sets one RoPE for all layers."""
    rope, others = draw.rope(*(GGUF_ROPES if draw.gguf else FLAT_ROPES))
    config.rope_parameters = rope
    for name, value in others.items():
        setattr(config, name, value)
    return config


def with_two_ropes(config, draw, local_theta):
    """Sets different RoPE settings for layers with and without a sliding window."""
    whole, _ = draw.rope("default", "linear") if config.model_type == "gemma3_text" else draw.rope("default", "yarn")
    if local_theta is None:
        # In files of the old format, transformers 5 reads a different base for windowed layers than version 4 did,
        # unless it is the base of all published models.
        local_theta = whole["rope_theta"] = 5e5
    local = {"rope_type": "default", "rope_theta": local_theta}
    config.rope_parameters = families.two_ropes(local, whole)
    return config
