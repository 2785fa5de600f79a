"""Tests of the demo scripts: `python3 -m pytest demo`."""

import itertools
import json
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import acceptance
import checkpoint
import corpus
import evaluate
import everyday
import qwen3
import rows
import stories
import tasks
import train_drafts
import untaught
from mtp_head import MtpHead
from quantise import dequantise, quantise
from train import TINY, TOKENIZER

FOLDER = TOKENIZER.parent
SPECIAL = {corpus.END_OF_TEXT: 0, corpus.TURN_START: 1, corpus.TURN_END: 2}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))


def test_special_tokens_have_the_first_ids(tokenizer: Tokenizer) -> None:
    assert {text: tokenizer.token_to_id(text) for text in SPECIAL} == SPECIAL
    assert tokenizer.get_vocab_size() == qwen3.VOCABULARY


def test_tokenizer_round_trips_any_text(tokenizer: Tokenizer) -> None:
    text = "Mia: 407\n\tÄrger, 東京 and 🦊!  two  spaces"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_stories_fill_all_slots_and_name_their_hero() -> None:
    rng = Random(1)
    for _ in range(2000):
        told = stories.story(rng)
        request = stories.request(rng, told)
        assert not re.search(r"[{}]|  |\.\.", told.text + request)
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", told.text)
        assert told.hero.name in told.text and told.text[-1] in '.!?"'


def test_training_contains_no_held_out_sum() -> None:
    equation = re.compile(r"(\d+) ([+-]) (\d+) = (-?\d+)")
    shown = below_zero = 0
    for segments in itertools.islice(corpus.documents(7), 3000):
        for a, sign, b, result in equation.findall("".join(text for text, _ in segments)):
            drawn = tasks.Sum(int(a), sign, int(b))
            assert drawn.result == int(result) and not drawn.held_out
            shown += 1
            below_zero += int(result) < 0
    assert shown > 3000 and below_zero > 30
    assert evaluate.held_out_sum(Random(1), 3, "-").held_out


def test_requests_contain_invented_names() -> None:
    rng = Random(4)
    told = [stories.story(rng) for _ in range(500)]
    assert any(one.hero.invented for one in told)
    assert all(one.hero.name in stories.request(rng, one) for one in told if one.hero.invented)


def test_numbers_in_words() -> None:
    assert [everyday.in_words(n) for n in (0, 7, 12, 20, 42, 99)] == ["zero", "seven", "twelve", "twenty", "forty-two", "ninety-nine"]


def test_casual_sums_contain_both_numbers_in_order() -> None:
    rng = Random(5)
    values = {everyday.in_words(n): n for n in range(100)}
    swapped = re.compile(r"from|add \d+ to", re.IGNORECASE)
    asked = set()
    for _ in range(3000):
        a, sign, b = rng.randint(0, 999), rng.choice("+-"), rng.randint(0, 99)
        question = everyday.sum_question(rng, a, sign, b)
        asked.add(re.sub(r"\d+", "N", question))
        found = [int(digits) for digits in re.findall(r"\d+", question)]
        found = found or [values[word] for word in re.findall(r"[a-z-]+", question) if word in values]
        assert found == ([b, a] if swapped.search(question) else [a, b]), question
    for common in ("N+N", "N+N=", "What's N-N?", "N plus N", "N-N"):
        assert common in asked


def test_questions_have_a_single_answer() -> None:
    rng = Random(6)
    plain = [tasks.training_sum_turn(rng) for _ in range(3000)] + [tasks.small_talk_turn(rng) for _ in range(500)]
    refused = [tasks.untaught_turn(rng, begins=True) for _ in range(6000)]
    lines = {untaught.UNTAUGHT, untaught.BEYOND, untaught.NO_LIST}
    assert {answer for _, answer in refused} == lines and not lines & {answer for _, answer in plain}
    answered: dict[str, set[str]] = {}
    for question, answer in plain + refused:
        answered.setdefault(question.lower(), set()).add(answer)
    assert not {question: several for question, several in answered.items() if len(several) > 1}
    assert not any(re.search(r"[{}]|\bstor(y|ies)\b", question) for question, _ in refused)


def test_held_out_questions_are_not_in_training() -> None:
    rng = Random(7)
    held_out = {question.lower().rstrip("?!.") for question in untaught.HELD_OUT}
    forms = {form.lower().rstrip("?!.") for form in untaught.FORMS + untaught.BARE}
    assert not held_out & forms
    assert not held_out & {untaught.question(rng, begins=True).lower().rstrip("?!.") for _ in range(20000)}


def test_recall_answers_are_lines_of_the_list() -> None:
    rng = Random(3)
    for _ in range(300):
        turns = tasks.recall_chat(rng)
        for _, answer in turns:
            for line in answer.split("\n") if answer != tasks.LIST_TAKEN else ():
                assert f"\n{line}\n" in f"\n{turns[0][0]}\n"


def test_segments_encode_like_the_whole_text(tokenizer: Tokenizer) -> None:
    documents = list(itertools.islice(corpus.documents(11), 300))
    for segments, ids in zip(documents, rows.encode(tokenizer, documents)):
        whole = tokenizer.encode("".join(text for text, _ in segments), add_special_tokens=False).ids
        assert np.where(ids < 0, -(ids + 1), ids).tolist() == whole[: rows.ROW]
        learned = "".join(text for text, learned in segments if learned)
        assert tokenizer.decode(ids[ids >= 0].tolist(), skip_special_tokens=False)[:500] == learned[:500]


def test_rows_are_full_and_mostly_text(tokenizer: Tokenizer) -> None:
    batch = next(rows.batches(tokenizer, 5, 64))
    assert batch.shape == (64, rows.ROW) and batch.dtype == np.int16
    assert (batch == -1).mean() < 0.05


def test_prompts_equal_the_chat_template(tokenizer: Tokenizer) -> None:
    jinja2 = pytest.importorskip("jinja2")
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((FOLDER / "chat_template.jinja").read_text())
    messages = [
        {"role": "user", "content": "2 + 3"},
        {"role": "assistant", "content": "2 + 3 = 5"},
        {"role": "user", "content": "Thanks!"},
    ]
    rendered = template.render(messages=messages, add_generation_prompt=True)
    assert rendered == corpus.chat_prompt([("2 + 3", "2 + 3 = 5")], "Thanks!")


@pytest.mark.parametrize("bits", [4, 8])
def test_quantisation_equals_mlx(bits: int) -> None:
    mx = pytest.importorskip("mlx.core")
    weight = np.random.default_rng(1).normal(size=(96, 256)).astype(np.float32) * 0.05
    weight[3, :64] = 0.0
    weight[4, 64:128] = 0.25
    weight = torch.from_numpy(weight).bfloat16().float().numpy()
    words, scales, biases = quantise(weight, 64, bits)
    expected = mx.quantize(mx.array(weight).astype(mx.bfloat16), group_size=64, bits=bits)
    assert np.array_equal(words, np.array(expected[0]))
    assert np.array_equal(scales, np.array(expected[1].astype(mx.float32)))
    assert np.array_equal(biases, np.array(expected[2].astype(mx.float32)))
    step = np.abs(scales).repeat(64, axis=1)
    assert (np.abs(dequantise(words, scales, biases, bits) - weight) <= 2 * step).all()


def test_exported_weights_give_the_same_logits_in_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    shipped = checkpoint.export(qwen3.Qwen3(TINY), tmp_path, SPECIAL)
    with torch.no_grad():
        for parameter in shipped.parameters():
            parameter.mul_(3.0 if parameter.dim() == 2 else 1.1)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization"]
    reference = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config)).float().eval()
    missing, unexpected = reference.load_state_dict(shipped.state_dict(), strict=False)
    assert missing in ([], ["lm_head.weight"]) and not unexpected
    reference.tie_weights()
    ids = torch.randint(0, TINY.vocabulary, (2, 200))
    with torch.no_grad():
        expected, found = reference(ids).logits, shipped(ids)
    assert (expected - found).norm() <= 1e-5 * expected.norm()


def test_export_round_trips(tmp_path: Path) -> None:
    torch.manual_seed(2)
    shipped = checkpoint.export(qwen3.Qwen3(TINY), tmp_path, SPECIAL)
    loaded = checkpoint.load(tmp_path)
    ids = torch.arange(32)[None]
    assert torch.equal(shipped(ids), loaded(ids))


def test_the_shipped_model_can_be_trained_further(tokenizer: Tokenizer) -> None:
    model = checkpoint.load(FOLDER)
    assert model.config == qwen3.Config()
    (ids,) = rows.encode(tokenizer, [corpus.chat_segments([("What is 12 + 30?", "12 + 30 = 42")])])
    loss = model.train().loss(torch.from_numpy(ids)[None])
    loss.backward()
    assert loss.item() < 0.01 and all(parameter.grad is not None for parameter in model.parameters())


def test_batched_answers_equal_single_ones(tokenizer: Tokenizer) -> None:
    torch.manual_seed(3)
    model = qwen3.Qwen3(TINY).eval()
    prompts = [[5, 9, 300], [7] * 20, [1, 2, 3, 4, 5, 6]]
    together = evaluate.answers(model, prompts, stop=2, longest=6)
    assert together == [evaluate.answers(model, [prompt], stop=2, longest=6)[0] for prompt in prompts]
    assert all(len(answer) == 6 for answer in together)


def model_and_head(seed: int) -> tuple[qwen3.Qwen3, MtpHead]:
    torch.manual_seed(seed)
    return qwen3.Qwen3(TINY).eval(), MtpHead(TINY).eval()


def test_a_head_sees_the_past_only() -> None:
    model, head = model_and_head(4)
    ids = torch.randint(0, TINY.vocabulary, (2, 33))
    hidden = model.model(ids[:, :30])
    found = head(model.model, ids, hidden, 3)
    assert [each.shape for each in found] == [(2, 30, TINY.hidden)] * 3
    changed, at = ids.clone(), 20
    changed[:, at] = (ids[:, at] + 1) % TINY.vocabulary
    again = head(model.model, changed, model.model(changed[:, :30]), 3)
    for k, (before, after) in enumerate(zip(found, again)):
        differs = (before != after).any(-1).any(0)
        # Application k at position t reads tokens up to t + 1 + k.
        assert not differs[: at - 1 - k].any() and differs[at - 1 - k :].all()


def test_drafts_of_all_positions_equal_drafts_one_by_one() -> None:
    """Draft k of one position sees what the first application stored for earlier ones, as in Refrain's engine."""
    model, head = model_and_head(5)
    ids = torch.randint(0, TINY.vocabulary, (1, 24))
    hidden = model.model(ids[:, :21])
    together = head(model.model, ids, hidden, 3)
    layer, cos, sin = head.layers[0], model.model.cos, model.model.sin
    for position in (0, 7, 20):
        # All inputs of the layer up to the position, then those of the drafts: one causal sequence.
        own, inputs = hidden[:, : position + 1], []
        for k in range(3):
            read = ids[:, 1 : position + 2] if k == 0 else ids[:, position + 1 + k : position + 2 + k]
            both = (head.pre_fc_norm_embedding(model.model.embed_tokens(read)), head.pre_fc_norm_hidden(own))
            inputs.append(head.fc(torch.cat(both, dim=-1)))
            x = torch.cat(inputs, dim=1)
            own = head.norm(layer(x, cos[: x.shape[1]], sin[: x.shape[1]]))[:, -1:]
            assert torch.allclose(own[:, 0], together[k][:, position], rtol=1e-4, atol=1e-4)


def test_a_perfect_draft_model_is_always_accepted() -> None:
    torch.manual_seed(6)
    model = qwen3.Qwen3(TINY).eval()
    texts = acceptance.greedy(model, [[5, 9, 300], [7] * 20], stop=2, longest=11)
    found = acceptance.acceptance(texts, acceptance.right_of_model(model, texts.ids))
    assert all(found[f"of {drafts}"] == 1.0 for drafts in (1, 2, 3))
    assert found["tokens per step, 3"] > 3
    assert acceptance.right_of_head(model, MtpHead(TINY), texts.ids).shape == (*texts.ids.shape, 3)


def test_drafts_after_a_wrong_one_do_not_count() -> None:
    counts = acceptance.Counts()
    right = [[False] * 3] * 4 + [[True, False, True], [False] * 3, [True] * 3, [True] * 3, [True] * 3]
    counts.add(right, prompt=4, end=9, drafts=3)
    # From token 4: one of three. From token 6: both that remain.
    assert (counts.drafted, counts.accepted, counts.steps) == (5, 3, 2)


def test_training_of_drafts(tmp_path: Path) -> None:
    torch.manual_seed(7)
    checkpoint.export(qwen3.Qwen3(TINY), tmp_path / "model", SPECIAL)
    train_drafts.main(["--out", str(tmp_path), "--from", str(tmp_path / "model"), "--tiny", "--minutes", "0.02"])
    hidden, width = TINY.hidden, TINY.heads * TINY.head_dim
    shapes = {name: tuple(tensor.shape) for name, tensor in load_file(tmp_path / "mtp" / "model.safetensors").items()}
    assert shapes["mtp.fc.weight"] == (hidden, 2 * hidden // 4) and shapes["mtp.fc.scales"] == (hidden, 2 * hidden // 64)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm"):
        assert shapes[f"mtp.{name}.weight"] == (hidden,)
    assert shapes["mtp.layers.0.self_attn.q_proj.weight"] == (width, hidden // 4)
    layer = {name for name in shapes if name.startswith("mtp.layers.0.")}
    of_model = load_file(tmp_path / "model" / "model.safetensors")
    assert layer == {f"mtp.{name.removeprefix('model.')}" for name in of_model if name.startswith("model.layers.0.")}
    draft = checkpoint.load(tmp_path / "draft")
    assert draft.config == train_drafts.TINY
    found = json.loads((tmp_path / "acceptance.json").read_text())
    assert set(found) == {"head", "draft model"} and set(found["head"]) == {"stories", "sums", "lists"}
