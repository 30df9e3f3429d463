"""What the generators share: they publish a run when told its name, in place, and say when it is done."""
import os
import sys
import traceback

URL = "https://source.example/"
ROOT, WORK = sys.argv[1:3]


def path(below):
    """A file of the published tree, whose directory exists."""
    absolute = os.path.join(ROOT, below)
    os.makedirs(os.path.dirname(absolute), exist_ok=True)
    return absolute


def write(below, text):
    """Truncates what is there, as generators do."""
    with open(path(below), "w", newline="") as file:
        file.write(text)


def remove(below):
    os.remove(path(below))


def document(capability, entries, *, up=None, index=None, md="", root="urlset", prefix="", extra=""):
    """A document of our own. `entries` are pairs of a URI below `URL` and a capability, attributes, or nothing."""
    p = prefix and prefix + ":"
    entry = "sitemap" if root == "sitemapindex" else "url"
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<{p}{root} xmlns{prefix and ":" + prefix}="http://www.sitemaps.org/schemas/sitemap/0.9"'
        ' xmlns:rs="http://www.openarchives.org/rs/terms/">',
    ]
    if up:
        lines.append(f'  <rs:ln rel="up" href="{URL}{up}"/>')
    if index:
        lines.append(f'  <rs:ln rel="index" href="{URL}{index}"/>')
    lines.append(f'  {extra}<rs:md capability="{capability}" {md}/>')
    for loc, kind in entries:
        attributes = kind if kind and "=" in kind else f'capability="{kind}"'
        kind = f"<rs:md {attributes}/>" if kind else ""
        lines.append(f"  <{p}{entry}><{p}loc>{URL}{loc}</{p}loc>{kind}</{p}{entry}>")
    lines.append(f"</{p}{root}>")
    return "\n".join(lines) + "\n"


def resources(*names):
    return [(f"files/{name}", None) for name in names]


def changes(*entries):
    """Entries of a Change List: pairs of an updated resource and when, or its name alone."""
    listed = []
    for entry in entries:
        name, when = entry if isinstance(entry, tuple) else (entry, None)
        datetime = f' datetime="{when}"' if when else ""
        listed.append((f"files/{name}", f'change="updated"{datetime}'))
    return listed


def serve(runs):
    """Publishes the run that each line names. What a generator prints goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    print(*sorted(runs), file=answers, flush=True)
    for line in sys.stdin:
        try:
            runs[line.strip()]()
        except BaseException:
            traceback.print_exc()
            raise
        print("done", file=answers, flush=True)
