"""Prints what feedparser reads in each feed of a directory, as JSON."""

import json
import pathlib
import sys

import feedparser


def entry(read):
    content = read.get("content", [])
    return {
        "id": read.id,
        "author": read.author,
        "title": read.title,
        "updated": list(read.updated_parsed[:6]),
        "summary": read.summary,
        "via": [link.href for link in read.links if link.rel == "via"],
        "content": [[part["src"], part["type"]] for part in content],
        "categories": [[tag.scheme, tag.term] for tag in read.get("tags", [])],
    }


def feed(path):
    read = feedparser.parse(path.read_bytes(), sanitize_html=False)
    if read.bozo or read.version != "atom10":
        raise SystemExit(f"{path}: {read.version}, {read.get('bozo_exception')}")
    links = {link.rel: link.href for link in read.feed.links}
    return {
        "id": read.feed.id,
        "author": read.feed.author,
        "title": read.feed.title,
        "updated": list(read.feed.updated_parsed[:6]),
        "via": links["via"],
        "related": links.get("related"),
        "categories": [[tag.scheme, tag.term] for tag in read.feed.tags],
        "entries": [entry(one) for one in read.entries],
    }


directory = pathlib.Path(sys.argv[1])
print(json.dumps({path.name: feed(path) for path in directory.iterdir()}))
