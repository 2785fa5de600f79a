"""The plots of the story grammar.

A plot is a list of beats. A beat is a list of phrasings, one of which is chosen. Slots:
  {h} hero      {he} {him} {his} {himself} and {He} {His} their pronouns
  {f} friend (the first mention also says who: "a fox named Pip")    {fhe} {fhim} {fhis} and {Fhe} {Fhis}
  {a} a grown-up ("the baker")
  {item} "shiny key"      {thing} "key"      {food} "plum tart"
  {at1} {at2} {at3} three different places ("by the river"); {p1} {p2} {p3} "the river"
A beat whose first phrasing is empty is optional.
"""

OPENINGS = [
    "Once upon a time there was {who} named {h}. {He} lived in {home}.",
    "Once there was {who} called {h}, who lived in {home}.",
    "In {home} lived {who} named {h}.",
    "Long ago, {who} named {h} lived in {home}.",
    "{h} was {who} who lived in {home}.",
    "There once was {who} named {h}. {His} home was {home}.",
]

MOODS = [
    "",
    "{He} was curious and liked to ask questions.",
    "{He} loved {food} more than anything else.",
    "Everyone liked {h}, because {he} was kind.",
    "{He} was small, but {he} was brave.",
    "Every morning {he} went for a walk {at3}.",
    "{His} best friend was {f}.",
    "{He} was a little shy, but {he} had a good heart.",
]

DAYS = [
    "One morning",
    "One day",
    "On a sunny day",
    "One windy afternoon",
    "On a cold winter day",
    "One rainy morning",
    "Late in the summer",
    "On the first day of spring",
]

# Asides that may stand between two beats of any plot.
ASIDES = [
    "The sun was warm, and a soft wind came from {p3}.",
    "A bird was singing somewhere near {p3}.",
    "Far away a bell rang, but {h} hardly heard it.",
    "{h} thought about {his} mother, who always said, \"Take your time.\"",
    "For a while nobody said a word.",
    "{h} took a deep breath.",
    "There was a smell of {food} in the air, and {h} felt hungry.",
    "A cat sat on the wall and watched.",
    "The clouds moved slowly over {p3}.",
]

# How a second adventure of the same two begins.
MEANWHILE = [
    "But that was not the last adventure of {h} and {f}.",
    "A week went by, and {h} and {f} met almost every day.",
    "Soon after that, something else happened.",
    "The next month brought another surprise.",
]

ENDINGS = [
    "{h} and {f} were friends from that day on.",
    "That night {h} slept well and dreamed of {p2}.",
    "From then on, {h} was never afraid to ask for help.",
    "And whenever {h} passed {p2}, {he} smiled.",
    "{h} went home, ate some {food} and was very happy.",
    "{h} told everyone about it, and they all laughed and clapped.",
    "It had been a good day, and {h} knew that there would be many more.",
    "{h} learned that a good friend is worth more than gold.",
]

LOST = [
    [
        "{h} had a {item}. {His} grandmother had given it to {him}, and {he} kept it always.",
        "The thing that {h} loved most was a {item}. {He} carried it everywhere.",
        "{h} owned a {item}, and {he} was very proud of it.",
    ],
    [
        "{day}, the {thing} was gone. {h} looked under the bed and behind the door, but it was not there.",
        "{day}, {h} could not find the {thing}. {He} looked in every corner of the house.",
        '{day}, {h} opened {his} bag, and it was empty. "Where is my {thing}?" {he} cried.',
    ],
    [
        "First {he} searched {at1}. {He} found an old shoe and a rusty nail, but no {thing}.",
        "{He} went to {p1} and looked for a long time. The {thing} was not {at1}.",
        "{He} ran to {p1}, because {he} had played there the day before. But there was no {thing}.",
    ],
    ["", "{h} sat down and began to cry.", "{h} was sad, but {he} did not give up.", "The wind blew, and it grew cold."],
    [
        'Then {f} came along. "Why are you so sad?" asked {f}. "I lost my {thing}," said {h}.',
        '{He} met {f} on the way. "Have you seen my {thing}?" asked {h}. {f} thought about it.',
        'There {he} met {f}. "I am looking for my {thing}," {h} said.',
    ],
    [
        '"I saw a crow with something in its beak," said {f}. "It flew to {p2}."',
        '"I will help you," said {f}. "Let us look {at2} together."',
        '"Yesterday I saw something {at2}," said {f}. "Come, I will show you."',
    ],
    [
        "So {h} and {f} went to {p2}. They looked high and low.",
        "They walked to {p2} side by side and did not stop until they were there.",
        "{h} followed {f} to {p2}. The way was long, but the two of them sang a song.",
    ],
    [
        "And there, under a heap of leaves, lay the {thing}!",
        'Suddenly {f} shouted, "Here it is!" The {thing} lay between two stones.',
        "Something was shining in the grass. It was the {item}!",
    ],
    [
        '"Thank you, {f}," said {h}. "Without you I would still be looking."',
        "{h} was so happy that {he} hugged {f} and danced.",
        '{h} laughed with joy. "You are a true friend," {he} told {f}.',
    ],
]

GIFT = [
    [
        "{day}, {h} remembered that it was the birthday of {f}. {He} wanted to bring {fhim} a present.",
        "{day}, {h} heard that {f} had a birthday. {h} liked {fhim} very much.",
        "It was nearly the birthday of {f}. {day}, {h} sat down to think of a present.",
    ],
    [
        '"I will give {fhim} a {item}," {he} said. But {he} had no money.',
        "{f} had always wished for a {item}, but {h} did not have one.",
        "What could it be? A {item} would be just right, but where could {he} get one?",
    ],
    [
        "So {he} went to {a}, who worked {at1}.",
        "{He} walked to {p1} and met {a} there.",
        "{He} knew that {a} had many things, so {he} went to {p1}.",
    ],
    [
        '"You may have a {thing}," said {a}, "if you help me today."',
        '{a} smiled. "Help me with my work," came the answer, "and the {thing} is yours."',
        '"I have a {thing}," said {a}, "but I need someone who can help me."',
    ],
    [
        "All day long {h} carried wood and swept the floor. {His} arms were tired, but {he} did not stop.",
        "{h} worked hard. {He} washed the windows and fed the hens until the sun went down.",
        "{h} helped gladly. {He} carried water, stacked boxes and never once complained.",
    ],
    [
        "In the evening {h} got the {item}. It was even more beautiful than {he} had thought.",
        "When the work was done, {h} held the {item} in {his} hands.",
        '"You have earned it," said {a}, and gave {him} the {item}.',
    ],
    ["", "{h} wrapped it in paper and tied a ribbon around it.", "On the way home {he} baked some {food} as well."],
    [
        '{f} was waiting {at2}. "Happy birthday!" said {h}, and gave {fhim} the {thing}.',
        "{h} found {f} {at2} and put the present in front of {fhim}.",
        'The party was {at2}. "This is for you," said {h} to {f}.',
    ],
    [
        "{f} opened it and could not say a word. It was the best present of all.",
        '"A {thing}!" cried {f}. "How did you know?"',
        "{Fhis} eyes shone when {fhe} saw the {thing}. {Fhe} thanked {h} again and again.",
    ],
]

SKILL = [
    [
        "{h} wanted to learn how to {skill}, but {he} did not know how.",
        "More than anything, {h} wished to {skill}.",
        "{day}, {h} saw {f} {at1}. {f} could {skill} very well, and {h} wanted to learn it too.",
    ],
    [
        "{day}, {he} went to {p2} and tried. It did not go well at all.",
        "{He} tried it {at2}, but {he} failed and fell on {his} nose.",
        "{He} tried once, and twice, and three times. Each time it went wrong.",
    ],
    [
        '"I will never {skill}," said {h}, and {he} kicked a stone.',
        "Some of the others laughed, and {h} went red.",
        "{h} wanted to go home and hide.",
    ],
    [
        'But {f} had seen it. "Do not worry," said {f}. "I will show you."',
        'Then {f} sat down beside {him}. "It took me a long time too," said {f}.',
        '{f} said, "You only need to try again tomorrow. I will come with you."',
    ],
    [
        "Every day they met {at2}. {f} was patient, and {h} listened.",
        "So they practised {at2}, day after day, in the sun and in the rain.",
        "The next morning they began. {f} showed {him} every step slowly.",
    ],
    ["", "Sometimes {h} was tired, but {he} kept going.", "After a week it went a little better."],
    [
        "And then, one evening, it worked! {h} could {skill}.",
        '"Look at me!" shouted {h}. {He} could {skill} at last.',
        "Suddenly it was easy. {h} could hardly believe it.",
    ],
    [
        "{f} clapped and cheered. {h} had never been so proud.",
        '"I knew that you could do it," said {f}.',
        "Now {h} shows everyone who wants to learn how to {skill}.",
    ],
]

NOISE = [
    [
        "One night, {h} heard a strange noise. It came from {p1}.",
        "{h} woke up in the middle of the night. Something was crying {at1}.",
        "It was dark, and the moon was behind the clouds. Then {h} heard a sound from {p1}.",
    ],
    [
        "{He} was frightened and pulled the blanket over {his} head.",
        "{His} heart beat fast. Was it a monster?",
        '"What can that be?" {he} whispered.',
    ],
    [
        "{He} took a lantern and woke {f}. Together they would be brave.",
        'In the morning {he} told {f} about it. "Let us go and see," said {f}.',
        "{He} did not want to go alone, so {he} called {f}, who was never afraid.",
    ],
    [
        "Step by step they went to {p1}. The noise grew louder.",
        "They walked to {p1} very quietly. A branch cracked, and both of them jumped.",
        "The way to {p1} was muddy and wet. {f} held the light up high.",
    ],
    [
        "There sat {lostwho}! Its foot was caught under a branch.",
        "Behind a stone sat {lostwho}. It was cold and could not find the way home.",
        "In a hole they found {lostwho}. It was too small to climb out.",
    ],
    [
        '"Do not be afraid," said {h}. {He} lifted it up very carefully.',
        "{h} gave it some {food}, and {f} wrapped it in a scarf.",
        "{h} and {f} pulled and pushed until the little animal was free.",
    ],
    [
        "They brought it back to its mother, who lived {at2}.",
        "They carried it all the way to {p2}, where its family was waiting.",
        "The family of the little animal was {at2}. How happy they all were!",
    ],
    [
        '"And I thought that it was a monster," said {h}, and {f} laughed.',
        "After that night, {h} was not afraid of the dark any more.",
        "Since then the little animal has come to visit {h} every week.",
    ],
]

BUILD = [
    [
        "{day}, {h} had an idea. {He} wanted to build {project} {at1}.",
        "{day}, {h} said to {f}, \"Let us build {project}!\" {f} liked the idea.",
        "{h} had always dreamed of {project}. {day}, {he} began to build it {at1}.",
    ],
    [
        "{h} and {f} looked for wood and rope. They found plenty {at2}.",
        "They asked {a} for nails and boards, and {a} gave them a whole bag.",
        "{f} brought a hammer, and {h} brought a saw.",
    ],
    [
        "They worked from morning until evening. {h} held the boards, and {f} used the hammer.",
        "{f} measured and {h} cut. It was hard work, but it was fun.",
        "All day they knocked and sawed, and they ate {food} in between.",
    ],
    [
        "But in the night a storm came, and in the morning everything lay on the ground.",
        "But they had been too quick. It shook, it leaned, and then it fell down.",
        'Then there was a loud crack, and it broke in two. "Oh no!" cried {h}.',
    ],
    [
        '"We should stop," said {h}. "No," said {f}, "we should build it better."',
        "{h} was angry, but {f} only laughed and picked up the hammer again.",
        "{a} came by and looked at it. \"You need stronger rope,\" said {a}.",
    ],
    [
        "So they began again. This time they took thicker wood and tied every knot twice.",
        "The second time they took care and did not hurry.",
        "They drew a plan first, and {a} helped them with the heavy parts.",
    ],
    [
        "At last {project} was ready, and it was strong.",
        "After three days it stood there, better than before.",
        "When it was done, the whole village came to {p1} to see it.",
    ],
    [
        '"We did it!" said {h}, and {he} and {f} danced around it.',
        "They painted it {colour}, and {f} wrote both their names on it.",
        "{h} looked at {f} and said, \"Alone I could never have done this.\"",
    ],
]

ERRAND = [
    [
        "{day}, {a} was ill, and {h} wanted to bring some {food}.",
        '{day}, {his} mother said, "Please bring this {food} to {a}."',
        "{day}, {h} heard that {a} had nothing to eat, so {he} packed some {food}.",
    ],
    [
        "The way went past {p1} and then on to {p2}.",
        "It was a long way. First {he} had to go past {p1}, and then to {p2}.",
        "{He} put the {food} into a basket and walked past {p1}.",
    ],
    [
        "There {h} met {f}. {f} looked hungry.",
        "By the path sat {f}, who had not eaten all day.",
        "Soon {he} saw {f}, who looked tired and sad.",
    ],
    [
        "{h} thought for a moment. Then {he} shared a little of the {food} with {f}.",
        '"Take some," said {h}, and {he} gave half of the {food} to {f}.',
        '"There is enough for everyone," said {h}, and {he} gave {fhim} a piece.',
    ],
    [
        "Then dark clouds came, and it began to rain. {h} could not see the path any more.",
        "Near {p2} the path split in two, and {h} did not know the way.",
        "But the bridge was broken, and the water was wild and deep.",
    ],
    [
        '"I know another way," said {f}. "You were kind to me, so I will be kind to you."',
        '"Follow me," said {f}. "I have lived here all my life."',
        "{f} took {him} by the hand and led {him} along a secret path.",
    ],
    [
        "Before night they came to {a}. The {food} was still warm.",
        "Soon they saw a light. {a} opened the door and let them in.",
        "At last they reached {p2}, where {a} was waiting.",
    ],
    [
        "{a} ate and felt better at once. Then they all sat by the fire.",
        '"What a feast!" said {a}. "Thank you, {h}. And thank you, {f}."',
        "{a} gave {h} a {item} to say thank you.",
    ],
]

SKILLS = [
    "swim", "whistle", "ride a horse", "fly a kite", "play the flute", "paint", "dance", "skate",
    "climb trees", "bake bread", "sing", "row a boat", "tie knots", "juggle", "catch fish",
]

PROJECTS = [
    "a tree house", "a small boat", "a bridge", "a wooden hut", "a swing", "a raft",
    "a giant snowman made of wood", "a wind wheel", "a bench", "a bird house",
]

# Plot name -> beats, and the phrase by which a request may ask for the plot.
PLOTS = {
    "lost": (LOST, "who loses {a_thing}"),
    "gift": (GIFT, "who looks for a birthday present"),
    "skill": (SKILL, "who wants to {skill}"),
    "noise": (NOISE, "who hears a strange noise"),
    "build": (BUILD, "who builds {project}"),
    "errand": (ERRAND, "who brings {food} to {a}"),
}
