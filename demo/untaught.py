"""Questions that the model was not taught, and the answers that say so."""

from random import Random

import words

UNTAUGHT = "I was only taught stories, sums and lists. Ask me for a story, or for a sum such as 12 + 30."
BEYOND = "I was only taught to add and subtract two numbers of up to three digits."
NO_LIST = "I know no list yet. Give me one, with a name and a value on each line."

TOPICS = (
    "love", "time", "music", "history", "physics", "football", "chess", "money", "war", "art", "space", "gravity",
    "electricity", "photosynthesis", "democracy", "philosophy", "evolution", "the internet", "the moon", "the sun",
    "the ocean", "the weather", "the stock market", "climate change", "artificial intelligence", "computers", "Linux",
    "Rust", "Python", "a GPU", "Vulkan", "quantum mechanics", "the universe", "happiness", "school", "your training",
    "language models", "the news", "health", "spring", "winter", "the sea", "mathematics", "biology",
)
NOUNS = (
    "car", "computer", "phone", "tree", "house", "sky", "moon", "star", "ocean", "mountain", "train", "planet", "cat", "dog",
    "apple", "word", "friend", "school", "film", "song", "city", "country", "door", "table", "telephone", "wheel", "volcano",
    "virus", "language", "number", "bicycle", "camera", "church", "king", "ship", "engine", "tooth", "grass", "sunset", "light bulb",
)
PLURALS = (
    "cats", "dogs", "birds", "trees", "cars", "people", "children", "stars", "planets", "computers", "bees", "whales", "leaves",
    "lions", "rivers", "clouds", "teachers", "dinosaurs", "mushrooms", "languages", "animals", "countries", "fruits", "colours",
)
VERBS = ("sleep", "fly", "eat", "work", "swim", "dream", "sing", "grow", "learn", "run", "cry", "laugh", "think", "cook", "drive", "read", "dance")
ADJECTIVES = (
    "blue", "green", "hot", "cold", "round", "big", "small", "wet", "salty", "old", "happy", "sad", "clever", "alive", "expensive",
    "dangerous", "beautiful", "heavy", "dark", "human", "real", "hungry", "tired", "bored",
)
COUNTRIES = (
    "France", "Germany", "Spain", "Italy", "Japan", "China", "India", "Brazil", "Canada", "Egypt", "Norway", "Peru", "Kenya",
    "Australia", "England", "Poland", "Mexico", "Turkey", "Greece", "Russia", "the United States", "Sweden", "Portugal", "Chile",
)
PEOPLE = (
    "Einstein", "Shakespeare", "Mozart", "Napoleon", "Newton", "Darwin", "Picasso", "Cleopatra", "the president", "the king of England",
    "Marie Curie", "Ada Lovelace", "Alan Turing", "Leonardo da Vinci", "Julius Caesar", "my mother", "your maker", "Batman",
)
LANGUAGES = ("French", "German", "Spanish", "Italian", "Japanese", "Latin", "Chinese", "English", "Polish", "Arabic")
TASKS = (
    "sorts a list", "adds two numbers", "prints hello world", "reads a file", "reverses a string", "computes prime numbers",
    "counts words", "opens a web page", "draws a circle", "finds the largest number",
)

FORMS = (
    "Why is the {noun} {adjective}?", "Why is {topic} so {adjective}?", "Why are {plural} {adjective}?", "Why do {plural} {verb}?",
    "How do {plural} {verb}?", "Can {plural} {verb}?", "What do {plural} eat?", "Do you like {plural}?", "Do you {verb}?", "Can you {verb}?",
    "What is a {noun}?", "What is {topic}?", "What's {topic}?", "What are {plural}?", "Explain {topic}.", "Explain {topic} to a child.",
    "Tell me about {topic}.", "Tell me about {country}.", "Tell me something about {plural}.", "What do you know about {topic}?",
    "Who invented the {noun}?", "Who is {person}?", "Who was {person}?", "When was {person} born?", "How old is {person}?",
    "What is the capital of {country}?", "What's the capital of {country}?", "Capital of {country}?", "Where is {country}?", "How many people live in {country}?",
    "How far is it from {city} to {country}?", "What is the weather in {city}?", "Is it cold in {city}?", "How do I get to {city}?",
    "What time is it?", "What day is it today?", "What year is it?", "How old are you?", "Where are you from?", "Are you {adjective}?",
    "Translate \"{noun}\" into {language}.", "How do you say {noun} in {language}?", "Do you speak {language}?", "Translate this to {language}: the {noun} is {adjective}",
    "Write a poem about {topic}.", "Write a poem about a {noun}.", "Write a song about {topic}.", "Write an essay on {topic}.", "Write me a letter to {person}.",
    "Write a {language} sentence.", "Write a Python function that {task}.", "Write a program that {task}.", "How do I write code that {task}?",
    "Give me a recipe for {food}.", "How do I make {food}?", "How do you cook {food}?", "What is {food}?", "What should I eat today?",
    "Tell me a joke.", "Tell me a joke about {plural}.", "Do you know a joke?", "Tell me a riddle.", "Sing a song.", "Make me laugh.",
    "What is the meaning of life?", "What is the meaning of {noun}?", "What does {noun} mean?", "Spell {noun}.", "What rhymes with {noun}?",
    "Summarise this text: The {noun} is {adjective}.", "Correct this sentence: {plural} is {adjective}.", "Name five {plural}.", "Name three {plural} that {verb}.",
    "Give me ten ideas for {topic}.", "Which is bigger, a {noun} or a {noun2}?", "What is the difference between a {noun} and a {noun2}?",
    "Is {topic} {adjective}?", "Is a {noun} {adjective}?", "Are {plural} {adjective}?", "Is it true that {plural} {verb}?",
    "I like {plural}.", "I am {adjective}.", "My {noun} is {adjective}.", "The {noun} is {adjective}.", "I want to {verb}.", "I need a {noun}.", "You are {adjective}.",
    "How does a {noun} work?", "How does {topic} work?", "How can I learn {language}?", "What is your favourite {noun}?", "What colour is the {noun}?", "How big is the {noun}?",
    "What do you think about {topic}?", "Should I buy a {noun}?", "Where can I find {plural}?", "What happened in {year}?", "Who won in {year}?", "When did {topic} begin?",
    "Wie geht es dir?", "Was ist ein {noun}?", "Bonjour!", "Comment allez-vous?", "Hola, ¿qué tal?", "¿Qué es {topic}?", "Warum ist der Himmel blau?", "Ciao", "你好", "こんにちは",
)
# Not questions. After a list these could be look-ups, so they only begin chats.
BARE = (
    "{noun}", "{noun}?", "{plural}", "{topic}", "{country}", "{city}?", "{name}", "{number}", "{letters}", "{letters} {letters}", "ok", "yes", "no",
    "why?", "what?", "test", "Test!", "???", "...", "lorem ipsum", "{letters} {number}", "the {noun}", "{adjective}", "{thing}", "{animal}?",
)
BEYOND_FORMS = (
    "{a} * {b}", "{a}*{b}", "{a} x {b}", "{a}x{b}", "{a} × {b}", "What is {a} * {b}?", "What's {a}*{b}?", "What is {a} x {b}?", "{a} times {b}",
    "What is {a} times {b}?", "Multiply {a} by {b}.", "Multiply {a} and {b}.", "{a} / {b}", "{a}/{b}", "{a} ÷ {b}", "What is {a} / {b}?", "What is {a} divided by {b}?",
    "Divide {a} by {b}.", "{a} divided by {b}", "{a}^{b}", "What is {a} to the power of {b}?", "{a} squared", "What is the square root of {a}?", "sqrt({a})",
    "{a}% of {b}", "What is {a} percent of {b}?", "What is half of {a}?", "Double {a}.", "{a}.{d} + {b}.{d}", "{a}.{d}+{b}", "What is {a}.{d} - {b}?",
    "{a} + {b} + {c}", "{a}+{b}+{c}", "What is {a} + {b} + {c}?", "What is {a} + {b} - {c}?", "{a}-{b}-{c}", "What is {a} plus {b} plus {c}?", "({a}+{b})*{c}",
    "{big} + {b}", "{big}+{b}", "{big} + {big2}", "{big}+{big2}", "What is {big} + {big2}?", "What is {big} plus {b}?", "What is {b} + {big}?", "{b}+{big}",
    "{big} - {b}", "{big}-{b}", "{big} - {big2}", "What is {big} - {big2}?", "What is {big} minus {b}?", "How much is {big} + {big2}?", "What's {big}-{b}?",
)
NO_LIST_FORMS = (
    "What is the value of {k}?", "What value does {k} have?", "Which value belongs to {k}?", "Give me the value of {k}.", "Look up {k}.",
    "What are the values of {k} and {k2}?", "What is on the list?",
)

# Never used in training; reserved for evaluation.
HELD_OUT = (
    "How do magnets work?", "Who painted the Mona Lisa?", "What is the boiling point of water?", "Where do penguins live?", "Recommend a good film.",
    "Write a haiku about autumn.", "What's the best way to learn chess?", "Can dogs eat chocolate?", "How does a rainbow form?", "Is Pluto a planet?",
    "Convert ten miles to kilometres.", "Do you have feelings?", "How many legs does a spider have?", "What is machine learning?", "Can you help me with my homework?",
    "Who is the best football player?", "Why do we yawn?", "What is the largest desert on Earth?", "Give me some advice.", "Explain recursion.",
    "I feel sad today.", "What language are you written in?", "How tall is the Eiffel Tower?", "Which model are you?", "Show me a picture of a cat.",
)


def _letters(rng: Random) -> str:
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 8)))


def _name(rng: Random) -> str:
    return rng.choice((*words.GIRLS, *words.BOYS, *words.PETS))


def question(rng: Random, begins: bool) -> str:
    """A question outside the taught subjects. `begins`: include those that only begin chats."""
    noun, noun2 = rng.sample(NOUNS + words.THINGS, 2)
    return rng.choice(BARE if begins and rng.random() < 0.2 else FORMS).format(
        noun=noun, noun2=noun2, plural=rng.choice(PLURALS + words.COUNTED), topic=rng.choice(TOPICS), verb=rng.choice(VERBS),
        adjective=rng.choice(ADJECTIVES), country=rng.choice(COUNTRIES), city=rng.choice(words.CITIES), person=rng.choice(PEOPLE),
        language=rng.choice(LANGUAGES), task=rng.choice(TASKS), food=rng.choice(words.FOODS), year=rng.randint(1000, 2030), name=_name(rng),
        number=rng.randint(0, 9999), letters=_letters(rng), thing=rng.choice(words.THINGS), animal=rng.choice(words.ANIMALS),
    )  # fmt: skip


def beyond(rng: Random) -> str:
    """A calculation other than the taught sums, or with larger numbers."""
    a, b, c = (rng.randint(1, 10 ** rng.randint(1, 3) - 1) for _ in range(3))
    big, big2 = (rng.randint(1000, 10 ** rng.randint(4, 6) - 1) for _ in range(2))
    return rng.choice(BEYOND_FORMS).format(a=a, b=b, c=c, d=rng.randint(0, 99), big=big, big2=big2)


def no_list(rng: Random) -> str:
    """A look-up without a list; only begins chats."""
    k, k2 = rng.sample((*words.GIRLS, *words.BOYS, *words.THINGS, *words.CITIES, *words.ANIMALS), 2)
    return rng.choice(NO_LIST_FORMS).format(k=k, k2=k2)
