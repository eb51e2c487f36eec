"""A headless Chromium, spoken to over its DevTools pipe: nothing but the standard library."""

import json
import os
import select
import subprocess
import tempfile

# Seconds without a word from the browser, after which it will not say any more.
PATIENCE = 60

# No sandbox, since the tests may run as root; nothing that would use the network by itself.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
]


class Chromium:
    """One browser with one page."""

    def __init__(self, program):
        # Its helpers may still write when the browser has ended.
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def wire():
            # The browser reads from 3 and writes to 4. First out of the way, in case they are in use.
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, "--user-data-dir=" + self._folder.name, "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._left = b""
        self._number = 0
        self.events = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = None
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def call(self, method, **parameters):
        """Sends a command and waits for its answer; what happens meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def wait_for(self, method):
        """Waits for an event."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "the check failed"))
        return answer["result"].get("value")

    def _next(self):
        while b"\0" not in self._left:
            if not select.select([self._read], [], [], PATIENCE)[0]:
                self._process.kill()
                raise RuntimeError(f"the browser said nothing for {PATIENCE} seconds")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("the browser went away")
            self._left += part
        message, self._left = self._left.split(b"\0", 1)
        return json.loads(message)
