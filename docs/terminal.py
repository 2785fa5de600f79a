"""Records a terminal session as an animated SVG: terminal.py REFRAIN [FILE] (docs/terminal.svg by default).

Runs the commands below in a pseudo-terminal, on the CPU unless REFRAIN_DEVICE names a device, and draws what they
write at the times when they write it. Longer waits are cut to MAX_WAIT. The animation plays once; a viewer without
animations, or one whose user prefers none, shows the end of it. Needs nothing but Python.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections import namedtuple
from pathlib import Path
from xml.sax.saxutils import escape

#: What is typed, and how many lines of its output are shown at most: the first ones and the last ones.
SESSION = [
    ('refrain run demo "Tell me a story about a fox named Pip who loses a key." --seed 12', 12, 3),
    ("refrain inspect demo", 13, 0),
    ("refrain bench demo -p 64 -n 32", 20, 0),
]
COLUMNS = 114
#: Seconds: between typed characters, after a command, and the longest wait for output.
TYPING, PAUSE, MAX_WAIT = 0.02, 0.9, 0.4
#: Frames per second: output within a frame is drawn together.
FRAMES = 20
MAX_BYTES = 200_000

#: Pixels.
FONT, ADVANCE, LINE, MARGIN, TITLE = 14, 8.4, 20, 18, 36
PAPER, INK, FAINT, FRAME = "#16181c", "#e8ebef", "#98a2af", "#343942"
#: The eight colours of a terminal, from black to white.
COLOURS = ["#717b89", "#ff9c94", "#9fd6a0", "#eccb87", "#8fc0ff", "#cfa8ff", "#86d2e4", "#e8ebef"]

Style = namedtuple("Style", "colour bold underlined", defaults=(INK, False, False))
Cell = namedtuple("Cell", "character style time")
#: A control sequence, a command to the operating system, or another escape.
ESCAPE = re.compile(r"\x1b(?:\[([?\d;]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")


class Screen:
    """A terminal of unlimited height. Each cell has the time since which it is shown."""

    def __init__(self):
        self.rows = [{}]
        #: Erased cells: one that is written again at once as it was keeps its time.
        self.erased = {}
        self.row = self.column = 0
        self.style = Style()

    def write(self, text, when):
        while text:
            if found := ESCAPE.match(text):
                if found[2]:
                    self.control(found[2], [int(number or 0) for number in found[1].lstrip("?").split(";")])
                text = text[found.end():]
            else:
                self.put(text[0], when)
                text = text[1:]

    def put(self, character, when):
        if character == "\n":
            self.move_to(self.row + 1)
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(self.column - 1, 0)
        elif character == "\t":
            self.column += 8 - self.column % 8
        elif character >= " ":
            if self.column == COLUMNS:
                self.column = 0
                self.move_to(self.row + 1)
            cell = Cell(character, self.style, when)
            before = self.erased.get((self.row, self.column))
            if before and before[:2] == cell[:2]:
                cell = before
            self.rows[self.row][self.column] = cell
            self.column += 1

    def move_to(self, row):
        self.row = max(row, 0)
        while len(self.rows) <= self.row:
            self.rows.append({})

    def control(self, final, numbers):
        count = max(numbers[0], 1)
        if final == "m":
            self.set_style(numbers)
        elif final == "K":
            self.erase({0: range(self.column, COLUMNS), 1: range(self.column + 1)}.get(numbers[0], range(COLUMNS)))
        elif final == "J" and numbers[0] == 0:
            self.erase(range(self.column, COLUMNS))
            del self.rows[self.row + 1:]
        elif final == "A":
            self.move_to(self.row - count)
        elif final == "B":
            self.move_to(self.row + count)
        elif final in "CDG":
            self.column = {"C": self.column + count, "D": max(self.column - count, 0), "G": count - 1}[final]

    def erase(self, columns):
        cells = self.rows[self.row]
        for column in [column for column in cells if column in columns]:
            self.erased[self.row, column] = cells.pop(column)

    def set_style(self, numbers):
        for number in numbers:
            if number == 0:
                self.style = Style()
            elif number == 1:
                self.style = self.style._replace(bold=True)
            elif number == 2:
                self.style = self.style._replace(colour=FAINT)
            elif number == 4:
                self.style = self.style._replace(underlined=True)
            elif number == 22:
                self.style = self.style._replace(bold=False)
            elif number == 39:
                self.style = self.style._replace(colour=INK)
            elif 30 <= number < 38 or 90 <= number < 98:
                self.style = self.style._replace(colour=COLOURS[number % 10])


def outputs(command):
    """Runs a shell command in a pseudo-terminal. Yields each piece of output and the seconds since the one before."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.environ.setdefault("REFRAIN_DEVICE", "cpu")
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    before = time.monotonic()
    text = b""
    while True:
        try:
            text += os.read(terminal, 65536)
        except OSError:
            break
        # A piece may end within a character or a control sequence.
        if re.search(rb"(?:\x1b\[?[?\d;]*|[\xc0-\xff][\x80-\xbf]{0,2})\Z", text):
            continue
        now = time.monotonic()
        yield text.decode(), now - before
        text, before = b"", now
    if status := os.waitpid(process, 0)[1]:
        raise SystemExit(f"{command} failed with status {status}:\n{text.decode()}")


def record(program):
    """Plays the session. Returns the screen and the length in seconds."""
    screen, clock = Screen(), 0.0
    path = os.path.dirname(os.path.abspath(program))
    os.environ["PATH"] = f"{path}:{os.environ['PATH']}"
    for command, head, tail in SESSION:
        screen.style = Style(COLOURS[2], True)
        screen.write("$ ", clock)
        screen.style = Style(INK, True)
        clock += PAUSE / 2
        for character in command:
            screen.write(character, clock)
            clock += TYPING
        screen.style = Style()
        screen.write("\r\n", clock)
        first = screen.row
        for text, waited in outputs(command):
            clock += min(waited, MAX_WAIT)
            screen.write(text, clock)
        shorten(screen, first, head, tail, clock)
        screen.write("\r\n", clock)
        clock += PAUSE
    return screen, clock


def shorten(screen, first, head, tail, when):
    """Replaces the middle of a command's output by the number of its lines, and moves to the line below."""
    while len(screen.rows) > first and not screen.rows[-1]:
        screen.rows.pop()
    cut = len(screen.rows) - first - head - tail
    if cut > 1:
        note = f"… {cut} lines …"
        cells = {column: Cell(character, Style(FAINT), when) for column, character in enumerate(note)}
        screen.rows[first + head:len(screen.rows) - tail] = [cells]
    screen.move_to(len(screen.rows))
    screen.column = 0


def runs(cells):
    """The neighbouring cells of a row that look alike and appear together, as (column, text, style, frame)."""
    found = []
    for column, cell in sorted(cells.items()):
        frame = round(cell.time * FRAMES)
        is_blank = cell.character == " " and not cell.style.underlined
        if is_blank and (not found or found[-1][0] + len(found[-1][1]) != column or found[-1][1].endswith(" ")):
            continue
        last = found[-1] if found else None
        if last and last[0] + len(last[1]) == column and (last[2], last[3]) == (cell.style, frame):
            found[-1] = (last[0], last[1] + cell.character, last[2], last[3])
        elif not is_blank:
            found.append((column, cell.character, cell.style, frame))
    return [(column, text.rstrip(), style, frame) for column, text, style, frame in found]


def draw(screen):
    """The SVG. Each run of text is hidden until its time has come."""
    width = round(COLUMNS * ADVANCE + 2 * MARGIN)
    height = TITLE + len(screen.rows) * LINE + MARGIN
    parts = []
    for number, cells in enumerate(screen.rows):
        y = TITLE + (number + 1) * LINE
        for column, text, style, frame in runs(cells):
            x = MARGIN + column * ADVANCE
            looks = f' fill="{style.colour}"' if style.colour != INK else ""
            looks += ' font-weight="bold"' if style.bold else ""
            looks += ' text-decoration="underline"' if style.underlined else ""
            length = f' textLength="{len(text) * ADVANCE:.1f}"' if len(text) > 1 else ""
            parts.append(f'<text x="{x:.1f}" y="{y}"{length}{looks} style="animation-duration:{frame / FRAMES:.2f}s">'
                         f"{escape(text)}</text>")
    dots = "".join(f'<circle cx="{MARGIN + 6 + 18 * number}" cy="{TITLE / 2}" r="5.5" fill="{FRAME}"/>'
                   for number in range(3))
    fonts = "ui-monospace, JetBrains Mono, Menlo, Consolas, DejaVu Sans Mono, monospace"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img" aria-label="A terminal: refrain tells a story, describes the model and measures its speed">\n'
            "<style>text{animation:hide 1s step-end}@keyframes hide{from,to{visibility:hidden}}"
            "@media(prefers-reduced-motion:reduce){text{animation:none}}</style>\n"
            f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>{dots}\n'
            f'<g font-family="{fonts}" font-size="{FONT}" fill="{INK}">\n' + "\n".join(parts) + "\n</g>\n</svg>\n")


def main(program, file):
    screen, seconds = record(program)
    while screen.rows and not screen.rows[-1]:
        screen.rows.pop()
    file.write_text(draw(screen))
    size = file.stat().st_size
    assert size < MAX_BYTES, f"{file} has {size} bytes"
    print(f"{file}: {len(screen.rows)} lines, {seconds:.1f} s, {size} bytes")


main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("terminal.svg"))
