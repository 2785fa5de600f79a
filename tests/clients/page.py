"""The web page of a running server, used in Chromium as people use it: page.py URL FOLDER URL.

The second server has two models, demo and other.
"""

import json
import shutil
import sys
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

CONVERSATION = {
    "id": "formulas",
    "title": "How long is a diagonal?",
    "changed": 1,
    "messages": {
        "root": {"id": "root", "children": ["q"], "shown": 0},
        "q": {"id": "q", "parent": "root", "role": "user", "content": "How long is a diagonal? Show it in Python, too.",
              "children": ["a"], "shown": 0},
        "a": {"id": "a", "parent": "q", "role": "assistant", "children": [], "shown": 0,
              "reasoning": "A square with the side a has two of them.",
              "content": "A square with the side $a$ has a **diagonal** of\n\n\\[ d = \\sqrt{a^2 + a^2} = a\\sqrt{2}. \\]\n\n"
                         "| $a$ | $d$ |\n|---|---|\n| 1 | 1.414 |\n| 2 | 2.828 |\n\n"
                         "```python\nimport math\n\ndef diagonal(a):\n    return a * math.sqrt(2)\n```\n\n"
                         "<img src='http://127.0.0.1:1/x.png' onerror='document.title=1'>"},
    },
}


def ask(page, text):
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def answered(page):
    expect(page.get_by_role("status")).to_have_text("Answered.", timeout=30_000)


def last_text(page):
    return page.locator(".assistant .text").last


def converse(page):
    """Types, streams, regenerates, edits, goes between branches."""
    ask(page, "What is 12 + 30?")
    answered(page)
    expect(last_text(page)).to_contain_text("42")
    expect(page.locator(".facts").last).to_contain_text("tokens")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_text("2 of 2")).to_be_visible()
    answered(page)
    page.get_by_role("button", name="The one before").click()
    expect(page.get_by_text("1 of 2")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit the message").fill("What is 20 + 30?")
    page.locator("article").get_by_role("button", name="Send").click()
    answered(page)
    expect(last_text(page)).to_contain_text("50")
    expect(page.locator(".user .text")).to_have_text(["What is 20 + 30?"])
    page.locator(".user").get_by_role("button", name="The one before").click()
    expect(page.locator(".user .text")).to_have_text(["What is 12 + 30?"])


def without_end(route):
    """Lets an answer go on until there is no more room."""
    route.continue_(post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True}))


def stop_reload_continue(page):
    page.get_by_role("button", name="New conversation").click()
    page.route("**/completions", without_end)
    ask(page, "Tell me a story about a fox named Pip who loses a key.")
    expect(last_text(page)).not_to_be_empty()
    page.keyboard.press("Escape")
    page.unroute("**/completions")
    expect(page.get_by_role("status")).to_have_text("Stopped.")
    expect(page.locator(".facts").last).to_have_text("stopped")
    begun = last_text(page).inner_text()
    page.reload()
    expect(last_text(page)).to_contain_text(begun)
    ask(page, "What is 5 + 6?")
    answered(page)
    assert page.locator("article").count() == 4


def export_and_import(page, folder):
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    kept = json.loads(Path(download.value.path()).read_text())
    assert len(kept["conversations"]) == 2, kept
    for conversation in page.get_by_role("button", name="Delete").all():
        page.get_by_role("button", name="Delete").first.click()
    expect(page.locator("#conversations li")).to_have_count(0)
    kept["conversations"].append(CONVERSATION)
    file = folder / "conversations.json"
    file.write_text(json.dumps(kept))
    page.locator("#import-file").set_input_files(file)
    expect(page.get_by_role("status")).to_have_text("3 conversations imported")
    file.write_text('{"conversations": [{"id": 1}]}')
    page.locator("#import-file").set_input_files(file)
    expect(page.get_by_role("status")).to_contain_text("nothing imported")
    page.get_by_role("button", name="How long is a diagonal?", exact=True).click()


def rendered(page):
    """Formulas, tables and code are what they should be; tags of a model are text."""
    text = last_text(page)
    expect(text.locator("msqrt")).to_have_count(2)
    expect(text.locator("td")).to_have_count(4)
    expect(text).to_contain_text("<img src=")
    page.get_by_role("button", name="Copy this code").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import math\n\ndef diagonal(a):\n    return"), copied
    thoughts = page.locator(".thoughts div").last
    expect(thoughts).to_be_hidden()
    page.get_by_text("Thoughts").last.click()
    expect(thoughts).to_contain_text("two of them")


def settings(page, folder):
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Tokens at most").fill("2")
    page.get_by_label("System prompt").fill("Be short.")
    found = serious(page)
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="New conversation").click()
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.url.endswith("completions") else None)
    ask(page, "What is 12 + 30?")
    expect(page.locator(".facts").last).to_contain_text("2 tokens")
    assert sent[0]["max_tokens"] == 2 and sent[0]["messages"][0] == {"role": "system", "content": "Be short."}, sent
    return found


def serious(page):
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] in ("serious", "critical")]


def choose_a_model(page, url):
    page.goto(url)
    expect(page.locator("#models option")).to_have_text(["demo", "other"])
    expect(page.locator("#model")).to_be_hidden()
    found = serious(page)
    page.locator("#models").select_option("other")
    page.reload()
    expect(page.locator("#models")).to_have_value("other")
    with page.expect_request("**/completions") as asked:
        ask(page, "What is 12 + 30?")
    assert asked.value.post_data_json["model"] == "other"
    return found


def main(url, folder, several):
    folder.mkdir(exist_ok=True)
    # On a machine that does much else.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1100, "height": 760}, color_scheme="light",
                                      permissions=["clipboard-read", "clipboard-write"])
        page = context.new_page()
        wrong, foreign = [], []
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith((url, "blob:")) else foreign.append(request.url))
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(url)
        expect(page.locator("#model")).to_have_text("demo")
        converse(page)
        stop_reload_continue(page)
        export_and_import(page, folder)
        rendered(page)
        found = serious(page)
        page.screenshot(path=folder / "light.png")
        page.get_by_role("button", name="Theme").click()
        page.get_by_role("button", name="Theme").click()
        found += serious(page)
        page.screenshot(path=folder / "dark.png")
        found += settings(page, folder)
        for figure in ("batch", "cache", "first", "speed"):
            expect(page.locator(f'[data-figure="{figure}"]')).not_to_have_text("–", timeout=5_000)
        assert not found, f"axe finds {found}"
        assert not wrong, wrong
        assert not foreign, foreign
        found = choose_a_model(context.new_page(), several)
        assert not found, f"axe finds {found}"
        browser.close()
    print("the page does what it should")


main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
