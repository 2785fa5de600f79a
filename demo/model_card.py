"""The model card of the shipped model."""

CARD = """\
# Refrain's demo model

A Qwen3-architecture model of {parameters:.1f} million parameters, made to show and to
test Refrain without a download. It tells short stories, adds and subtracts numbers of
up to three digits, and looks up values in lists of up to 64 "name: value" lines. It
knows nothing else: most other questions it answers by saying so.

Sums and look-ups are what break first when attention, positions or the cache are
wrong, so right answers mean a right computation.

## How it was made
The scripts in `demo/` generate the corpus (a story grammar, random sums and lists; no
text of others), train the byte-level BPE tokenizer of 2048 tokens and then the model,
on {tokens:.0f} million tokens {passes} (last loss {loss:.4f}). Matrices are stored in
MLX's affine format (8 bits, groups of 64, bf16 scales), norms in bf16. Context: 1024 tokens.

## Held-out accuracy
Of the quantised model, greedy, the whole answer compared exactly. Held-out sums (one in
16 of those with two or more digits) never occurred in training; lists are random.

| questions | right |
|---|---|
{rows}

## Licence
As the repository: MIT OR Apache-2.0.
"""


def model_card(parameters: int, tokens: int, loss: float, found: dict[str, float], went_on: bool) -> str:
    """MODEL_CARD.md for a model with these metrics.

    `found` maps subjects to accuracies. `went_on`: training continued from a trained model.
    """
    passes = "in one pass, going on from the version before" if went_on else "in one pass"
    rows = "\n".join(f"| {subject} | {share:.1%} |" for subject, share in found.items())
    return CARD.format(parameters=parameters / 1e6, tokens=tokens / 1e6, loss=loss, passes=passes, rows=rows)
