"""Takes the pictures of the web page: screenshots.py REFRAIN [FOLDER], or screenshots.py http://HOST:PORT [FOLDER].

Starts `REFRAIN serve demo`, imports a sample conversation (sample.py), and writes light and dark pictures at three
widths. Needs Debian's chromium and the Python packages of tests/clients/requirements.txt (ci/setup puts them into
target/clients). Uses the fonts Inter and JetBrains Mono (fonts-inter, fonts-jetbrains-mono) if they are installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "target/clients")]

from playwright.sync_api import expect, sync_playwright  # noqa: E402
from sample import conversations  # noqa: E402

#: Width and height of each picture in pixels.
SIZES = [(360, 740), (768, 1024), (1440, 1120)]
SCHEMES = ["light", "dark"]
#: Bytes of a picture at most.
MAX_BYTES = 300_000
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]
#: What `system-ui` and the monospaced font are on the machine that takes the pictures.
FONTS = """<?xml version="1.0"?>
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <match target="pattern"><test qual="any" name="family"><string>monospace</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>JetBrains Mono</string></edit></match>
  <match target="pattern"><test qual="any" name="family"><string>sans-serif</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
  <match target="pattern"><test qual="any" name="family"><string>sans</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
  <match target="pattern"><test qual="any" name="family"><string>system-ui</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
</fontconfig>
"""


def start(program):
    """Serves the demo model on a free port. Returns the process and its URL."""
    server = subprocess.Popen([program, "serve", "demo", "--port", "0"], stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return server, found.group()
    raise SystemExit(f"{program} did not start")


def new_page(browser, url, width, height, scheme):
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-GB")
    page = context.new_page()
    page.goto(url)
    expect(page.locator("#model")).to_have_text("demo")
    return page


def ask_the_model(page):
    """One real request, so that the server's metrics have values."""
    page.get_by_label("Your message").fill("What is 12 + 30?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Response complete.", timeout=60_000)


def import_sample(page, file):
    page.locator("#import-file").set_input_files(file)
    expect(page.get_by_role("status")).to_contain_text("imported")
    if page.viewport_size["width"] < 832:
        page.get_by_role("button", name="Sidebar").click()
    page.get_by_role("button", name="A lighthouse and its horizon", exact=True).click()
    expect(page.locator("#messages .code-keyword").first).to_be_attached()
    expect(page.locator("#messages math").first).to_be_attached()


def save(page, file):
    # The speed in the sidebar needs two polls of the metrics.
    expect(page.locator("[data-metric='speed']")).to_have_text("0.0")
    page.evaluate("document.fonts.ready")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(300)
    page.screenshot(path=file)
    assert file.stat().st_size < MAX_BYTES, f"{file} has {file.stat().st_size} bytes"
    page.context.close()


def take(browser, url, file, folder):
    for scheme in SCHEMES:
        for width, height in SIZES:
            page = new_page(browser, url, width, height, scheme)
            ask_the_model(page)
            import_sample(page, file)
            save(page, folder / f"{scheme}-{width}.png")
    for width, height in (SIZES[0], SIZES[-1]):
        save(new_page(browser, url, width, height, "light"), folder / f"empty-{width}.png")


def main(target, folder):
    folder.mkdir(parents=True, exist_ok=True)
    is_url = target.startswith("http")
    server, url = (None, target) if is_url else start(target)
    try:
        with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
            file = Path(scratch, "conversations.json")
            file.write_text(json.dumps(conversations(int(time.time() * 1000))))
            fonts = Path(scratch, "fonts.conf")
            fonts.write_text(FONTS)
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS,
                                                 env={**os.environ, "FONTCONFIG_FILE": str(fonts)})
            take(browser, url, file, folder)
            browser.close()
    finally:
        if server:
            server.terminate()
            server.wait()


main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else HERE)
