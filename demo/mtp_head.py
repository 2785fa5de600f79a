"""A multi-token prediction head: one more layer, which predicts the token after the next one.

The input of the layer is fc([norm(embedding of the next token), norm(hidden state of the model)]). A norm follows the
layer. Embedding and output head are those of the model. To predict further tokens, the head is applied again, to its
own hidden states. Parameters have Qwen3.5's names, without "mtp.".
"""

import torch
from torch import Tensor, nn

from qwen3 import Config, Decoder, Layer, Norm, initialise


class MtpHead(nn.Module):
    """The head of a model of the given sizes."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.pre_fc_norm_embedding = Norm(c.hidden, c.epsilon)
        self.pre_fc_norm_hidden = Norm(c.hidden, c.epsilon)
        self.fc = nn.Linear(2 * c.hidden, c.hidden, bias=False)
        self.layers = nn.ModuleList([Layer(c)])
        self.norm = Norm(c.hidden, c.epsilon)
        initialise(self, 1)

    def forward(self, model: Decoder, ids: Tensor, hidden: Tensor, applications: int) -> list[Tensor]:
        """The hidden states [B, T, hidden] of each application, given ids [B, T + applications].

        `hidden` [B, T, hidden] are those of the model for the first T ids. At position t, application k (from 0)
        reads ids up to t + 1 + k and predicts the next one. It sees the first application up to t, and its own draft.
        """
        time = hidden.shape[1]
        earlier: list[tuple[Tensor, Tensor]] = []
        found = []
        for k in range(applications):
            cos, sin = model.cos[k : k + time], model.sin[k : k + time]
            embedded = self.pre_fc_norm_embedding(model.embed_tokens(ids[:, k + 1 : k + 1 + time]))
            x = self.fc(torch.cat((embedded, self.pre_fc_norm_hidden(hidden)), dim=-1))
            hidden = self.norm(self.layers[0](x, cos, sin, earlier))
            found.append(hidden)
        return found
