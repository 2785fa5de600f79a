"""The sample conversation of the pictures. It was written for them: the bundled demo model is too small to write it."""

STORY = """\
On the night of the great fog Ada could not see the water, so she rang the bell, once a minute, until morning. \
“We could not see your light,” said the fishermen at dawn, “so we rowed to where the bell was loudest.”"""

HORIZON = """\
From a height $h$ above the sea, on an Earth with the radius $R \\approx 6371\\,\\text{km}$, the horizon is at a \
distance of

$$ d = \\sqrt{(R + h)^2 - R^2} \\approx \\sqrt{2 R h} $$

| Lighthouse | Height of the lamp | Horizon |
|---|--:|--:|
| A harbour's | 10 m | 11.3 km |
| A cape's | 50 m | 25.2 km |

```python
from math import sqrt

def horizon(height: float) -> float:
    \"\"\"Distance of the horizon, all in metres.\"\"\"
    return sqrt(2 * 6_371_000 * height)

print(f"{horizon(50) / 1000:.1f} km")  # 25.2 km
```"""

TURNS = [
    ("user", "Tell me a very short story about a lighthouse keeper."),
    ("assistant", STORY),
    ("user", "How far can she see? Show it in Python, too."),
    ("assistant", HORIZON),
]

HOUR = 60 * 60 * 1000
#: Titles of the other conversations in the sidebar, and how many hours ago they changed.
OTHERS = [
    ("Packing list for a week in Norway", 26),
    ("What does a KV cache hold?", 28),
    ("Sourdough at 75 % hydration", 80),
    ("Rename branches without losing history", 100),
]


def conversation(identifier, title, turns, changed):
    """A conversation as the page exports it; `changed` is in milliseconds since 1970."""
    messages = {"root": {"id": "root", "children": [], "shown": 0}}
    parent = "root"
    for number, (role, content) in enumerate(turns):
        name = f"{identifier}-{number}"
        messages[name] = {"id": name, "parent": parent, "role": role, "content": content, "reasoning": "", "facts": "",
                          "failure": "", "children": [], "shown": 0}
        messages[parent]["children"].append(name)
        parent = name
    return {"id": identifier, "title": title, "changed": changed, "messages": messages}


def conversations(now):
    """The page's export file with the sample conversation first. `now` is in milliseconds since 1970."""
    sample = conversation("sample", "A lighthouse and its horizon", TURNS, now)
    others = [conversation(f"other-{number}", title, [("user", title)], now - hours * HOUR)
              for number, (title, hours) in enumerate(OTHERS)]
    return {"refrain": 1, "conversations": [sample, *others]}
