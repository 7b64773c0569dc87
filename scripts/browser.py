"""Tests of `onbeat why --html` in a Chromium: what a person does with mouse and keys, and what a page must not do.

usage: browser.py [--keep DIRECTORY]     keep the pages and pictures of them
Needs target/release/onbeat. `./dev browser-env` installs the browser.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRACE = os.path.join(ROOT, "demos/recorded/parking")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDTHS = (1400, 800)
SCHEMES = ("light", "dark")
# The left end of the time axis, the heights of the latency chart and of its axis, as in charts.js.
LATENCY_HEIGHT, AXIS, TOP, RIGHT = 210, 24, 14, 14

TESTS = []


def test(function):
    """Marks a test. It gets the pages."""
    TESTS.append(function)
    return function


def check(condition, *what):
    """Fails the test with what was found instead."""
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


class Pages:
    """The pages in a folder, and the browser that opens them."""

    def __init__(self, browser, folder):
        self.browser = browser
        self.folder = folder

    @contextmanager
    def open(self, name, fragment="", width=1400, scheme="light", scripts=True):
        """Opens a page without a network. Fails if it asks for anything or reports an error."""
        context = self.browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme,
                                           java_script_enabled=scripts)
        context.set_offline(True)
        page = context.new_page()
        url = f"file://{self.folder}/{name}.html"
        asked, said = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url + fragment)
        yield page
        check({one.split("#")[0] for one in asked} == {url}, "the page asked for", asked)
        check(not said, "the console says", said)
        context.close()

    def picture(self, page, name):
        """Keeps a picture of a page."""
        page.screenshot(path=os.path.join(self.folder, f"{name}.png"), full_page=True)


def data_of(page):
    """The data of a page."""
    return json.loads(page.evaluate("document.getElementById('data').textContent"))


def executions(data):
    """Start, latency and stretches (kind, place, text, culprit, culprit's state, ns) of each execution."""
    found, numbers, at = [], data["executions"], 0
    name = data["names"]
    for start, latency, count in zip(numbers[::3], numbers[1::3], numbers[2::3]):
        stretches = []
        for cause, ns in zip(data["stretches"][at:at + 2 * count:2], data["stretches"][at + 1:at + 2 * count:2]):
            kind, place, text, by, _, during, _ = data["causes"][cause]
            texts = [name[n] for n in (text, by, during) if n >= 0]
            stretches.append((data["kinds"][kind]["key"], name[data["places"][place]], texts, ns))
        at += 2 * count
        found.append((start, latency, stretches))
    return found


def title(page):
    """The title of the open execution, without the time of day."""
    return page.inner_text("#detail-title")


def window(page):
    """The shown part of time, s."""
    return tuple(float(page.input_value(f"#{end}")) for end in ("from", "to"))


def shown(page):
    """The numbers of shown and of late executions."""
    found = re.match(r"(\d+) of \d+ executions are shown, (\d+) of them late", page.inner_text("#status"))
    check(found, page.inner_text("#status"))
    return int(found[1]), int(found[2])


def second(start):
    """How the page writes a start."""
    return f" at {start / 1e9:.3f} s ("


def place_of(page, data, start, latency):
    """Where the latency chart shows an execution, from the canvas's corner."""
    box = page.locator("#latency").bounding_box()
    left = max(90, min(300, round((box["width"] - 2) * 0.2)))
    low, high = window(page)
    x = left + (start / 1e9 - low) / (high - low) * (box["width"] - 2 - RIGHT - left) + 1
    y = LATENCY_HEIGHT - AXIS - latency / (data["longest_ns"] * 1.06) * (LATENCY_HEIGHT - AXIS - TOP) + 1
    return {"x": x, "y": y}


@test
def the_page_opens_with_the_longest_execution_and_its_stretches(pages):
    with pages.open("parking") as page:
        found = max(executions(data_of(page)), key=lambda e: e[1])
        check(second(found[0]) in title(page), title(page))
        check(", late" in title(page), title(page))
        page.check("#each")
        rows = page.locator("#stretches tr.cause").count()
        check(rows == len(found[2]), rows, "rows for", len(found[2]), "stretches")
        check(page.locator("#latency").get_attribute("tabindex") == "0", "the chart takes no keys")


@test
def keys_move_open_zoom_and_pan(pages):
    with pages.open("parking") as page:
        all_ = executions(data_of(page))
        limit = data_of(page)["limit_ns"]
        late = [e for e in all_ if e[1] > limit]
        everything = window(page)
        for chart in ("#latency", "#flow"):
            page.focus(chart)
            page.keyboard.press("Home")
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowRight")
            page.keyboard.press("Enter")
            check(second(all_[2][0]) in title(page), title(page))
            page.focus(chart)
            page.keyboard.press("End")
            page.keyboard.press("ArrowUp")
            page.keyboard.press("Enter")
            check(second(late[-1][0]) in title(page), title(page))
            page.focus(chart)
            page.keyboard.press("+")
            zoomed = window(page)
            check(zoomed[1] - zoomed[0] < 0.7 * (everything[1] - everything[0]), zoomed)
            page.keyboard.press("Shift+ArrowRight")
            check(window(page)[0] > zoomed[0], window(page))
            page.keyboard.press("Shift+ArrowLeft")
            check(abs(window(page)[0] - zoomed[0]) < 1e-3, window(page), zoomed)
            page.keyboard.press("-")
            page.keyboard.press("0")
            check(window(page) == everything, window(page))
            page.keyboard.press("Escape")
            check(page.locator("#detail").is_hidden(), "Escape closes it")


@test
def the_wheel_zooms_around_the_pointer_and_dragging_pans(pages):
    with pages.open("parking") as page:
        before_flow = page.locator("#flow").screenshot()
        for chart in ("#latency", "#flow"):
            box = page.locator(chart).bounding_box()
            x, y = box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2
            page.mouse.move(x, y)
            low, high = window(page)
            for _ in range(4):
                page.mouse.wheel(0, -240)
            page.wait_for_function("value => document.getElementById('to').value < value", arg=high)
            zoomed = window(page)
            check(zoomed[0] > low and zoomed[1] < high, zoomed)
            page.mouse.down()
            page.mouse.move(x - 100, y, steps=4)
            page.mouse.up()
            moved = window(page)
            check(moved[0] > zoomed[0], moved, zoomed)
            check(abs((moved[1] - moved[0]) - (zoomed[1] - zoomed[0])) < 1e-4, "panning changed the size", moved, zoomed)
            page.mouse.dblclick(x, y)
            check(window(page) == (low, high), window(page))
        page.mouse.wheel(0, -240)
        page.wait_for_timeout(100)
        check(before_flow != page.locator("#flow").screenshot(), "the flow looks the same")


@test
def a_click_opens_an_execution_in_both_charts(pages):
    for width in WIDTHS:
        with pages.open("parking", width=width) as page:
            data = data_of(page)
            chosen = sorted(executions(data), key=lambda e: -e[1])[2]
            page.locator("#latency").click(position=place_of(page, data, *chosen[:2]))
            check(second(chosen[0]) in title(page), title(page))
            check(page.url.endswith(f"#t={chosen[0] // 10**9}.{chosen[0] % 10**9:09}"), page.url)
            page.click("#worse")
            check(second(chosen[0]) not in title(page), title(page))
        fragment = f"#t={chosen[0] / 1e9:.9f}"
        with pages.open("parking", fragment, width=width) as page:
            page.click("#close")
            check(page.locator("#detail").is_hidden(), "it is not closed")
            # The middle of the first callback's share.
            share = sum(s[3] for s in chosen[2] if s[1] == chosen[2][0][1])
            where = place_of(page, data, chosen[0] + share / 2, 0)["x"]
            page.locator("#flow").click(position={"x": where, "y": 30})
            check(second(chosen[0]) in title(page), title(page))
            page.click("#after")
            check(second(chosen[0]) not in title(page), title(page))
            page.click("#before")
            check(second(chosen[0]) in title(page), title(page))


@test
def a_fragment_opens_its_execution_and_wrong_ones_do_nothing(pages):
    with pages.open("parking") as page:
        chosen = executions(data_of(page))[17]
        worst = title(page)
    for fragment in (f"#t={chosen[0] / 1e9:.9f}", f"#t={(chosen[0] + 1000) / 1e9:.6f}s"):
        with pages.open("parking", fragment) as page:
            check(second(chosen[0]) in title(page), fragment, title(page))
            low, high = window(page)
            check(low < chosen[0] / 1e9 < high < low + 1, low, high)
    for fragment in ("#t=", "#t=-1", "#t=1e99", "#t=<img src=x>", "#x=1", "#t=1.2.3"):
        with pages.open("parking", fragment) as page:
            check(title(page) == worst, fragment, title(page))
            page.evaluate(f"location.hash = '#t={chosen[0] / 1e9:.9f}'")
            page.wait_for_function("title => document.getElementById('detail-title').textContent !== title", arg=worst)
            check(second(chosen[0]) in title(page), title(page))


@test
def filters_show_the_executions_that_the_data_has(pages):
    with pages.open("parking") as page:
        data = data_of(page)
        all_ = executions(data)

        def expected(kind=None, text="", least_ns=0.0, only_late=False):
            found = []
            for _, latency, stretches in all_:
                ns = sum(s[3] for s in stretches
                         if kind in (None, s[0]) and any(text in t.lower() for t in s[2]))
                late = latency > data["limit_ns"]
                if ns > 0 and ns >= least_ns and (late or not only_late):
                    found.append(late)
            return len(found), sum(found)
        check(shown(page) == expected(), shown(page))
        page.click("button[data-kind=preempted]")
        check(shown(page) == expected("preempted"), shown(page), expected("preempted"))
        page.fill("#least", "4.5")
        want = expected("preempted", least_ns=4.5e6)
        check(0 < want[0] < len(all_) and shown(page) == want, shown(page), want)
        page.fill("#text", "Unknown THREAD")
        want = expected("preempted", "unknown thread", 4.5e6)
        check(shown(page) == want, shown(page), want)
        page.check("#only-late")
        check(shown(page) == expected("preempted", "unknown thread", 4.5e6, True), shown(page))
        page.fill("#text", "nobody is called this")
        check(shown(page) == (0, 0), shown(page))
        page.click("#show-all")
        check(shown(page) == expected(), shown(page))
        page.fill("#from", "10")
        page.fill("#to", "12")
        page.keyboard.press("Tab")
        within = [e for e in all_ if e[0] <= 12e9 and e[0] + e[1] >= 10e9]
        check(shown(page)[0] == len(within), shown(page), len(within))


@test
def ten_thousand_executions_open_and_move(pages):
    for scheme in SCHEMES:
        begin = time.monotonic()
        with pages.open("many", scheme=scheme) as page:
            page.wait_for_function("document.documentElement.dataset.ready")
            opened = time.monotonic() - begin
            check(shown(page)[0] == 10_000, shown(page))
            box = page.locator("#flow").bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
            # Times of frames in which the charts are drawn anew, from all executions down to single ones.
            frames = page.evaluate("""async () => {
              const canvas = document.getElementById('flow'), times = [];
              const box = canvas.getBoundingClientRect();
              for (let i = 0; i < 60; i++) {
                canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: i < 40 ? -60 : 0, deltaX: i < 40 ? 0 : 60,
                  clientX: box.left + box.width / 2, clientY: box.top + 40, cancelable: true }));
                times.push(await new Promise((done) => requestAnimationFrame(() => {
                  const begin = performance.now();
                  setTimeout(() => done(performance.now() - begin));
                })));
              }
              return times;
            }""")
            check(shown(page)[0] < 1000, shown(page))
            print(f"     10,000 executions, {scheme}: open in {opened:.2f} s; a frame takes "
                  f"{statistics.median(frames):.1f} ms in the median, {max(frames):.1f} ms at most")


@test
def hostile_names_stay_text(pages):
    for width in WIDTHS:
        with pages.open("hostile", width=width) as page:
            page.check("#each")
            page.fill("#text", "</script>")
            box = page.locator("#lanes").bounding_box()
            page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 70)
            page.wait_for_timeout(50)
            check("broken" not in page.title().replace("'broken'", ""), page.title())
            check(page.locator("script").count() == 2, "scripts", page.locator("script").count())
            check(page.locator("img, iframe, object, svg").count() == 0, "an element from a name")
            text = page.inner_text("body")
            check("<img src=x" in text and "\\u{202e}" in text, "the names are not shown")
            check(not set(text) & set("\u202e\u001b\u2028\u0000"), "a control character is shown")
            pages.picture(page, f"hostile-{width}")


@test
def the_policy_stops_scripts_that_are_not_the_page_s(pages):
    context = pages.browser.new_context()
    page = context.new_page()
    page.goto(f"file://{pages.folder}/parking.html")
    broken = page.evaluate("""async () => {
      const violations = [];
      document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));
      const script = document.createElement('script');
      script.textContent = 'window.broken = true';
      document.body.append(script);
      const image = document.createElement('img');
      image.src = 'http://127.0.0.1:9/x.png';
      document.body.append(image);
      document.body.insertAdjacentHTML('beforeend', '<p style="color:red" onclick="window.broken = true">x</p>');
      document.body.lastElementChild.click();
      await fetch('http://127.0.0.1:9/').catch(() => {});
      await new Promise((done) => setTimeout(done, 200));
      return [window.broken === true, violations.sort()];
    }""")
    context.close()
    check(broken[0] is False, "a foreign script ran")
    for directive in ("connect-src", "img-src", "script-src-attr", "script-src-elem", "style-src-attr"):
        check(directive in broken[1], directive, broken[1])


@test
def the_page_has_tables_without_scripts(pages):
    for width in WIDTHS:
        with pages.open("parking", width=width, scripts=False) as page:
            check(page.locator("#app").is_hidden(), "the charts are shown")
            check(page.locator("#tables table").count() == 5, page.locator("#tables table").count())
            check(page.locator("#tables table").first.is_visible(), "no table is shown")
            check("longer than that of the other" in page.inner_text(".sentence"), "no sentence")
            pages.picture(page, f"no-scripts-{width}")
    with pages.open("parking") as page:
        check(not page.locator("#tables table").first.is_visible(), "the tables take room beside the charts")


@test
def both_colour_schemes_and_widths_fit(pages):
    for scheme in SCHEMES:
        for width in WIDTHS:
            for name in ("parking", "many", "hostile"):
                with pages.open(name, width=width, scheme=scheme) as page:
                    page.wait_for_timeout(100)
                    check(page.evaluate("document.documentElement.scrollWidth") <= width, name, "is wider than", width)
                    pages.picture(page, f"{name}-{scheme}-{width}")
    with pages.open("parking") as page:
        corner = """(() => {
          const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
          copy.drawImage(document.getElementById('flow'), 0, 0);
          return copy.getImageData(3, 3, 1, 1).data[0];
        })()"""
        check(page.evaluate(corner) > 200, "not light")
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(200)
        check(page.evaluate(corner) < 60, "the charts keep the light colours")


def make(folder):
    """Writes the pages."""
    onbeat = os.path.join(ROOT, "target/release/onbeat")
    onbeat = os.environ.get("ONBEAT", onbeat)
    subprocess.run([onbeat, "why", TRACE, "--html", os.path.join(folder, "parking.html")], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["cargo", "run", "--release", "--locked", "--quiet", "-p", "onbeat-why", "--example", "pages", "--",
                    folder], cwd=ROOT, check=True)


def environment():
    """Runs this again with a Python that can drive a browser, unless it is one."""
    try:
        import playwright.sync_api  # noqa: F401
        return
    except ImportError:
        pass
    found = subprocess.run([os.path.join(ROOT, "dev"), "browser-env"], stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode != 0:
        print("SKIPPED  pages in a browser: Chromium or playwright cannot be installed")
        print("0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    python = os.path.join(found.stdout.strip(), "bin/python")
    os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])


def main():
    """Runs the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="DIRECTORY")
    parser.add_argument("words", nargs="*", help="parts of tests' names")
    args = parser.parse_args()
    environment()
    from playwright.sync_api import sync_playwright
    failed, passed = 0, 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        if args.keep:
            os.makedirs(args.keep, exist_ok=True)
            folder = os.path.abspath(args.keep)
        make(folder)
        program = next(filter(None, map(shutil.which, BROWSERS)))
        # Chromium's sandbox refuses root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=program, args=options)
        print(f"     Chromium {browser.version}")
        for function in TESTS:
            if args.words and not any(word in function.__name__ for word in args.words):
                continue
            try:
                function(Pages(browser, folder))
                passed += 1
                print(f"ok       {function.__name__}", flush=True)
            except Exception:  # noqa: BLE001: whatever went wrong, the other tests run
                failed += 1
                print(f"FAILED   {function.__name__}", flush=True)
                traceback.print_exc(file=sys.stdout)
        browser.close()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
