"""Short stories from a grammar: plots filled with characters, places and goals."""

from dataclasses import dataclass, replace
from random import Random

import plots
import words


@dataclass
class Character:
    """A character: a child or an animal with a name."""

    name: str
    who: str  # with article: "a girl", "an owl"
    pronouns: tuple[str, str, str, str]  # she, her, her, herself
    invented: bool = False  # whether the name is made up


@dataclass
class Story:
    """A story and the facts in it."""

    text: str
    hero: Character
    friend: Character
    plot: str
    slots: dict[str, str]


def character(rng: Random, taken: str = "") -> Character:
    """A random character whose name is not `taken`."""
    gender = rng.choice(("girl", "boy"))
    names = words.GIRLS if gender == "girl" else words.BOYS
    who = words.article(gender)
    if rng.random() < 0.4:
        names, who = words.PETS, words.article(rng.choice(words.ANIMALS + words.HEROES))
    name = rng.choice([n for n in names if n != taken])
    return Character(name, who, words.PRONOUNS[gender])


def _slots(rng: Random, hero: Character, friend: Character) -> dict[str, str]:
    """The values of all slots, chosen once per story."""
    thing = rng.choice(words.THINGS)
    places = rng.sample(words.PLACES, 3)
    slots = {
        "h": hero.name,
        "who": hero.who,
        "f": friend.name,
        "fwho": friend.who,
        "home": rng.choice(words.HOMES),
        "a": "the " + rng.choice(words.ADULTS),
        "thing": thing,
        "a_thing": words.article(thing),
        "item": rng.choice([w for w in words.ADJECTIVES if w[0] not in "aeiou"]) + " " + thing,
        "food": rng.choice(words.FOODS),
        "colour": rng.choice(words.COLOURS),
        "skill": rng.choice(plots.SKILLS),
        "project": rng.choice(plots.PROJECTS),
        "lostwho": rng.choice(("a little fox", "a young owl", "a kitten", "a puppy", "a baby deer")),
    }
    for number, (preposition, place) in enumerate(places, 1):
        slots[f"p{number}"] = f"the {place}"
        slots[f"at{number}"] = f"{preposition} the {place}"
    slots["he"], slots["him"], slots["his"], slots["himself"] = hero.pronouns
    slots["fhe"], slots["fhim"], slots["fhis"], _ = friend.pronouns
    for slot in ("he", "his", "fhe", "fhis"):
        slots[slot.capitalize()] = slots[slot].capitalize()
    return slots


def _adventure(rng: Random, plot: str) -> list[str]:
    """One phrasing for each beat of a plot, with asides in between."""
    beats = plots.PLOTS[plot][0]
    asides = rng.sample(plots.ASIDES, 2)
    chosen: list[str] = []
    for number, beat in enumerate(beats):
        chosen.append(rng.choice(beat))
        if 0 < number < len(beats) - 1 and asides and rng.random() < 0.3:
            chosen.append(asides.pop())
    return chosen


def _introduce_friend(phrases: list[str]) -> list[str]:
    """Introduces the friend where a phrase first names them."""
    for number, phrase in enumerate(phrases):
        if "{f}" in phrase:
            introduced = phrase.replace("{f}", "{fwho} named {f}", 1)
            return [*phrases[:number], introduced, *phrases[number + 1 :]]
    return phrases


def _fill(rng: Random, phrase: str, slots: dict[str, str]) -> str:
    """A phrase with its slots filled, each sentence beginning with a capital."""
    filled = phrase.format(**slots, day=rng.choice(plots.DAYS))
    return ". ".join(part[:1].upper() + part[1:] for part in filled.split(". "))


def _paragraphs(rng: Random, sentences: list[str]) -> str:
    """Joins the sentences, three to about six per paragraph."""
    text, since_break = sentences[0], 1
    for number, sentence in enumerate(sentences[1:], 1):
        breaks = since_break >= 3 and rng.random() < 0.4 and number < len(sentences) - 1
        text += ("\n\n" if breaks else " ") + sentence
        since_break = 1 if breaks else since_break + 1
    return text


def story(rng: Random) -> Story:
    """A story of one or two adventures: about 100 to 400 words."""
    hero = character(rng)
    if rng.random() < 0.2:
        hero = replace(hero, name=words.invented_name(rng), invented=True)
    friend = character(rng, taken=hero.name)
    slots = _slots(rng, hero, friend)
    plot = rng.choice(list(plots.PLOTS))
    phrases = [rng.choice(plots.OPENINGS), rng.choice(plots.MOODS), *_adventure(rng, plot)]
    told = [(phrase, slots) for phrase in _introduce_friend(phrases)]
    if rng.random() < 0.5:
        again = {**_slots(rng, hero, friend), "home": slots["home"]}
        second = rng.choice([other for other in plots.PLOTS if other != plot])
        told += [(phrase, again) for phrase in (rng.choice(plots.MEANWHILE), *_adventure(rng, second))]
    told.append((rng.choice(plots.ENDINGS), told[-1][1]))
    sentences = [_fill(rng, phrase, known) for phrase, known in told if phrase]
    return Story(_paragraphs(rng, sentences), hero, friend, plot, slots)


REQUESTS = (
    "Tell me a story about {about}.",
    "Write a short story about {about}.",
    "Please tell me a story about {about}.",
    "Can you write a story about {about}?",
    "I would like a story about {about}.",
    "Write a story about {about}.",
    "Tell a story about {about}.",
    "A story about {about}, please.",
    "Tell me a short story about {about}.",
    "Do you know a story about {about}?",
)

ANY_REQUESTS = (
    "Tell me a story.", "Write a short story.", "Please tell me a story.", "A story, please.", "Story", "A story!",
    "Can you tell me a story?", "Write a story.", "Tell me another story.", "I want a story.",
)  # fmt: skip


def request(rng: Random, told: Story) -> str:
    """A request that a user may have made for this story. It contains an invented name."""
    hero, slots = told.hero, told.slots
    named = (f"{hero.who} named {hero.name}", f"{hero.who} called {hero.name}", hero.name)
    if not hero.invented and rng.random() < 0.15:
        return rng.choice(ANY_REQUESTS)
    about = rng.choice(named if hero.invented else (hero.who, *named))
    if rng.random() < 0.4:
        about += " " + plots.PLOTS[told.plot][1].format(**slots)
    elif rng.random() < 0.3:
        about += f" and {told.friend.who} named {told.friend.name}"
    return rng.choice(REQUESTS).format(about=about)


def questions(rng: Random, told: Story) -> list[tuple[str, str]]:
    """Questions about a story, with answers that its text contains."""
    hero, friend, slots = told.hero, told.friend, told.slots
    asked = [(f"Who was {hero.name}?", f"{hero.name} was {hero.who}.")]
    if friend.name in told.text:
        asked.append((f"What was the name of {hero.name}'s friend?", f"The friend was {friend.name}."))
    if told.plot == "lost":
        asked.append((f"What did {hero.name} lose?", f"{hero.name} lost {words.article(slots['item'])}."))
    if told.plot == "gift":
        asked.append(("What was the present?", f"The present was {words.article(slots['item'])}."))
    return rng.sample(asked, rng.randint(1, min(2, len(asked))))
