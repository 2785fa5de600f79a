"""Browser test of the web page, in headless Chromium: page.py URL FOLDER URL2.

URL is a server of the demo model, URL2 one of the two models demo and other. FOLDER receives files and pictures.
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


#: Code, and the kinds of its coloured tokens in order.
SYNTAX = {
    "python": ('@cache\ndef f(x):\n    return "a" + 1  # b', "meta keyword function keyword string number comment"),
    "rust": ("fn f<'a>(s: &'a str) -> Vec<u8> { r#\"\"#; '\\n' } // c",
             "keyword variable variable keyword type keyword string string comment"),
    "js": ("const f = async () => g(`a ${b}`, 0xff); /* c", "keyword keyword function string number comment"),
    "bash": ('for f in *; do echo "$f" --all ${x}; done # end',
             "keyword keyword keyword keyword string variable variable keyword comment"),
    "json": ('{"a": [1, true, "b"]}', "property number keyword string"),
    "yaml": ("a:\n  - b: 1 # c", "property property number comment"),
    "html": ("<!-- c --><a href='b'>text</a>", "comment keyword property string keyword keyword keyword"),
    "sql": ("SELECT count(*) FROM t -- c", "keyword function keyword comment"),
    "diff": ("@@ -1 +1 @@\n-a\n+b", "meta removed added"),
    "no-such-language": ("def f(): pass", ""),
    "constructor": ("def f(): pass", ""),
}


def ask(page, text):
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def wait_for_response(page):
    expect(page.get_by_role("status")).to_have_text("Response complete.", timeout=30_000)


def last_text(page):
    return page.locator(".assistant .text").last


def chat_and_branch(page):
    """Types, streams, regenerates, edits, switches branches."""
    ask(page, "What is 12 + 30?")
    wait_for_response(page)
    expect(last_text(page)).to_contain_text("42")
    expect(page.locator(".statistics").last).to_contain_text("tokens")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_text("2 of 2")).to_be_visible()
    wait_for_response(page)
    page.get_by_role("button", name="Previous version").click()
    expect(page.get_by_text("1 of 2")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit the message").fill("What is 20 + 30?")
    page.locator("article").get_by_role("button", name="Send").click()
    wait_for_response(page)
    expect(last_text(page)).to_contain_text("50")
    expect(page.locator(".user .text")).to_have_text(["What is 20 + 30?"])
    page.locator(".user").get_by_role("button", name="Previous version").click()
    expect(page.locator(".user .text")).to_have_text(["What is 12 + 30?"])


def ignore_eos(route):
    """Lets a response go on until the context is full."""
    route.continue_(post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True}))


def stop_reload_continue(page):
    """Escape stops; what was generated until then survives a reload."""
    page.get_by_role("button", name="New conversation").click()
    page.route("**/completions", ignore_eos)
    ask(page, "Tell me a story about a fox named Pip who loses a key.")
    expect(last_text(page)).not_to_be_empty()
    page.keyboard.press("Escape")
    page.unroute("**/completions")
    expect(page.get_by_role("status")).to_have_text("Stopped.")
    expect(page.locator(".statistics").last).to_have_text("stopped")
    begun = last_text(page).inner_text()
    page.reload()
    expect(last_text(page)).to_contain_text(begun)
    ask(page, "What is 5 + 6?")
    wait_for_response(page)
    assert page.locator("article").count() == 4


def export_and_import(page, folder):
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert len(exported["conversations"]) == 2, exported
    for conversation in page.get_by_role("button", name="Delete").all():
        page.get_by_role("button", name="Delete").first.click()
    expect(page.locator("#conversations li")).to_have_count(0)
    exported["conversations"].append(CONVERSATION)
    file = folder / "conversations.json"
    file.write_text(json.dumps(exported))
    page.locator("#import-file").set_input_files(file)
    expect(page.get_by_role("status")).to_have_text("3 conversations imported")
    file.write_text('{"conversations": [{"id": 1}]}')
    page.locator("#import-file").set_input_files(file)
    expect(page.get_by_role("status")).to_contain_text("import failed")
    page.get_by_role("button", name="How long is a diagonal?", exact=True).click()


def check_rendering(page):
    """Formulas, tables and code are rendered; tags that a model writes are shown as text."""
    text = last_text(page)
    expect(text.locator("msqrt")).to_have_count(2)
    expect(text.locator("td")).to_have_count(4)
    expect(text).to_contain_text("<img src=")
    page.get_by_role("button", name="Copy this code").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import math\n\ndef diagonal(a):\n    return"), copied
    expect(text.locator(".code-keyword")).to_have_text(["import", "def", "return"])
    assert colour(text.locator(".code-keyword").first) != colour(text.locator("code")), "keywords have a colour"
    reasoning = page.locator(".reasoning div").last
    expect(reasoning).to_be_hidden()
    page.get_by_text("Reasoning").last.click()
    expect(reasoning).to_contain_text("two of them")


def check_syntax(page):
    """Tokens have the expected kinds and together are the code. Unfinished and repetitive code is split quickly."""
    script = "async ([code, name]) => (await import('/page/syntax.js')).tokens(code, name)"
    for name, (code, kinds) in SYNTAX.items():
        tokens = page.evaluate(script, [code, name])
        assert "".join(token["text"] for token in tokens) == code, name
        found = [token["kind"] for token in tokens if "kind" in token]
        assert found == kinds.split(), (name, found)
        for piece in ('"', "'", "/*", "`", "-", "a", " ", "#[", "<"):
            timed = f"async (argument) => {{ const start = performance.now(); await ({script})(argument); " \
                    "return performance.now() - start; }"
            assert page.evaluate(timed, [piece * 10_000, name]) < 5000, (name, piece)


def colour(locator):
    return locator.evaluate("(element) => getComputedStyle(element).color")


def change_settings(page):
    """Settings reach the request, and the composer names those that were changed."""
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Max tokens").fill("2")
    page.get_by_label("System prompt").fill("Be short.")
    found = accessibility_faults(page)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#settings-summary")).to_have_text("system prompt · max 2 tokens")
    page.get_by_role("button", name="New conversation").click()
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.url.endswith("completions") else None)
    ask(page, "What is 12 + 30?")
    expect(page.locator(".statistics").last).to_contain_text("2 tokens")
    assert sent[0]["max_tokens"] == 2 and sent[0]["messages"][0] == {"role": "system", "content": "Be short."}, sent
    return found


def accessibility_faults(page):
    """Serious and critical findings of axe."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] in ("serious", "critical")]


def start_from_prompt(page):
    """An empty conversation offers prompts; one that is chosen goes into the composer. Nothing is sent yet."""
    expect(page.get_by_role("heading", name="Chat with demo")).to_be_visible()
    prompts = page.get_by_role("list", name="Prompts to try").get_by_role("button")
    expect(prompts).to_have_count(4)
    found = accessibility_faults(page)
    prompts.filter(has_text="What is 12 + 30?").click()
    expect(page.get_by_label("Your message")).to_have_value("What is 12 + 30?")
    expect(page.get_by_label("Your message")).to_be_focused()
    expect(page.locator("article")).to_have_count(0)
    return found


def attach_files(page, folder):
    """Text files go to the model behind the message; others are refused."""
    page.get_by_role("button", name="New conversation").click()
    notes, binary = folder / "notes.txt", folder / "data.bin"
    notes.write_text("The key is under the mat.")
    binary.write_bytes(b"\xff\x00\x01")
    page.locator("#attach-file").set_input_files([notes, binary])
    expect(page.get_by_role("status")).to_have_text("data.bin is not a text file")
    expect(page.locator("#files li")).to_have_count(1)
    with page.expect_request("**/completions") as sent:
        ask(page, "What is 12 + 30?")
    content = "What is 12 + 30?\n\n--- File: notes.txt ---\nThe key is under the mat."
    assert sent.value.post_data_json["messages"][-1]["content"] == content, sent.value.post_data
    wait_for_response(page)
    expect(page.locator("#files li")).to_have_count(0)
    page.reload()
    page.locator(".file summary").click()
    expect(page.locator(".file pre")).to_have_text("The key is under the mat.")
    return accessibility_faults(page)


def use_keyboard_only(page):
    """The skip link leads to the composer; from there Tab reaches every tool, and Enter and Escape do the rest."""
    page.get_by_role("button", name="New conversation").click()
    page.locator("body").evaluate("document.activeElement.blur()")
    page.reload()
    expect(page.get_by_label("Your message")).to_be_focused()
    for name in ("Attach text files", "Settings", "Send"):
        page.keyboard.press("Tab")
        focused = page.get_by_role("button", name=name)
        expect(focused).to_be_focused()
        assert focused.evaluate("(element) => getComputedStyle(element).outlineStyle") == "solid", name
    page.locator(".skip").focus()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.type("What is 5 + 6?")
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Backspace")
    page.keyboard.press("Control+Enter")
    wait_for_response(page)
    expect(last_text(page)).to_contain_text("11")
    page.get_by_role("button", name="Settings").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    page.keyboard.press("Control+Shift+O")
    expect(page.locator("article")).to_have_count(0)


def use_narrow_screen(page):
    """At 360 px nothing is wider than the screen, and the sidebar is a drawer that Escape closes."""
    size = page.viewport_size
    page.set_viewport_size({"width": 360, "height": 640})
    page.reload()
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport(ratio=1)
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("button", name="Sidebar", exact=True).click()
    expect(page.get_by_role("button", name="Export")).to_be_in_viewport(ratio=1)
    found = accessibility_faults(page)
    page.keyboard.press("Escape")
    expect(page.locator("#sidebar")).to_be_hidden()
    expect(page.get_by_role("button", name="Sidebar", exact=True)).to_be_focused()
    page.get_by_role("button", name="Sidebar", exact=True).click()
    page.get_by_role("button", name="How long is a diagonal?", exact=True).click()
    expect(last_text(page).locator("msqrt")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360, "the page is too wide"
    assert page.locator("#messages").evaluate("(element) => element.scrollWidth <= element.clientWidth")
    found += accessibility_faults(page)
    page.set_viewport_size(size)
    return found


def check_line_length(page):
    """A full line of text has about 72 characters."""
    lengths = page.evaluate("""() => {
        const text = document.createElement('p');
        text.textContent = 'The quick brown fox jumps over the lazy dog and goes home. '.repeat(40);
        document.querySelector('.assistant .text').append(text);
        const lines = text.getClientRects()[0].height / parseFloat(getComputedStyle(text).lineHeight);
        return text.textContent.length / Math.round(lines);
    }""")
    assert 60 < lengths < 82, f"{lengths} characters a line"


def choose_model(page, url):
    """The menu lists the models; the choice survives a reload and reaches the request."""
    page.goto(url)
    expect(page.locator("#models option")).to_have_text(["demo", "other"])
    expect(page.locator("#model")).to_be_hidden()
    found = accessibility_faults(page)
    page.locator("#models").select_option("other")
    page.reload()
    expect(page.locator("#models")).to_have_value("other")
    with page.expect_request("**/completions") as sent:
        ask(page, "What is 12 + 30?")
    assert sent.value.post_data_json["model"] == "other"
    return found


def switch_thinking(page):
    """The composer offers thinking only for a model that can think, and sends what is chosen."""
    expect(page.get_by_label("Thinking")).to_be_hidden()
    page.route("**/api/show", lambda route: route.fulfill(json={"capabilities": ["completion", "thinking"]}))
    page.reload()
    page.get_by_label("Thinking").select_option("Thinking: off")
    page.get_by_role("button", name="New conversation").click()
    with page.expect_request("**/completions") as sent:
        ask(page, "What is 12 + 30?")
    assert sent.value.post_data_json["think"] is False, sent.value.post_data


def main(url, folder, two_models):
    folder.mkdir(exist_ok=True)
    # The machine may be busy with other tests.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1100, "height": 760}, color_scheme="light",
                                      permissions=["clipboard-read", "clipboard-write"])
        page = context.new_page()
        problems, foreign = [], []
        page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith((url, "blob:")) else foreign.append(request.url))
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(url)
        expect(page.locator("#model")).to_have_text("demo")
        found = start_from_prompt(page)
        chat_and_branch(page)
        stop_reload_continue(page)
        export_and_import(page, folder)
        check_rendering(page)
        check_syntax(page)
        check_line_length(page)
        found += accessibility_faults(page)
        page.screenshot(path=folder / "light.png")
        page.get_by_role("button", name="Theme").click()
        page.get_by_role("button", name="Theme").click()
        found += accessibility_faults(page)
        page.screenshot(path=folder / "dark.png")
        found += use_narrow_screen(page)
        use_keyboard_only(page)
        found += attach_files(page, folder)
        found += change_settings(page)
        for metric in ("running", "cache", "first-token", "speed"):
            expect(page.locator(f'[data-metric="{metric}"]')).not_to_have_text("–", timeout=5_000)
        assert not found, f"axe finds {found}"
        assert not problems, problems
        assert not foreign, foreign
        page = context.new_page()
        found = choose_model(page, two_models)
        switch_thinking(page)
        assert not found, f"axe finds {found}"
        browser.close()
    print("the page works")


main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
