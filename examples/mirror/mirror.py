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
# Answers after which it is worth asking again.
PASSING = (408, 425, 429)
LIBRARY = "/opt/resync"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("list", help="the Capability List of the set")
    parser.add_argument("prefix", help="the URI that the directory is a copy of")
    parser.add_argument("directory", help="the copy, in which nothing else may be")
    parser.add_argument("state", help="a directory for what has to be remembered, on the same file system")
    parser.add_argument("--apply", action="store_true", help="apply the notification on standard input, and end")
    given = parser.parse_args()
    given.prefix = given.prefix.rstrip("/") + "/"
    given.directory, given.state = map(os.path.abspath, (given.directory, given.state))
    return given


def main(given):
    os.makedirs(given.directory, exist_ok=True)
    os.makedirs(given.state, exist_ok=True)
    if not os.path.exists(done(given)):
        program = resync_sync()
        with locked(given):
            subscribe(given)
            copy(given, program)
            # They may be later than the Resource List.
            apply(given, [location(entry) for entry in listed(given, "changelist")])
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


def resync_sync():
    beside = os.path.dirname(sys.executable)
    places = [beside, os.environ.get("PATH", os.defpath), f"{LIBRARY}/bin"]
    return shutil.which("resync-sync", path=os.pathsep.join(places)) or sys.exit(
        f"there is no resync-sync in {LIBRARY}/bin, {beside} or PATH: install the library resync, as README.md says")


def copy(given, program):
    """Copies the resources of the Resource List, and deletes all others."""
    # resync-sync follows a URI with ".." out of the directory: it is given only what lies below.
    resources = ElementTree.Element(f"{SITEMAP}urlset")
    ElementTree.SubElement(resources, f"{RS}md", capability="resourcelist")
    for entry in listed(given, "resourcelist"):
        if path_of(given, location(entry)) is not None:
            entry.find(f"{SITEMAP}loc").text = location(entry)
            resources.append(entry)
    names = os.path.join(given.state, "resourcelist.xml")
    ElementTree.ElementTree(resources).write(names)
    command = ["setpriv", "--pdeathsig", "KILL", program, "--baseline", "--delete", "--ignore-failures", "--noauth",
               "--sitemap", names, f"{given.prefix.rstrip('/')}={given.directory}"]
    environment = {"PYTHONPATH": LIBRARY, **os.environ}
    copied = subprocess.run(command, cwd=given.state, env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    # What is gone by now was deleted after the list was written.
    failed = [line for line in copied.stdout.splitlines() if "FatalError" in line
              or "Failed to GET" in line and not any(f"Error {status}" in line for status in GONE)]
    if failed or copied.returncode != 0:
        sys.exit("\n".join(failed) or copied.stdout)


def listed(given, capability):
    """All entries of the lists of a capability that the Capability List names."""
    for uri in entries(given.list):
        description = uri.find(f"{RS}md")
        if description is not None and description.get("capability") == capability:
            yield from entries(location(uri))


def entries(uri):
    """The entries of a list, or of those that an index names."""
    with urllib.request.urlopen(uri, timeout=60) as reply:
        root = ElementTree.parse(reply).getroot()
    yield from root.iter(f"{SITEMAP}url")
    for part in root.iter(f"{SITEMAP}sitemap"):
        yield from entries(location(part))


def location(entry):
    return escaped(entry.findtext(f"{SITEMAP}loc").strip())


def escaped(uri):
    """The URI with escapes of the characters that no URI may have, which lists of file names have all the same."""
    return urllib.parse.quote(uri, safe="%/:?#[]@!$&'()*+,;=")


def apply(given, changed):
    """Brings each changed resource to the version that the Source has now, however old the change is."""
    for uri in dict.fromkeys(changed):
        path = path_of(given, uri)
        if path is None:
            continue
        try:
            with urllib.request.urlopen(uri, timeout=60) as reply:
                replace(given, path, reply)
        except urllib.error.HTTPError as error:
            if error.code in GONE:
                if os.path.isfile(path):
                    os.remove(path)
            elif 400 <= error.code < 500 and error.code not in PASSING:
                print(f"{uri} is not copied: {error}", file=sys.stderr)
            else:
                sys.exit(f"cannot get {uri}: {error}")
        except urllib.error.URLError as error:
            sys.exit(f"cannot get {uri}: {error.reason}")


def path_of(given, uri):
    """The path of the copy, named as resync-sync names it; None if it would not lie in the directory."""
    rest = uri.removeprefix(given.prefix)
    names = urllib.parse.unquote(rest).split("/")
    if rest == uri or "#" in uri or any(name in ("", ".", "..") or "\0" in name for name in names):
        print(f"{uri!r} names no file below {given.prefix}, and is not copied", file=sys.stderr)
        return None
    return os.path.join(given.directory, rest)


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
            apply(given, [escaped(change["loc"]) for line in sys.stdin for change in json.loads(line)["entries"]])
    else:
        main(given)
