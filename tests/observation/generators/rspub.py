"""Writes as rspub does: the metadata below one prefix, the Source Description at the root of the host."""
import os
import shutil

from publishing import ROOT, changes as changed, document, resources, serve, write

DESCRIPTION = ".well-known/resourcesync"
CHANGES = {"rs": [], "rt": []}
# Each run has one datetime for all that it lists.
ONE, TWO = ("one", "2024-11-01T06:00:00.250000Z"), ("two", "2024-11-02T06:00:00.500000Z")
AGAIN = [("two", "2024-11-03T06:00:00.750000Z"), ("one", "2024-11-03T06:00:00.750000Z")]


def metadata(below, text):
    write(f"metadata/{below}", text)


def resource_list(one, at, *names):
    text = document("resourcelist", resources(*names), up=f"metadata/{one}/capabilitylist.xml", md=f'at="{at}"')
    metadata(f"{one}/resourcelist_0000.xml", text)


def change_list(one, number, metadata_of_list, *names):
    name = f"{one}/changelist_{number:04}.xml"
    index = f"metadata/{one}/changelist-index.xml"
    up = f"metadata/{one}/capabilitylist.xml"
    text = document("changelist", changed(*names), up=up, md=metadata_of_list, index=index)
    metadata(name, text)
    if name not in CHANGES[one]:
        CHANGES[one].append(name)
    listed = [(f"metadata/{name}", None) for name in CHANGES[one]]
    metadata(f"{one}/changelist-index.xml", document("changelist", listed, up=up, root="sitemapindex"))


def capability_list(one):
    listed = [(f"metadata/{one}/resourcelist_0000.xml", "resourcelist")]
    if CHANGES[one]:
        listed.append((f"metadata/{one}/changelist-index.xml", "changelist"))
    metadata(f"{one}/capabilitylist.xml", document("capabilitylist", listed, up=DESCRIPTION))


def description(*sets, extra=""):
    listed = [(f"metadata/{one}/capabilitylist.xml", "capabilitylist") for one in sets]
    write(f"host/{DESCRIPTION}", document("description", listed, extra=extra))


def first():
    resource_list("rs", "2024-11-01", "one", "two")
    capability_list("rs")
    description("rs")


def changes(*lists):
    def run():
        for number, of_list, *names in lists:
            change_list("rs", number, of_list, *names)
        capability_list("rs")
        description("rs")
    return run


def set_added():
    resource_list("rt", "2024-11-04", "three")
    change_list("rt", 0, 'from="2024-11-04"')
    capability_list("rt")
    capability_list("rs")
    description("rs", "rt")


def described(*sets):
    description(*sets, extra='<rs:ln rel="describedby" href="https://source.example/about"/>\n')


def set_dropped():
    shutil.rmtree(os.path.join(ROOT, "metadata", "rt"))
    CHANGES["rt"].clear()
    description("rs")


serve({
    "01-first": first,
    "02-change-list-opened": changes((0, 'from="2024-11-01"', ONE)),
    "03-change-list-extended": changes((0, 'from="2024-11-01"', ONE, TWO)),
    "04-closed-and-the-next-opened": changes(
        (0, 'from="2024-11-01" until="2024-11-03"', ONE, TWO),
        (1, 'from="2024-11-03"', *AGAIN),
    ),
    "05-set-added": set_added,
    "06-description-alone": lambda: described("rs", "rt"),
    "07-set-dropped": set_dropped,
    "08-description-alone-again": lambda: described("rs"),
    "09-set-returns": set_added,
})
