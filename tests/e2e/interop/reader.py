"""Reads notifications with the reference library, and says what it read.

reader.py DIRECTORY: prints one object of JSON with what each file in it holds, as the library's own classes have it;
for a file that it does not read, or that it has anything to say about, what it said.

reader.py DIRECTORY sitemap: the same of change notifications, read as sitemaps, because the library knows no list of
changes but those of its own time. What it warns of and reads all the same is no complaint.
"""

import json
import logging
import pathlib
import sys

from resync.list_base import ListBase
from resync.sitemap import Sitemap
from resync.w3c_datetime import str_to_datetime


class FrameworkNotification(ListBase):
    """The library's reader of lists, told of a capability that is younger than the library."""

    def __init__(self):
        super().__init__(capability_name="framework-notification")

    def new_sitemap(self):
        sitemap = super().new_sitemap()
        sitemap.capabilities.append(self.capability_name)
        return sitemap


class Complaints(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


def milliseconds(seconds):
    return None if seconds is None else round(seconds * 1000)


def links(found):
    return [[link["rel"], link["href"]] for link in found or []]


def entry(resource):
    return {
        "uri": resource.uri,
        "change": resource.change,
        "capability": resource.capability,
        "datetime": milliseconds(resource.ts_datetime),
        "links": links(resource.ln),
    }


def read(path):
    complaints.said = []
    notification = FrameworkNotification()
    try:
        with path.open("rb") as file:
            notification.parse(fh=file)
        since = notification.md.pop("md_from", None)
        until = notification.md.pop("md_until", None)
        found = {
            "from": milliseconds(str_to_datetime(since)),
            "until": milliseconds(str_to_datetime(until)),
            "described": notification.md,
            "links": links(notification.ln),
            "entries": [entry(resource) for resource in notification],
        }
    except Exception as error:
        return repr(error)
    return complaints.said or found


def change(resource):
    timestamp = resource.ts_datetime
    return {
        "uri": resource.uri,
        "change": resource.change,
        "datetime": None if timestamp is None else round(timestamp * 1_000_000),
        "length": resource.length,
        "type": resource.mime_type,
        "links": links(resource.ln),
    }


def read_sitemap(path):
    try:
        with path.open("rb") as file:
            sitemap = Sitemap().parse_xml(fh=file)
        return {"described": sitemap.md, "entries": [change(resource) for resource in sitemap]}
    except Exception as error:
        return repr(error)


complaints = Complaints()
logging.getLogger().addHandler(complaints)
reads = read_sitemap if sys.argv[2:] == ["sitemap"] else read
json.dump({path.name: reads(path) for path in pathlib.Path(sys.argv[1]).iterdir()}, sys.stdout)
