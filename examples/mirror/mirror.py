#!/usr/bin/env python3
"""Keeps a live copy of a set of resources: see README.md."""
import argparse
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from xml.etree import ElementTree

SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
RS = "{http://www.openarchives.org/rs/terms/}"
GONE = (404, 410)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("list", help="the Capability List of the set")
    parser.add_argument("prefix", help="the URI that the directory is a copy of, with its last slash")
    parser.add_argument("directory", help="the copy, in which nothing else may be")
    parser.add_argument("state", help="a directory for what has to be remembered, on the same file system")
    parser.add_argument("--apply", action="store_true", help="apply the notification on standard input, and end")
    given = parser.parse_args()
    given.directory, given.state = map(os.path.abspath, (given.directory, given.state))
    return given


def main(given):
    os.makedirs(given.directory, exist_ok=True)
    os.makedirs(given.state, exist_ok=True)
    if not os.path.exists(done(given)):
        with locked(given):
            subscribe(given)
            copy(given)
            apply(given, listed_changes(given))
            open(done(given), "w").close()
    apply_one = [sys.executable, os.path.abspath(__file__), "--apply",
                 given.list, given.prefix, given.directory, given.state]
    command = listen(given) + ["--exec", shlex.join(apply_one), "--exec-batch"]
    os.execvp(command[0], command)


def done(given):
    """The mark that the first copy is complete."""
    return os.path.join(given.state, "copied")


def locked(given):
    """Waits for a run that was left behind when its parent was killed: it could write an older version last."""
    lock = open(os.path.join(given.state, "lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def listen(given):
    return ["rsnotify", "listen", given.list, "--kind", "change", "--state", os.path.join(given.state, "listen.json")]


def subscribe(given):
    """Subscribes before the first copy: what changes meanwhile is caught up by the next start."""
    # It must not outlive us, as the subscriber that the next run wants to be.
    command = ["setpriv", "--pdeathsig", "TERM", *listen(given), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        subscribed = any(json.loads(line)["event"] in ("subscribed", "renewed") for line in listener.stdout)
        listener.send_signal(signal.SIGTERM)
    if not subscribed:
        sys.exit(listener.returncode or 1)


def copy(given):
    """Copies the resources of the Resource List, and deletes all others."""
    program = os.path.join(os.path.dirname(sys.executable), "resync-sync")
    program = program if os.path.exists(program) else shutil.which("resync-sync")
    command = ["setpriv", "--pdeathsig", "KILL", program, "--baseline", "--delete", "--ignore-failures",
               "--capabilitylist", given.list, f"{given.prefix.rstrip('/')}={given.directory}"]
    copied = subprocess.run(command, cwd=given.state, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # What is gone by now was deleted after the list was written.
    failed = [line for line in copied.stdout.splitlines() if "FatalError" in line
              or "Failed to GET" in line and not any(f"Error {status}" in line for status in GONE)]
    if failed or copied.returncode != 0:
        sys.exit("\n".join(failed) or copied.stdout)


def listed_changes(given):
    """All entries of the Change Lists, which may be later than the Resource List."""
    for uri, description in entries(given.list):
        if description.get("capability") == "changelist":
            for resource, change in entries(uri):
                yield {"loc": resource, "change": change.get("change")}


def entries(uri):
    with urllib.request.urlopen(uri, timeout=60) as reply:
        for entry in ElementTree.parse(reply).getroot().iter(f"{SITEMAP}url"):
            description = entry.find(f"{RS}md")
            yield entry.findtext(f"{SITEMAP}loc").strip(), {} if description is None else description.attrib


def apply(given, changes):
    """Brings each changed resource to the version that the Source has now, however old the change is."""
    for uri in dict.fromkeys(change["loc"] for change in changes):
        path = path_of(given, uri)
        if path is None:
            print(f"{uri} is not below {given.prefix}, and not copied", file=sys.stderr)
            continue
        try:
            with urllib.request.urlopen(uri, timeout=60) as reply:
                replace(given, path, reply)
        except urllib.error.HTTPError as error:
            if error.code not in GONE:
                raise
            if os.path.exists(path):
                os.remove(path)


def path_of(given, uri):
    """The path of the copy, named as resync-sync names it."""
    if not uri.startswith(given.prefix) or uri.endswith("/") or ".." in uri.split("/"):
        return None
    return os.path.join(given.directory, uri[len(given.prefix):])


def replace(given, path, reply):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = os.path.join(given.state, "new")
    with open(new, "wb") as file:
        shutil.copyfileobj(reply, file)
    os.replace(new, path)


if __name__ == "__main__":
    given = arguments()
    if given.apply:
        with locked(given):
            apply(given, [change for line in sys.stdin for change in json.loads(line)["entries"]])
    else:
        main(given)
