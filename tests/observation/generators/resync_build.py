"""resync's own command, resync-build, as a cron job runs it for two sets."""
import os
import runpy
import shutil
import sys

from publishing import ROOT, URL, WORK, path, serve, write

COMMAND = os.path.join(os.path.dirname(sys.executable), "resync-build")
MAP = f"{URL}={ROOT}/"
DESCRIPTION = f"{URL}.well-known/resourcesync"


def build(*arguments):
    """Runs the command, in this process: what takes long is to start Python."""
    sys.argv = [COMMAND, *arguments]
    runpy.run_path(COMMAND, run_name="__main__")


class Set:
    def __init__(self, name):
        self.name = name
        self.up = f"--capabilitylist-link={URL}{name}/capabilitylist.xml"
        self.reference = os.path.join(WORK, f"{name}.txt")
        self.capabilities = ["resourcelist", "changelist"]

    def resource(self, *names):
        for name in names:
            write(f"{self.name}/files/{name}.txt", name)

    def file(self, name):
        return path(f"{self.name}/{name}")

    def files(self):
        return ["--paths", self.file("files"), MAP]

    def resource_list(self, most=50_000):
        build("--write-resourcelist", "--outfile", self.file("resourcelist.xml"), self.up,
              f"--max-sitemap-entries={most}", *self.files())

    def change_list(self, most=50_000):
        """What changed since the last run, or an empty list."""
        new = self.reference + ".new"
        build("--write-resourcelist", "--outfile", new, *self.files())
        out = ["--write-changelist", "--outfile", self.file("changelist.xml"), self.up,
               f"--max-sitemap-entries={most}"]
        if os.path.exists(self.reference):
            build(*out, f"--reference={self.reference}", f"--newreference={new}", MAP)
        else:
            build(*out, "--empty")
        os.replace(new, self.reference)

    def capability_list(self):
        entries = [f"{name}={URL}{self.name}/{name}.xml" for name in self.capabilities]
        build("--write-capabilitylist", ",".join(entries),
              f"--sourcedescription-link={DESCRIPTION}", "--outfile", self.file("capabilitylist.xml"))


def description(*sets):
    uris = [f"{URL}{one.name}/capabilitylist.xml" for one in sets]
    build("--write-sourcedescription", ",".join(uris), "--outfile", path(".well-known/resourcesync"))


a, b = Set("a"), Set("b")


def first():
    a.resource("1", "2")
    a.resource_list()
    a.change_list()
    a.capability_list()
    description(a)


def nothing_changed():
    a.change_list()
    a.capability_list()
    description(a)


def set_added():
    b.resource("1")
    for one in (a, b):
        one.change_list()
        one.capability_list()
    b.resource_list()
    description(a, b)


def grown():
    a.resource("3", "4", "5")
    for one in (a, b):
        one.change_list()
        one.capability_list()
    a.resource_list(most=2)
    description(a, b)


def change_list_grown():
    a.resource("6", "7", "8")
    a.change_list(most=2)
    a.resource_list(most=2)
    a.capability_list()
    description(a, b)


def shrunk():
    for name in "345678":
        os.remove(a.file(f"files/{name}.txt"))
    a.change_list()
    a.resource_list()
    a.capability_list()
    description(a, b)


def dump():
    build("--write-resourcedump", "--outfile", a.file("resourcedump"), a.up, *a.files())
    a.capability_list()
    description(a, b)


def set_dropped():
    description(a)
    shutil.rmtree(os.path.join(ROOT, "b"))


def set_returns():
    set_added()


serve({
    "01-first": first,
    "02-nothing-changed": nothing_changed,
    "03-set-added": set_added,
    "04-grown-past-the-limit": grown,
    "05-change-list-grown": change_list_grown,
    "06-shrunk": shrunk,
    "07-dump": dump,
    "08-set-dropped": set_dropped,
    "09-set-returns": set_returns,
})
