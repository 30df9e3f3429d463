"""resync's simulator, a server whose resources change all the time, and a mirror of what it serves."""
import atexit
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

from publishing import URL, WORK, path, remove, serve

COMMAND = os.path.join(os.path.dirname(sys.executable), "resync-simulator")
PREFIX = "s"
SOURCE = f"""
source: {{number_of_resources: 5, average_payload: 100, change_delay: 0.05, event_types: [create],
  max_events: -1, stats_interval: 1000}}
resource_list_builder: {{class: DynamicResourceListBuilder, uri_path: resourcelist.xml}}
"""
CHANGES = "changememory: {class: DynamicChangeList, uri_path: changelist.xml, max_changes: 1000}\n"
simulator = None


def start(config):
    """Starts the simulator where nothing listens yet, and anew if it runs."""
    global simulator
    stop()
    files = {"config.yaml": config, "logging.yaml": "version: 1\n"}
    for name, text in files.items():
        with open(os.path.join(WORK, name), "w") as file:
            file.write(text)
    arguments = ["--port", "0", "--base-uri", URL + PREFIX]
    arguments += ["--config-file", "config.yaml", "--log-config", "logging.yaml"]
    simulator = subprocess.Popen(
        [sys.executable, COMMAND, *arguments], cwd=WORK, stdout=sys.stderr,
    )


def stop():
    if simulator:
        simulator.kill()
        simulator.wait()


def port():
    """The one that it listens on, which it tells nobody but the kernel."""
    process = f"/proc/{simulator.pid}"
    links = [os.readlink(f"{process}/fd/{fd}") for fd in os.listdir(f"{process}/fd")]
    with open(f"{process}/net/tcp") as table:
        for line in table.readlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in links:
                return int(local.split(":")[1], 16)
    return None


def fetch(name):
    """Asks until it is answered: the simulator may be starting, or have no change to list yet."""
    deadline = time.monotonic() + 30
    while True:
        try:
            listening = port()
            if listening:
                with urllib.request.urlopen(f"http://127.0.0.1:{listening}/{name}", timeout=30) as answer:
                    return answer.read()
        except (urllib.error.URLError, FileNotFoundError):
            pass
        assert simulator.poll() is None and time.monotonic() < deadline, name
        time.sleep(0.05)  # until the deadline


def mirror(*names):
    for name in names:
        content = fetch(name)
        with open(path(f"{PREFIX}/{name}"), "wb") as file:
            file.write(content)


LISTS = ["resourcelist.xml", "changelist.xml"]
LINKS = ["capabilitylist.xml", ".well-known/resourcesync"]


def first():
    start(SOURCE + CHANGES)
    mirror(*LISTS, *LINKS)


def without_changes():
    start(SOURCE)
    mirror("resourcelist.xml", *LINKS)
    remove(f"{PREFIX}/changelist.xml")


def server_down():
    """What the mirror does not get it leaves alone."""
    stop()


atexit.register(stop)
serve({
    "01-first": first,
    "02-mirrored-again": lambda: mirror(*LISTS, *LINKS),
    "03-links-first": lambda: mirror(*reversed(LINKS), *LISTS),
    "04-only-links": lambda: mirror(*LINKS),
    "05-without-change-list": without_changes,
    "06-server-down": server_down,
    "07-back-with-a-change-list": first,
})
