"""Word lists of the demo corpus: people, animals, places and things.

All words are common English, so that a small vocabulary covers them.
"""

from random import Random

GIRLS = (
    "Mia Anna Clara Lily Ruby Nora Ella Ivy Rosa Tessa Hana Zoe Maya Lena Freya Alma Iris "
    "Greta Olive Pearl Daisy Wilma Petra Sofia Amara Leila Kira Juno Edith Flora"
).split()

BOYS = (
    "Tom Ben Leo Max Oscar Finn Hugo Sam Felix Theo Otto Jack Luca Noah Arlo Ravi Omar Emil "
    "Milo Jonas Peter Simon Victor Walter Kofi Diego Henry Anton Bruno Marco"
).split()

# Names of animals in stories.
PETS = (
    "Pip Bramble Hazel Nutmeg Pepper Clover Biscuit Willow Rusty Misty Sunny Cosmo Dusty Maple "
    "Moss Fern Ginger Patch Socks Tansy"
).split()

# Animals.
ANIMALS = (
    "fox", "rabbit", "hedgehog", "squirrel", "mouse", "badger", "otter", "owl", "duck", "frog",
    "cat", "dog", "goat", "bear", "turtle", "sparrow", "mole", "deer", "pony", "crow",
)

# Other story characters that people ask for.
HEROES = (
    "dragon", "robot", "princess", "prince", "king", "queen", "knight", "wizard", "witch", "pirate", "giant", "fairy", "elf",
    "ghost", "monster", "dinosaur", "snowman", "astronaut", "lion", "tiger", "elephant", "monkey", "penguin", "whale", "dolphin",
    "wolf", "horse", "cow", "pig", "hen", "kitten", "puppy", "snail", "bee", "ant", "spider", "butterfly", "snake", "crocodile",
    "parrot", "kangaroo", "panda", "fish", "bird", "lizard", "camel", "swan", "seal", "bat", "cloud", "star", "little boat",
)

ADULTS = (
    "baker", "gardener", "farmer", "miller", "teacher", "sailor", "carpenter", "painter",
    "postman", "doctor", "fisherman", "clockmaker", "librarian", "beekeeper", "shepherd",
)

# Places with their preposition.
PLACES = (
    ("in", "forest"), ("in", "garden"), ("by", "river"), ("on", "hill"), ("at", "market"),
    ("in", "barn"), ("by", "lake"), ("in", "meadow"), ("at", "harbour"), ("in", "orchard"),
    ("on", "beach"), ("in", "old mill"), ("in", "valley"), ("in", "library"), ("at", "station"),
    ("in", "park"), ("under", "bridge"), ("in", "tower"), ("by", "well"), ("in", "cave"),
)

HOMES = (
    "a small house", "a quiet village", "a little town", "a stone cottage", "a house by the sea",
    "a tiny blue house", "an old farm", "a village near the mountains", "a house with a red door",
    "a warm little home",
)

ADJECTIVES = (
    "small", "old", "shiny", "red", "blue", "green", "yellow", "golden", "silver", "wooden",
    "tiny", "bright", "round", "soft", "strange", "beautiful",
)

# Things that a hero may lose, find, want or give.
THINGS = (
    "key", "ball", "kite", "lantern", "book", "hat", "bell", "basket", "drum", "scarf", "boat",
    "map", "ring", "coin", "cup", "flute", "clock", "box", "spoon", "mirror", "blanket",
    "button", "feather", "stone", "whistle", "ribbon", "mitten", "pencil", "shell", "lamp",
)

FOODS = (
    "bread", "soup", "apple pie", "honey cake", "porridge", "fruit bread", "berry jam", "cheese",
    "warm milk", "plum tart",
)

# Countable things for word problems, in the plural.
COUNTED = (
    "apples", "eggs", "coins", "shells", "stamps", "stones", "plums", "books", "cards",
    "buttons", "pears", "nuts", "flowers", "marbles", "pencils", "cups", "leaves", "feathers",
)

COLOURS = (
    "red blue green yellow orange purple pink brown black white grey silver golden violet "
    "scarlet cream"
).split()

CITIES = (
    "Paris London Rome Berlin Madrid Oslo Vienna Cairo Tokyo Lima Delhi Athens Dublin Prague "
    "Lisbon Boston Quito Warsaw Geneva Seoul Havana Nairobi Sydney Zagreb"
).split()

PLANTS = (
    "oak rose lemon tulip pine mint barley lily cedar clover daisy peach melon onion carrot "
    "garlic pepper tomato potato cabbage"
).split()

# Syllables of invented names, which are in no word list.
ONSETS = "b d f g h k l m n p r s t v w z br dr gr kr tr st sh th".split()
VOWELS = "a e i o u ai ea oo".split()
CODAS = ["", "", "", "l", "n", "r", "s", "x", "m", "k", "nd", "rt"]



def invented_name(rng: Random) -> str:
    """A pronounceable invented name: "Tolvar", "Brinae"."""
    name = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(rng.choice((2, 2, 3))))
    return name.capitalize()


PRONOUNS = {
    "girl": ("she", "her", "her", "herself"),
    "boy": ("he", "him", "his", "himself"),
}


def article(noun: str) -> str:
    """`noun` with its indefinite article: "an owl", "a fox"."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun
