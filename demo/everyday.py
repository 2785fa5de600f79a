"""Sums as people type them: without spaces, in words, without punctuation."""

from random import Random

PLUS = (
    "{a}+{b}", "{a}+{b}=", "{a}+{b}?", "{a}+{b}=?", "{a} + {b} = ?", "{a} + {b}?", "{a} +{b}", "{a}+ {b}",
    "What's {a}+{b}?", "What's {a} + {b}?", "What is {a}+{b}?", "What is {a} + {b} ?", "How much is {a}+{b}?",
    "Calculate {a}+{b}", "Calculate {a} + {b}.", "Compute {a} + {b}", "Solve {a}+{b}", "What does {a} + {b} equal?",
    "{a} + {b} is?", "Please add {a} and {b}.", "Can you add {a} and {b}?", "The sum of {a} and {b}?", "Add {b} to {a}.",
    "What do you get if you add {a} and {b}?", "Tell me what {a} + {b} is.", "What is the result of {a} + {b}?",
)
MINUS = (
    "{a}-{b}", "{a}-{b}=", "{a}-{b}?", "{a}-{b}=?", "{a} - {b} = ?", "{a} - {b}?", "{a} -{b}", "{a}- {b}", "{a}−{b}", "{a} – {b}",
    "What's {a}-{b}?", "What's {a} - {b}?", "What is {a}-{b}?", "What is {a} - {b} ?", "How much is {a}-{b}?",
    "Calculate {a}-{b}", "Calculate {a} - {b}.", "Compute {a} - {b}", "Solve {a}-{b}", "What does {a} - {b} equal?",
    "{a} - {b} is?", "Please subtract {b} from {a}.", "Can you subtract {b} from {a}?", "{a} take away {b}",
    "What do you get if you take {b} from {a}?", "Tell me what {a} - {b} is.", "What is the result of {a} - {b}?",
)
# These may have their numbers in words too.
PLUS_IN_WORDS = ("{a} plus {b}", "{a} plus {b}?", "What's {a} plus {b}?", "What is {a} plus {b}?", "How much is {a} plus {b}?", "{a} and {b}?")
MINUS_IN_WORDS = ("{a} minus {b}", "{a} minus {b}?", "What's {a} minus {b}?", "What is {a} minus {b}?", "How much is {a} minus {b}?", "{a} less {b}?")

BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """A number below 100 in words: "forty-two"."""
    if number < 20:
        return BELOW_TWENTY[number]
    ten, one = divmod(number, 10)
    return TENS[ten - 2] + (f"-{BELOW_TWENTY[one]}" if one else "")


def sum_question(rng: Random, a: int, sign: str, b: int) -> str:
    """A question for `a sign b`. Small numbers may be in words."""
    plus = sign == "+"
    if rng.random() < 0.7:
        return rng.choice(PLUS if plus else MINUS).format(a=a, b=b)
    form = rng.choice(PLUS_IN_WORDS if plus else MINUS_IN_WORDS)
    if max(a, b) < 100 and rng.random() < 0.5:
        return form.format(a=in_words(a), b=in_words(b))
    return form.format(a=a, b=b)


def loosely(rng: Random, text: str) -> str:
    """`text` as typed in a hurry: sometimes without capital, final punctuation or apostrophe."""
    if rng.random() < 0.3:
        text = text[:1].lower() + text[1:]
    if rng.random() < 0.3:
        text = text.rstrip("?!. ") or text
    if rng.random() < 0.3:
        text = text.replace("hat's", "hats")
    return text
