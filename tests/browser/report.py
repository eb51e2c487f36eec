"""Loads a report in Chromium, wide and narrow, light and dark, and on paper, and looks for what a reader would complain about."""

import argparse
import base64
import pathlib
import sys

from devtools import Chromium

CHARTS = [
    "Risk before and after", "Class sizes before and after", "Risk and loss of numbers for each k",
    "Risk and loss of categories for each k", "Loss of each column",
]
# A4 between the margins that Chromium leaves, in px.
PAPER = 718


def complaints(browser):
    """What the browser said while the page loaded."""
    for event in browser.events:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            yield "an exception: " + parameters["exceptionDetails"]["text"]
        elif method == "Runtime.consoleAPICalled":
            yield "on the console: " + str(parameters["args"])
        elif method == "Log.entryAdded":
            yield "in the log: " + parameters["entry"]["text"]
        elif method == "Page.javascriptDialogOpening":
            yield "a dialog: " + parameters["message"]


def requests(browser):
    events = [event for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
    return [event["params"]["request"]["url"] for event in events]


def look(browser, url, width, scheme, pictures, media=""):
    browser.events.clear()
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    browser.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Page.navigate", url=url)
    browser.wait_for("Page.loadEventFired")
    if pictures:
        height = browser.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        (pictures / f"{media or width}-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))
        if media == "print":
            printed = browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
            (pictures / "print.pdf").write_bytes(base64.b64decode(printed["data"]))
    shown = browser.evaluate(pathlib.Path(__file__).with_name("shown.js").read_text())
    found = browser.evaluate(pathlib.Path(__file__).with_name("layout.js").read_text())
    faults = list(complaints(browser)) + found["faults"]
    faults += [f"asks for {other}" for other in requests(browser) if other != url and not other.startswith("data:")]
    if found["charts"] != CHARTS:
        faults.append(f"shows the charts {found['charts']}")
    if found["scripts"]:
        faults.append(f"has {found['scripts']} scripts")
    layout = "narrow" if width < 500 else "wide"
    if shown["layouts"] != [layout]:
        faults.append(f"shows {shown['layouts']} charts and not {layout} ones")
    # What is behind a click is on paper without one.
    if shown["closed"] == 0 or shown["readable"] != (shown["closed"] if media == "print" else 0):
        faults.append(f"shows {shown['readable']} of {shown['closed']} tables that are closed")
    if media == "print" and shown["breakable"]:
        faults.append(f"lets a page end within {shown['breakable']} charts")
    if found["texts"] < 100:
        faults.append(f"has only {found['texts']} pieces of text")
    print(f"{media or width}, {scheme}: {found['texts']} texts, {len(found['charts'])} charts, lowest contrast {found['lowest']:.1f}")
    return found["ground"], [f"{media or width}, {scheme}: {fault}" for fault in faults]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--pictures", type=pathlib.Path, help="a folder for pictures of what was seen")
    arguments = parser.parse_args()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    faults, grounds = [], {}
    url = arguments.report.resolve().as_uri()
    with Chromium(arguments.chromium) as browser:
        for width in [1280, 390]:
            for scheme in ["light", "dark"]:
                grounds[scheme], found = look(browser, url, width, scheme, arguments.pictures)
                faults += found
        _, found = look(browser, url, PAPER, "light", arguments.pictures, "print")
        faults += found
    if grounds["light"] == grounds["dark"]:
        faults.append("light and dark look alike")
    for fault in faults:
        print("FAULT " + fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
