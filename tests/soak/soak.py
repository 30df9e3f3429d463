"""Publishes for a while with a generator that rotates its Change Lists, kills the hub and the daemon at random, and
compares what was listed with what was told.

soak.py SECONDS [--rsnotify PATH] [--seed NUMBER] [--rotate SECONDS] [--keep DIRECTORY]

It needs the reference library: `target/python/bin/python tests/soak/soak.py 3600`. Two sets are published: the lists of
one are named by an index and truncated when they are written, those of the other are named by the Capability List and
replaced by renaming. Each change has a number of its own, which is its length. The exit is 1 if a change was lost, told
in two notifications or out of order, or if an interval does not begin where the last one ended. A notification that came
again byte for byte is no repetition: its hub or the daemon was killed before the answer was saved.
"""

import argparse
import atexit
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timezone

URL = "https://source.example/"
SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
RS = "{http://www.openarchives.org/rs/terms/}"
CLOSED_LISTS = 12


def serve_hub(port, record):
    """Accepts everything, and has written it down before it answers."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Lock

    lock = Lock()

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            topic = self.headers["Link"].partition(">")[0].lstrip("<")
            line = json.dumps({"topic": topic, "body": body.decode()}) + "\n"
            with lock:
                record.write(line)
                record.flush()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Hub).serve_forever()


class Set:
    """A set of resources whose changes are listed by resync."""

    numbers = 0

    def __init__(self, root, name, is_indexed):
        self.root, self.name, self.is_indexed = root, name, is_indexed
        self.listed, self.closed, self.lists = [], [], 0
        self.begin()

    def begin(self):
        from resync import ChangeList

        self.lists += 1
        self.open = f"changelist-{self.lists}.xml"
        self.changes = ChangeList()
        self.changes.up = f"{URL}{self.name}/capabilitylist.xml"
        self.changes.md_from = now()
        if self.is_indexed:
            self.changes.index = f"{URL}{self.name}/changelist.xml"

    def change(self, count):
        from resync import Resource

        for _ in range(count):
            Set.numbers += 1
            uri = f"{URL}{self.name}/files/{random.randrange(1_000)}.txt"
            kind = random.choice(("created", "updated", "deleted"))
            change = Resource(uri, change=kind, datetime=now(), length=Set.numbers)
            self.changes.add(change)
            self.listed.append(Set.numbers)

    def write(self, name, document):
        path = os.path.join(self.root, self.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if self.is_indexed:
            document.write(path)
        else:
            document.write(path + ".new")
            os.replace(path + ".new", path)

    def publish(self):
        self.write(self.open, self.changes)

    def rotate(self):
        """Closes the list and begins the next; what is long closed goes."""
        self.changes.md_until = now()
        self.publish()
        self.closed.append(self.open)
        gone, self.closed = self.closed[:-CLOSED_LISTS], self.closed[-CLOSED_LISTS:]
        self.begin()
        self.publish()
        self.link()
        for name in gone:
            os.remove(os.path.join(self.root, self.name, name))

    def link(self):
        from resync import CapabilityList, Resource
        from resync.list_base import ListBase

        names = [*self.closed, self.open]
        if self.is_indexed:
            index = ListBase()
            index.sitemapindex = True
            index.capability_name = "changelist"
            index.up = f"{URL}{self.name}/capabilitylist.xml"
            for name in names:
                index.add(Resource(f"{URL}{self.name}/{name}"))
            self.write("changelist.xml", index)
            names = ["changelist.xml"]
        capabilities = CapabilityList()
        capabilities.up = URL + ".well-known/resourcesync"
        for name in names:
            capabilities.add(Resource(f"{URL}{self.name}/{name}", capability="changelist"))
        self.write("capabilitylist.xml", capabilities)


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """A process that is killed now and then, and is back after a while."""

    def __init__(self, command, log):
        self.command, self.log, self.kills = command, log, 0
        self.start()
        # Whatever ends this script ends it too.
        atexit.register(lambda: self.process.kill())

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        self.back_at = None

    def kill(self, back_at):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.back_at = back_at
        self.kills += 1

    def keep_up(self):
        if self.back_at is not None and time.monotonic() >= self.back_at:
            self.start()
        elif self.back_at is None and self.process.poll() is not None:
            raise SystemExit(f"{self.command[0]} has ended by itself: {self.process.returncode}")


def heard(record):
    """The notifications of changes by topic, in the order in which they came."""
    topics = {}
    with open(record) as lines:
        for line in lines:
            if not line.endswith("}\n"):
                continue  # the hub was killed while it wrote
            request = json.loads(line)
            if 'capability="change-notification"' in request["body"]:
                topics.setdefault(request["topic"], []).append(request["body"])
    return topics


class Account:
    """What the notifications of one set have told."""

    def __init__(self, bodies):
        self.told, self.again, self.gaps, self.overlaps, self.outside, self.notifications = [], 0, 0, 0, 0, 0
        last, before = None, None
        for body in bodies:
            if body == before:
                self.again += 1
                continue
            before = body
            root = ElementTree.fromstring(body)
            interval = root.find(RS + "md")
            since, until = (padded(interval.get(name)) for name in ("from", "until"))
            self.notifications += 1
            self.gaps += last is not None and since > last
            self.overlaps += since >= until or (last is not None and since < last)
            last = until
            for entry in root.iter(SITEMAP + "url"):
                md = entry.find(RS + "md")
                self.told.append(int(md.get("length")))
                when = md.get("datetime")
                self.outside += when is not None and not since <= padded(when) <= until

    def compare(self, listed):
        once = set(self.told)
        return {
            "listed": len(listed),
            "told": len(once),
            "lost": len(set(listed) - once),
            "repeated": len(self.told) - len(once),
            "invented": len(once - set(listed)),
            "out of order": sum(one >= next for one, next in zip(self.told, self.told[1:])),
            "gaps": self.gaps,
            "overlaps": self.overlaps,
            "outside their interval": self.outside,
            "notifications": self.notifications,
            "sent again": self.again,
        }


def padded(time):
    """A time with six decimals, so that times compare as texts."""
    whole, _, fraction = time.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<6}"


def is_learned(state, sets):
    try:
        with sqlite3.connect(f"file:{state}/state.sqlite?mode=ro", uri=True) as database:
            return database.execute("SELECT count(*) FROM change_set WHERE learned > 0").fetchone()[0] == sets
    except sqlite3.Error:
        return False


def until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def run(options, work):
    from resync import SourceDescription

    root, state, record = (os.path.join(work, name) for name in ("tree", "state", "hub.jsonl"))
    sets = [Set(root, "a", True), Set(root, "b", False)]
    for one in sets:
        one.publish()
        one.link()
    description = SourceDescription()
    for one in sets:
        description.add_capability_list(f"{URL}{one.name}/capabilitylist.xml")
    os.makedirs(os.path.join(root, ".well-known"))
    description.write(os.path.join(root, ".well-known/resourcesync"))
    port = free_port()
    config = os.path.join(work, "config.toml")
    with open(config, "w") as file:
        file.write(f"""
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
public_url = "https://topics.example/"
[[hub]]
url = "http://127.0.0.1:{port}/publish"
[[source]]
name = "main"
mount = [{{ path = "{root}", url = "{URL}" }}]
settle = "100ms"
change_notifications = true
""")
    log = open(os.path.join(work, "log"), "w")
    hub = Process([sys.executable, __file__, "hub", str(port), record], log)
    daemon = Process([options.rsnotify, "run", "--config", config, "--state-dir", state], log)
    if not until(lambda: is_learned(state, len(sets)), 60):
        raise SystemExit(f"the daemon does not begin; {work}/log says why")
    began = time.monotonic()
    end, rotation, killing = began + options.seconds, began + options.rotate, began + 5
    while time.monotonic() < end:
        for one in random.sample(sets, random.randint(1, 2)):
            one.change(random.choice((1, 2, 5, 30)))
            one.publish()
        if time.monotonic() >= rotation:
            rotation += options.rotate
            for one in sets:
                one.rotate()
        if time.monotonic() >= killing:
            killing = time.monotonic() + random.uniform(1, 25)
            victim = random.choice((hub, daemon, daemon))
            if victim.back_at is None:
                victim.kill(time.monotonic() + random.choice((0, 0.5, 3, 20)))
        for process in (hub, daemon):
            process.keep_up()
        time.sleep(random.uniform(0.05, 1))
    for process in (hub, daemon):
        if process.back_at is not None:
            process.start()

    def accounts():
        told = heard(record)
        topics = {one.name: f"https://topics.example/changes/main/{one.name}/capabilitylist/" for one in sets}
        return {one.name: Account(told.get(topics[one.name], [])).compare(one.listed) for one in sets}

    until(lambda: all(account["lost"] == 0 for account in accounts().values()), 300)
    daemon.process.terminate()
    daemon.process.wait()
    hub.process.kill()
    hub.process.wait()
    report = accounts()
    print(f"{options.seconds} seconds, seed {options.seed}; lists rotated each {options.rotate} seconds; "
          f"the daemon killed {daemon.kills} times, the hub {hub.kills} times")
    for name, account in report.items():
        print(f"set {name}: " + ", ".join(f"{count} {what}" for what, count in account.items()))
    wrong = ("lost", "repeated", "invented", "out of order", "gaps", "overlaps", "outside their interval")
    return all(account[what] == 0 for account in report.values() for what in wrong)


def main():
    if sys.argv[1:2] == ["hub"]:
        with open(sys.argv[3], "a") as record:
            serve_hub(int(sys.argv[2]), record)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--rsnotify", default="target/release/rsnotify")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--rotate", type=int, default=60)
    parser.add_argument("--keep", help="directory in which everything is kept")
    options = parser.parse_args()
    random.seed(options.seed)
    work = options.keep or tempfile.mkdtemp(prefix="rsnotify-soak-")
    os.makedirs(work, exist_ok=True)
    is_right = run(options, os.path.abspath(work))
    if is_right and not options.keep:
        shutil.rmtree(work)
    else:
        print(f"the tree, the state, the log and what the hub heard are in {work}")
    sys.exit(not is_right)


main()
