"""The Qwen3 architecture in plain PyTorch, for training.

Parameters have the names of Hugging Face checkpoints, so `state_dict` can be saved as one.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train_tokenizer import CONTEXT, VOCABULARY


@dataclass
class Config:
    """The sizes of the model. All matrix widths are multiples of 64, the quantisation group."""

    hidden: int = 256
    layers: int = 8
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 768
    vocabulary: int = VOCABULARY
    context: int = CONTEXT
    rope_theta: float = 10000.0
    epsilon: float = 1e-6

    def hugging_face(self) -> dict:
        """The contents of config.json."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.epsilon,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        }

    @staticmethod
    def of(hugging_face: dict) -> "Config":
        """Reads the sizes from a config.json written by `hugging_face`."""
        return Config(
            hidden=hugging_face["hidden_size"],
            layers=hugging_face["num_hidden_layers"],
            heads=hugging_face["num_attention_heads"],
            kv_heads=hugging_face["num_key_value_heads"],
            head_dim=hugging_face["head_dim"],
            intermediate=hugging_face["intermediate_size"],
            vocabulary=hugging_face["vocab_size"],
            context=hugging_face["max_position_embeddings"],
            rope_theta=hugging_face["rope_theta"],
            epsilon=hugging_face["rms_norm_eps"],
        )


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [B, H, T, D]; the halves of D form the pairs. cos and sin are [T, D/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Norm(nn.Module):
    """RMS norm over the last axis, computed and returned in f32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.weight


def draft_mask(time: int, applications: int, device: torch.device) -> Tensor:
    """The mask [T, applications * T] of the last of several applications of a layer to drafts.

    Token t of the last application sees tokens 0 to t of the first one and token t of the others.
    """
    causal = torch.ones(time, time, dtype=torch.bool, device=device).tril()
    own = torch.eye(time, dtype=torch.bool, device=device)
    return torch.cat([causal] + [own] * (applications - 1), dim=1)


class Attention(nn.Module):
    """Causal grouped-query attention with normalised queries and keys."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.head_dim = c.head_dim
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.q_norm = Norm(c.head_dim, c.epsilon)
        self.k_norm = Norm(c.head_dim, c.epsilon)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, earlier: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
        """x [B, T, hidden] to the same shape.

        `earlier` holds the keys and values of earlier applications to drafts (see `draft_mask`). Those of this
        application are appended.
        """
        batch, time, _ = x.shape
        shape = (batch, time, -1, self.head_dim)
        q = self.q_norm(self.q_proj(x).view(shape)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(shape)).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        if earlier is not None:
            earlier.append((k, v))
        if earlier is None or len(earlier) == 1:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            keys, values = (torch.cat(parts, dim=2) for parts in zip(*earlier))
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=draft_mask(time, len(earlier), x.device))
        return self.o_proj(y.transpose(1, 2).reshape(batch, time, -1))


class FeedForward(nn.Module):
    """The gated feed-forward network: down(silu(gate(x)) * up(x))."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.down_proj = nn.Linear(c.intermediate, c.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer: attention and feed-forward, each after a norm."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.input_layernorm = Norm(c.hidden, c.epsilon)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c.hidden, c.epsilon)
        self.mlp = FeedForward(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, earlier: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, earlier)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and the last norm: ids [B, T] to hidden states [B, T, hidden]."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocabulary, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = Norm(c.hidden, c.epsilon)
        exponents = torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim
        positions = torch.arange(c.context, dtype=torch.float64)
        angles = positions[:, None] * c.rope_theta**-exponents
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        time = ids.shape[1]
        cos, sin = self.cos[:time], self.sin[:time]
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def ids_of(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The ids of rows [B, T] (see rows.py), and whether each is learned."""
    rows = rows.long()
    return torch.where(rows < 0, -rows - 1, rows), rows >= 0


def initialise(module: nn.Module, layers: int) -> None:
    """Draws the matrices of a module of `layers` layers. Outputs of layers begin smaller."""
    for name, parameter in module.named_parameters():
        if parameter.dim() == 2:
            out = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if out else 0.02)


class Qwen3(nn.Module):
    """The language model. The output head shares the embedding matrix."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.model = Decoder(c)
        initialise(self, c.layers)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocabulary] of hidden states [..., hidden]."""
        return F.linear(hidden, self.model.embed_tokens.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [B, T, vocabulary] of ids [B, T]."""
        return self.logits(self.model(ids))

    def loss(self, rows: Tensor) -> Tensor:
        """Mean cross entropy over the learned tokens of rows [B, T + 1] (see rows.py)."""
        ids, learned = ids_of(rows)
        targets = torch.where(learned, ids, -100)
        logits = self(ids[:, :-1]).float()
        return F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=-100)
