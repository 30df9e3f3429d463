#!/usr/bin/env python3
"""Publishes a small ResourceSync Source of notes: generate.py DIRECTORY URL HUB SECONDS

writes the documents about the files in DIRECTORY, published as URL and announced by HUB, and then a new note at each
interval. Replace it by your own generator; rsnotify does not depend on it.
"""

import hashlib
import os
import signal
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

DOCUMENT = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
{links}  <rs:md capability="{capability}"{dates}/>
{entries}</urlset>
"""


def moment(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Source:
    def __init__(self, directory, url, hub):
        self.directory = Path(directory)
        self.url = url
        self.hub = hub

    def write(self, path, text):
        """A reader sees the old file or the new one, whole."""
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.tmp")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, file)

    def document(self, path, capability, entries, up=None, dates=""):
        links = f'  <rs:ln rel="up" href={quoteattr(self.url + up)}/>\n' if up else ""
        self.write(path, DOCUMENT.format(links=links, capability=capability, dates=dates, entries="".join(entries)))

    def entry(self, address, inside):
        return f"  <url>\n    <loc>{escape(address)}</loc>\n    {inside}\n  </url>\n"

    def refer(self, path, capability):
        return self.entry(self.url + path, f'<rs:md capability="{capability}"/>')

    def notes(self, attributes=""):
        for note in sorted(self.directory.glob("notes/*.txt")):
            content = note.read_bytes()
            written = moment(note.stat().st_mtime)
            change = attributes.format(datetime=written)
            digest = hashlib.sha256(content).hexdigest()
            yield written, self.entry(
                f"{self.url}notes/{note.name}",
                f'<lastmod>{written}</lastmod>\n    <rs:md {change}hash="sha-256:{digest}" length="{len(content)}"/>',
            )

    def list_changes(self, since):
        entries = [
            entry for written, entry in self.notes('change="created" datetime="{datetime}" ') if written >= since
        ]
        self.document(
            "notes/changelist.xml", "changelist", entries, "notes/capabilitylist.xml", f' from="{since}"'
        )

    def publish(self, now):
        """All documents, each after those that it names."""
        entries = [entry for _, entry in self.notes()]
        self.document("notes/resourcelist.xml", "resourcelist", entries, "notes/capabilitylist.xml", f' at="{now}"')
        self.list_changes(now)
        hub = f'<rs:ln rel="hub" href={quoteattr(self.hub)}/>'
        lists = [
            self.refer("notes/resourcelist.xml", "resourcelist"),
            self.refer("notes/changelist.xml", "changelist"),
            self.entry(f"{self.url}topics/notes/", f'{hub}\n    <rs:md capability="framework-notification"/>'),
            self.entry(f"{self.url}changes/notes/", f'{hub}\n    <rs:md capability="change-notification"/>'),
        ]
        self.document("notes/capabilitylist.xml", "capabilitylist", lists, ".well-known/resourcesync")
        sets = [self.refer("notes/capabilitylist.xml", "capabilitylist")]
        self.document(".well-known/resourcesync", "description", sets)


def main(directory, url, hub, seconds):
    source = Source(directory, url, hub)
    since = moment(time.time())
    source.publish(since)
    while True:
        time.sleep(float(seconds))
        now = moment(time.time())
        source.write(f"notes/{now.replace(':', '')}.txt", f"Written at {now}.\n")
        source.list_changes(since)
        print(f"wrote a note at {now}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    # The first process of a container is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    main(*sys.argv[1:])
