"""The corpus: an endless mixture of stories, sums, recall, small talk and refusals of other questions.

A document is a list of segments (text, learned). Only learned segments count in the loss: the questions of users
and random lists cannot be predicted.

    python3 demo/corpus.py --documents 20 --seed 1     prints a sample
"""

import argparse
from collections.abc import Iterator
from random import Random

import everyday
import stories
import tasks

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"

Segment = tuple[str, bool]
Turn = tuple[str, str]


def chat_prompt(turns: list[Turn], question: str) -> str:
    """The prompt for `question`, equal to the output of the chat template."""
    past = "".join(text for text, _ in chat_segments(turns))
    return f"{past}{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n"


def chat_segments(turns: list[Turn]) -> list[Segment]:
    """A chat in ChatML. The answers and their end tokens are learned."""
    segments: list[Segment] = []
    for question, answer in turns:
        asked = f"{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n"
        segments += [(asked, False), (answer + TURN_END, True), ("\n", False)]
    return segments


def _story_chat(rng: Random) -> list[Turn]:
    told = stories.story(rng)
    turns = [(everyday.loosely(rng, stories.request(rng, told)), told.text)]
    if rng.random() < 0.4:
        turns += stories.questions(rng, told)
    return turns


def _untaught_turns(rng: Random) -> list[Turn]:
    return [tasks.untaught_turn(rng) for _ in range(2)]


def _mixed_chat(rng: Random) -> list[Turn]:
    """Several subjects in one chat, so that changes of subject occur in training."""
    makers = (tasks.sums_chat, tasks.recall_chat, _story_chat, tasks.small_talk_chat, _untaught_turns)
    return [turn for maker in rng.sample(makers, 3) for turn in maker(rng)[:2]]


# Weight of each kind of chat.
CHATS = {
    _story_chat: 14,
    tasks.sums_chat: 34,
    tasks.recall_chat: 30,
    _mixed_chat: 10,
    tasks.small_talk_chat: 4,
    tasks.untaught_chat: 8,
}


def document(rng: Random) -> list[Segment]:
    """One random document of the mixture."""
    if rng.random() < 0.08:
        return [(stories.story(rng).text + END_OF_TEXT, True)]
    (maker,) = rng.choices(list(CHATS), weights=list(CHATS.values()))
    return [*chat_segments(maker(rng)), (END_OF_TEXT, False)]


def documents(seed: int) -> Iterator[list[Segment]]:
    """The endless stream of documents of a seed."""
    rng = Random(seed)
    while True:
        yield document(rng)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a sample of the corpus.")
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    stream = documents(arguments.seed)
    for _ in range(arguments.documents):
        print("".join(text for text, _ in next(stream)), end="\n\n")


if __name__ == "__main__":
    main()
