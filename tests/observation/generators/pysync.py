"""Writes as py-resourcesync does, which is in no registry: components first, then again with a link to their
index, the index, the Capability List deleted and recreated, the Source Description last."""
import glob
import os

from publishing import ROOT, changes, document, path, remove, resources, serve, write

UP = "p/capabilitylist.xml"
DESCRIPTION = ".well-known/resourcesync"


def publish(lists, delete_first=False):
    """`lists` are (capability, [(metadata, resources) of each component])."""
    if delete_first:
        for file in glob.glob(os.path.join(ROOT, "p", "*.xml")):
            os.remove(file)
    listed = []
    for capability, components in lists:
        entries = changes if capability == "changelist" else resources
        names = [f"p/{capability}_{number:04}.xml" for number in range(len(components))]
        index = f"p/{capability}-index.xml" if len(components) > 1 else None
        for link in (None, index):
            for name, (metadata, content) in zip(names, components):
                write(name, document(capability, entries(*content), up=UP, md=metadata, index=link))
        if index:
            write(index, document(capability, [(name, None) for name in names], up=UP, root="sitemapindex"))
        listed.append((index or names[0], capability))
    if os.path.exists(path(UP)):
        remove(UP)
    write(UP, document("capabilitylist", listed, up=DESCRIPTION))
    write(DESCRIPTION, document("description", [(UP, "capabilitylist")]))


# Each run has one datetime for all that it lists.
ONE, TWO = ("one", "2024-11-02T06:00:00Z"), ("two", "2024-11-03T06:00:00Z")
THREE = [("three", "2024-11-04T06:00:00Z"), ("one", "2024-11-04T06:00:00Z")]
SNAPSHOT = ("resourcelist", [('at="2024-11-01"', ["one", "two"])])
SNAPSHOT_OF_THREE = ("resourcelist", [
    ('at="2024-11-04"', ["one", "two"]),
    ('at="2024-11-04"', ["three", "four"]),
    ('at="2024-11-04"', ["five"]),
])
NEXT_SNAPSHOT = ("resourcelist", [('at="2024-11-05"', ["one", "two"])])
LAST_SNAPSHOT = ("resourcelist", [('at="2024-11-06"', ["one"])])
OPEN = ("changelist", [('from="2024-11-01"', [ONE])])
EXTENDED = ("changelist", [('from="2024-11-01"', [ONE, TWO])])
CLOSED = ("changelist", [
    ('from="2024-11-01" until="2024-11-03"', [ONE, TWO]),
    ('from="2024-11-03"', THREE),
])


def shrunk():
    """The components and the index that it no longer needs are deleted."""
    publish([NEXT_SNAPSHOT, CLOSED])
    for name in ("_0001", "_0002", "-index"):
        remove(f"p/resourcelist{name}.xml")


serve({
    "01-first": lambda: publish([SNAPSHOT]),
    "02-change-list-opened": lambda: publish([SNAPSHOT, OPEN]),
    "03-change-list-extended": lambda: publish([SNAPSHOT, EXTENDED]),
    "04-closed-and-the-next-opened": lambda: publish([SNAPSHOT, CLOSED]),
    "05-grown-past-the-limit": lambda: publish([SNAPSHOT_OF_THREE, CLOSED]),
    "06-nothing-changed": lambda: publish([SNAPSHOT_OF_THREE, CLOSED]),
    "07-all-deleted-and-recreated": lambda: publish([SNAPSHOT_OF_THREE, CLOSED], delete_first=True),
    "08-shrunk": shrunk,
    "09-only-a-new-snapshot": lambda: publish([LAST_SNAPSHOT], delete_first=True),
})
