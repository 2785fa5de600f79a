"""Sums, key-value recall, small talk and refusals: chats whose answers can be checked."""

from dataclasses import dataclass
from random import Random

import everyday
import untaught
import words


@dataclass
class Sum:
    """`a sign b`. With a minus sign, usually `a >= b`."""

    a: int
    sign: str
    b: int

    @property
    def result(self) -> int:
        return self.a + self.b if self.sign == "+" else self.a - self.b

    @property
    def equation(self) -> str:
        return f"{self.a} {self.sign} {self.b} = {self.result}"

    @property
    def held_out(self) -> bool:
        """Whether training must not contain this pair of numbers: one in 16 pairs from 10 up."""
        larger, smaller = max(self.a, self.b), min(self.a, self.b)
        return larger >= 10 and (larger * 7919 + smaller * 104729) // 8 % 16 == 3


def _number(rng: Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)


def any_sum(rng: Random, digits: int, sign: str) -> Sum:
    """A sum whose larger operand has `digits` digits (1 to 3)."""
    a, b = _number(rng, digits), _number(rng, rng.choice((digits, rng.randint(1, digits))))
    if a < b or (sign == "+" and rng.random() < 0.5):
        a, b = b, a
    if sign == "-" and a < b:
        a, b = b, a
    return Sum(a, sign, b)


def training_sum(rng: Random) -> Sum:
    """A sum of one to three digits, mostly three, that is not held out."""
    while True:
        drawn = any_sum(rng, rng.choice((1, 2, 2, 3, 3, 3, 3)), rng.choice("+-"))
        if not drawn.held_out:
            return drawn


PLUS = ("What is {a} + {b}?", "{a} + {b} =", "{a} + {b}", "What is {a} plus {b}?", "How much is {a} + {b}?", "Add {a} and {b}.", "What is the sum of {a} and {b}?")
MINUS = ("What is {a} - {b}?", "{a} - {b} =", "{a} - {b}", "What is {a} minus {b}?", "How much is {a} - {b}?", "Subtract {b} from {a}.", "Take {b} away from {a}.")

PLUS_STORIES = (
    "{n} has {a} {c} and gets {b} more. How many {c} does {n} have now?",
    "{n} finds {a} {c} in the morning and {b} in the evening. How many {c} is that?",
    "There are {a} {c} in one box and {b} in another. How many {c} are there?",
)
MINUS_STORIES = (
    "{n} has {a} {c} and gives away {b}. How many {c} does {n} have left?",
    "There are {a} {c} in a basket. {n} takes {b} of them. How many {c} are left?",
    "{n} had {a} {c} and lost {b}. How many {c} are left?",
)


def sum_turn(rng: Random, drawn: Sum) -> tuple[str, str]:
    """One question about `drawn` and its answer, which begins with the equation."""
    plus = drawn.sign == "+"
    if rng.random() < 0.2:
        name = rng.choice(words.GIRLS + words.BOYS)
        form = rng.choice(PLUS_STORIES if plus else MINUS_STORIES)
        counted = rng.choice(words.COUNTED)
        question = form.format(n=name, a=drawn.a, b=drawn.b, c=counted)
        return question, f"{drawn.equation}, so the answer is {drawn.result} {counted}."
    form = rng.choice(PLUS if plus else MINUS)
    return form.format(a=drawn.a, b=drawn.b), drawn.equation


def everyday_sum_turn(rng: Random, drawn: Sum) -> tuple[str, str]:
    """The same, asked as people type."""
    return everyday.sum_question(rng, drawn.a, drawn.sign, drawn.b), drawn.equation


def below_zero(drawn: Sum) -> Sum:
    """The sum the other way round."""
    return Sum(drawn.b, drawn.sign, drawn.a)


def training_sum_turn(rng: Random) -> tuple[str, str]:
    """A question and its answer in any of the forms; few are below zero."""
    drawn = training_sum(rng)
    if drawn.sign == "-" and rng.random() < 0.12:
        question, answer = everyday_sum_turn(rng, below_zero(drawn))
    elif rng.random() < 0.5:
        question, answer = everyday_sum_turn(rng, drawn)
    else:
        question, answer = sum_turn(rng, drawn)
    return everyday.loosely(rng, question), answer


SEVERAL_SUMS = ("Solve these sums.", "Please solve:", "What are the results?")


def sums_chat(rng: Random) -> list[tuple[str, str]]:
    """A chat of several sums, some turns asking for more than one."""
    turns = []
    for _ in range(rng.randint(1, 8)):
        if rng.random() < 0.25:
            several = [training_sum(rng) for _ in range(rng.randint(2, 6))]
            asked = "\n".join(f"{s.a} {s.sign} {s.b}" for s in several)
            turns.append((f"{rng.choice(SEVERAL_SUMS)}\n{asked}", "\n".join(s.equation for s in several)))
        else:
            turns.append(training_sum_turn(rng))
    return turns


def _distinct(rng: Random, draw, count: int) -> list[str]:
    """Up to `count` different results of `draw`."""
    found: dict[str, None] = {}
    for _ in range(count * 4):
        found.setdefault(draw())
        if len(found) == count:
            break
    return list(found)


KEY_KINDS = {
    "people": lambda rng: rng.choice(words.GIRLS + words.BOYS + words.PETS),
    "things": lambda rng: rng.choice((*words.THINGS, *words.ANIMALS, *words.COUNTED, *words.PLANTS)),
    "mixed": lambda rng: rng.choice((*words.GIRLS, *words.BOYS, *words.THINGS, *words.CITIES, *words.ANIMALS)),
    "invented": words.invented_name,
}

VALUE_KINDS = (
    lambda rng: str(rng.randint(10, 99)),
    lambda rng: str(rng.randint(100, 999)),
    lambda rng: str(rng.randint(0, 999)),
    lambda rng: str(rng.randint(1000, 9999)),
    lambda rng: rng.choice(words.COLOURS),
    lambda rng: rng.choice(words.THINGS),
    lambda rng: rng.choice(words.CITIES),
    words.invented_name,
)

HEADINGS = (
    "Here is a list:", "Remember this list:", "Please remember these values:", "The list:",
    "This is the list.", "Keep these values in mind:", "",
)

LIST_TAKEN = "I will remember this list. Ask me for any of its values."

ONE_KEY = (
    "What is the value of {k}?", "What is {k}?", "{k}", "{k}?", "What value does {k} have?",
    "Which value belongs to {k}?", "Give me the value of {k}.", "Look up {k}.",
)


def pairs(rng: Random, count: int, kind: str) -> list[tuple[str, str]]:
    """Up to `count` (key, value) pairs with different keys; `kind` as in KEY_KINDS."""
    draw_key = KEY_KINDS[kind]
    draw_value = rng.choice(VALUE_KINDS)
    return [(key, draw_value(rng)) for key in _distinct(rng, lambda: draw_key(rng), count)]


def list_text(listed: list[tuple[str, str]]) -> str:
    """The pairs as "key: value" lines."""
    return "\n".join(f"{key}: {value}" for key, value in listed)


def _ask(rng: Random, listed: list[tuple[str, str]]) -> tuple[str, str]:
    """A question for one or several of the pairs; each answer is "key: value" lines."""
    if rng.random() < 0.6:
        key, value = rng.choice(listed)
        return rng.choice(ONE_KEY).format(k=key), f"{key}: {value}"
    chosen = rng.sample(listed, rng.randint(2, max(2, min(6, len(listed)))))
    keys = [key for key, _ in chosen]
    if rng.random() < 0.5:
        question = "What are the values of these?\n" + "\n".join(keys)
    else:
        question = f"What are the values of {', '.join(keys[:-1])} and {keys[-1]}?"
    return question, list_text(chosen)


def recall_chat(rng: Random) -> list[tuple[str, str]]:
    """A list of 2 to 64 pairs, and questions about it over one or more turns.

    Short lists are as frequent as long ones, so that look-ups are learned early.
    """
    kind = rng.choice(("people", "people", "things", "things", "mixed", "mixed", "invented"))
    longest = 32 if kind == "invented" else 64
    count = rng.choice((rng.randint(2, 8), rng.randint(6, 24), rng.randint(16, longest)))
    listed = pairs(rng, count, kind)
    given = f"{rng.choice(HEADINGS)}\n{list_text(listed)}".lstrip("\n")
    if rng.random() < 0.1:
        turns = [(given, LIST_TAKEN)]
    else:
        first, answer = _ask(rng, listed)
        turns = [(f"{given}\n\n{first}", answer)]
    turns += [_ask(rng, listed) for _ in range(rng.randint(1, 10))]
    return turns


INTRODUCTION = "I am a small demo model. I can tell short stories, add and subtract, and remember lists."

SMALL_TALK = (
    (
        ("Hello!", "Hi!", "Hi", "Hello", "Good morning!", "Hey", "Hey!", "Hi there!", "Hello there!", "Good evening!", "Good afternoon!", "Hello, model!", "Greetings!"),
        "Hello! Shall I tell you a story, or would you like a sum?",
    ),
    (
        ("Who are you?", "What are you?", "What is your name?", "What can you do?", "Help", "What's your name?", "Help!", "Help me.", "What can I ask you?", "What do you do?",
         "Introduce yourself.", "Tell me about yourself.", "What do you know?", "How does this work?", "Are you an AI?", "Are you ChatGPT?"),
        INTRODUCTION,
    ),
    (("Thank you!", "Thanks!", "Thank you very much.", "Thanks", "Thanks a lot!", "Many thanks!", "Great, thank you!"), "You are welcome!"),
    (("How are you?", "How are you today?", "How are you doing?", "How is it going?", "How do you do?"), "I am well, thank you. How can I help you?"),
    (("Goodbye!", "Bye!", "Good night!", "Bye bye!", "See you!", "See you later!", "Goodbye, and thank you!"), "Goodbye!"),
)  # fmt: skip


def small_talk_turn(rng: Random) -> tuple[str, str]:
    """A greeting, thanks or a question about the model, and the answer."""
    questions, answer = rng.choice(SMALL_TALK)
    return everyday.loosely(rng, rng.choice(questions)), answer


def small_talk_chat(rng: Random) -> list[tuple[str, str]]:
    """One to three turns of greetings and thanks."""
    return [small_talk_turn(rng) for _ in range(rng.randint(1, 3))]


def untaught_turn(rng: Random, begins: bool = False) -> tuple[str, str]:
    """A question that the model was not taught, and the answer that says so.

    `begins`: the turn begins a chat, so no list has been given.
    """
    kind = rng.random()
    if begins and kind < 0.08:
        question, answer = untaught.no_list(rng), untaught.NO_LIST
    elif kind < 0.35:
        question, answer = untaught.beyond(rng), untaught.BEYOND
    else:
        question, answer = untaught.question(rng, begins), untaught.UNTAUGHT
    return everyday.loosely(rng, question), answer


def untaught_chat(rng: Random) -> list[tuple[str, str]]:
    """Questions that were not taught, mixed with small talk and sums."""
    turns = [untaught_turn(rng, begins=True)]
    for _ in range(rng.randint(0, 3)):
        turns.append(rng.choice((untaught_turn, untaught_turn, small_talk_turn, training_sum_turn))(rng))
    return turns
