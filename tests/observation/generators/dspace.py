"""Writes as DSpace's webapp does: the prefix `sm`, a Change List a day that names no index, a
`changelistindex`, and a Capability List that is repointed."""
import os

from publishing import ROOT, changes as changed, document, path, resources, serve, write

UP = "d/capabilitylist.xml"
DESCRIPTION = ".well-known/resourcesync"
lists = {"resourcelist": "d/resourcelist.xml"}
days = []


def dspace(capability, entries, **more):
    return document(capability, entries, prefix="sm", **more)


def links():
    """What each run ends with."""
    write(UP, dspace("capabilitylist", [(file, name) for name, file in lists.items()], up=DESCRIPTION))
    write(DESCRIPTION, dspace("description", [(UP, "capabilitylist")]))


def first():
    write("d/resourcelist.xml", dspace("resourcelist", resources("one"), up=UP, md='at="2024-11-01"'))
    links()


def changes(day, *names):
    def run():
        file = f"d/changelist_{day}.xml"
        if file not in days:
            days.append(file)
        write(file, dspace("changelist", changed(*names), up=UP, md=f'from="{day}"'))
        index = dspace("changelistindex", [(day, None) for day in days], up=UP, root="sitemapindex")
        write("d/changelistindex.xml", index)
        lists["changelist"] = file
        lists["changelistindex"] = "d/changelistindex.xml"
        links()
    return run


def dump(at):
    def run():
        write("d/resourcedump.zip", f"the package of {at}")
        manifest = dspace("resourcedump-manifest", resources("one"), up=UP, md=f'at="{at}"')
        write("d/manifest.xml", manifest)
        package = [("d/resourcedump.zip", None)]
        write("d/resourcedump.xml", dspace("resourcedump", package, up=UP, md=f'at="{at}"'))
        lists["resourcedump"] = "d/resourcedump.xml"
        links()
    return run


def other_white_space():
    """As another version of its XML library would write the same."""
    for name in [*days, "d/changelistindex.xml", *lists.values(), UP, DESCRIPTION]:
        with open(os.path.join(ROOT, name), newline="") as file:
            text = file.read()
        with open(path(name), "w", newline="") as file:
            file.write(text.replace("\r", "").replace("\n  ", "\n\t\t").replace("\n", "\r\n"))


serve({
    "01-first": first,
    "02-first-change-list": changes("2024-11-02", "one"),
    "03-next-day": changes("2024-11-03", "two"),
    "04-same-day-again": changes("2024-11-03", "two", "three"),
    "05-dump": dump("2024-11-04"),
    "06-dump-anew": dump("2024-11-05"),
    "07-other-white-space": other_white_space,
    "08-next-day-after-that": changes("2024-11-06", "four"),
})
