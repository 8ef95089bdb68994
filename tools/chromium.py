"""Headless Chromium, driven over its DevTools protocol through a pipe: pages opened, looked at, clicked, photographed.

    with Chromium() as browser:
        with browser.page("page.html", width=360, dark=True) as page:
            page.wait_for("document.title !== ''")
            page.screenshot("page.png")
            assert not page.complaints and not page.left_the_machine()

Nothing but this machine is reachable from it. Needs Debian's package chromium (tools/packages, group watch).
"""

import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse

# Longer than this no answer takes, with other work on the machine.
PATIENCE = 60


def found():
    """The program's path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def _pipe():
    low = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return ends


class Chromium:
    """The browser; ends with its block."""

    def __init__(self):
        program = found()
        if program is None:
            raise SystemExit("chromium is not installed")
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        # The protocol's pipes are descriptors 3 and 4 of the browser, so here they are others.
        to_browser, self._writes = _pipe()
        self._reads, from_browser = _pipe()
        pipes = f'exec "$@" 3<&{to_browser} 4>&{from_browser} {to_browser}<&- {from_browser}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", pipes, "bash", program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--disable-extensions", "--hide-scrollbars", f"--user-data-dir={self._profile}",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser), start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._unread = b""
        self._last = 0
        self._pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._writes)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._reads)
        shutil.rmtree(self._profile, ignore_errors=True)

    def page(self, address, width=1280, height=900, dark=False, touch=False):
        """A page that is loaded. `address` is a URL or a file; width and height are in CSS pixels."""
        if "://" not in str(address):
            address = pathlib.Path(address).resolve().as_uri()
        return Page(self, str(address), width, height, dark, touch)

    def call(self, method, parameters=None, session=None):
        """The result of a command of the protocol."""
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        unsent = json.dumps(message).encode() + b"\0"
        while unsent:
            unsent = unsent[os.write(self._writes, unsent):]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def listen(self, seconds):
        """Hears of events for so long."""
        deadline = time.monotonic() + seconds
        while b"\0" in self._unread or select.select([self._reads], [], [], max(0, deadline - time.monotonic()))[0]:
            self._next(deadline + PATIENCE, "an event")

    def _next(self, deadline, what):
        while b"\0" not in self._unread:
            if not select.select([self._reads], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium gave no answer to {what} within {PATIENCE} s")
            read = os.read(self._reads, 1 << 20)
            if not read:
                raise RuntimeError("Chromium ended")
            self._unread += read
        text, self._unread = self._unread.split(b"\0", 1)
        message = json.loads(text)
        page = self._pages.get(message.get("sessionId"))
        if page is not None and "method" in message:
            page.hear(message["method"], message["params"])
        return message


class Page:
    """A loaded page. `requests` are the URLs it asked for, `complaints` what its console and scripts complained of."""

    def __init__(self, browser, address, width, height, dark, touch):
        self._browser = browser
        self.requests = []
        self.complaints = []
        self._loaded = False
        self._address = address
        self._target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = browser.call("Target.attachToTarget", {"targetId": self._target, "flatten": True})["sessionId"]
        browser._pages[self._session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self._call("Emulation.setEmulatedMedia",
                   features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.reload(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._browser.call("Target.closeTarget", {"targetId": self._target})
        del self._browser._pages[self._session]

    def _call(self, method, **parameters):
        return self._browser.call(method, parameters, self._session)

    def hear(self, method, parameters):
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(value.get("value", "")) for value in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))

    def reload(self, address=None):
        """Loads the page, or another one in its place, and waits until it is there."""
        self._loaded = False
        answer = self._call("Page.navigate", url=address or self._address)
        if answer.get("errorText"):
            raise RuntimeError(f"{address}: {answer['errorText']}")
        deadline = time.monotonic() + PATIENCE
        while not self._loaded:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address} was not loaded within {PATIENCE} s")
            self._browser.listen(0.02)

    def evaluate(self, script):
        """The value of an expression of JavaScript; promises are awaited."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait_for(self, script, seconds=PATIENCE):
        """Waits until the expression is true, and gives its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true within {seconds} s: {script}")
            self._browser.listen(0.05)
        return value

    def click(self, selector):
        """Clicks at the middle of the first element that the selector finds, as a person would."""
        place = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
                              " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
                              " return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        if place is None:
            raise LookupError(f"no element is {selector}")
        self.move(*place)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def move(self, x, y):
        """Moves the mouse to a place in the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text):
        """Types into what has the focus."""
        self._call("Input.insertText", text=text)

    def press(self, key):
        """Presses a key by its name: Enter, Escape, Tab."""
        text = {"Enter": "\r"}.get(key)
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key}
            if text and kind == "keyDown":
                event["text"] = text
            self._call("Input.dispatchKeyEvent", **event)

    def screenshot(self, path, whole=False):
        """Writes a PNG of the window, or of the whole page."""
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
                    "captureBeyondViewport": True}
        else:
            clip = {}
        answer = self._call("Page.captureScreenshot", format="png", **clip)
        pathlib.Path(path).write_bytes(base64.b64decode(answer["data"]))

    def left_the_machine(self):
        """The requests that went to anything but files, this machine and the page itself."""
        def is_here(url):
            parts = urllib.parse.urlsplit(url)
            return parts.scheme in ("file", "data", "blob", "about", "chrome-error") or parts.hostname in ("127.0.0.1", "localhost", "::1")
        return [url for url in self.requests if not is_here(url)]

    def scrolls_sideways(self):
        """Whether the page is wider than its window."""
        return self.evaluate("document.documentElement.scrollWidth > window.innerWidth")
