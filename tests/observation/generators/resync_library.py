"""A nightly job written with resync's library: open and closed Change Lists, dumps and archives."""
from resync import CapabilityList, ChangeList, Resource, ResourceList, SourceDescription
from resync.archives import ChangeListArchive, ResourceListArchive
from resync.change_dump import ChangeDump
from resync.dump import Dump
from resync.list_base import ListBase
from resync.mapper import Mapper
from resync.resource_dump import ResourceDump
from resync.resource_list_builder import ResourceListBuilder

from publishing import ROOT, URL, path, remove, serve, write

UP = URL + "n/capabilitylist.xml"
MAPPER = Mapper([f"{URL}={ROOT}/"])
capabilities = {}


def publish(name, content):
    """Writes a list of the set, linked to its Capability List."""
    content.up = UP
    content.mapper = MAPPER
    content.write(path("n/" + name))


def resource_list(name="resourcelist.xml", **metadata):
    builder = ResourceListBuilder(mapper=MAPPER)
    resources = builder.from_disk(paths=[path("n/files/")])
    for key, value in metadata.items():
        setattr(resources, key, value)
    publish(name, resources)
    return resources


def change_list(number, names, until=None):
    changes = ChangeList()
    changes.md_from = f"2024-11-0{number}T00:00:00Z"
    if until:
        changes.md_until = until
    changes.index = URL + "n/changelist.xml"
    for hour, name in enumerate(names):
        moment = f"2024-11-0{number}T0{hour}:00:00Z"
        changes.add(Resource(URL + "n/files/" + name, change="updated", datetime=moment))
    publish(f"changelist-{number}.xml", changes)


def change_list_index(*numbers):
    index = ListBase()
    index.sitemapindex = True
    index.capability_name = "changelist"
    index.up = UP
    index.md_from = "2024-11-01T00:00:00Z"
    for number in numbers:
        index.add(Resource(f"{URL}n/changelist-{number}.xml"))
    index.write(path("n/changelist.xml"))


def capability_list():
    """Rewritten by each run, the Source Description too."""
    entries = CapabilityList()
    entries.up = URL + ".well-known/resourcesync"
    for name, file in capabilities.items():
        entries.add_capability(uri=URL + "n/" + file, name=name)
    entries.write(path("n/capabilitylist.xml"))
    description = SourceDescription()
    description.add_capability_list(UP)
    description.write(path(".well-known/resourcesync"))


def package(name, kind, day):
    """A dump of all files: the package, its manifest beside it, and the document that lists it."""
    builder = ResourceListBuilder(mapper=MAPPER)
    builder.set_path = True
    Dump(resources=builder.from_disk(paths=[path("n/files/")])).write(basename=path("n/" + name))
    dump = kind()
    dump.md_at = f"2024-11-0{day}T00:00:00Z"
    dump.add(Resource(f"{URL}n/{name}00000.zip", lastmod=f"2024-11-0{day}T00:00:00Z"))
    publish(name + ".xml", dump)


def archive(name, kind, *members):
    listed = kind()
    listed.md_from = "2024-10-01T00:00:00Z"
    for member in members:
        listed.add(Resource(f"{URL}n/{member}"))
    publish(name + ".xml", listed)


def first():
    for name in ("one", "two"):
        write(f"n/files/{name}.txt", name)
    resource_list()
    change_list(1, ["one"])
    change_list_index(1)
    capabilities.update(resourcelist="resourcelist.xml", changelist="changelist.xml")
    capability_list()


def extended(names):
    def run():
        change_list(1, names)
        change_list_index(1)
        capability_list()
    return run


def closed():
    change_list(1, ["one", "two", "one"], until="2024-11-02T00:00:00Z")
    change_list(2, ["two"])
    change_list_index(1, 2)
    capability_list()


def resource_dump(day):
    def run():
        package("resourcedump", ResourceDump, day)
        capabilities["resourcedump"] = "resourcedump.xml"
        capability_list()
    return run


def change_dump(day):
    def run():
        package("changedump", ChangeDump, day)
        capabilities["changedump"] = "changedump.xml"
        capability_list()
    return run


def archived():
    resource_list("resourcelist-october.xml", md_at="2024-10-01T00:00:00Z")
    archive("resourcelist-archive", ResourceListArchive, "resourcelist-october.xml")
    capabilities["resourcelist-archive"] = "resourcelist-archive.xml"
    resource_list()
    capability_list()


def archive_extended():
    resource_list("resourcelist-november.xml", md_at="2024-11-01T00:00:00Z")
    archive("resourcelist-archive", ResourceListArchive,
            "resourcelist-october.xml", "resourcelist-november.xml")
    capability_list()


def nothing_changed():
    change_list(1, ["one", "two", "one"], until="2024-11-02T00:00:00Z")
    change_list(2, ["two"])
    change_list_index(1, 2)
    archive_extended()


def first_change_list_moved_out():
    """The closed Change List goes from the index into an archive."""
    archive("changelist-archive", ChangeListArchive, "changelist-1.xml")
    capabilities["changelist-archive"] = "changelist-archive.xml"
    change_list_index(2)
    capability_list()


def archive_dropped():
    remove("n/changelist-archive.xml")
    remove("n/changelist-1.xml")
    del capabilities["changelist-archive"]
    capability_list()


serve({
    "01-first": first,
    "02-extended": extended(["one", "two"]),
    "03-extended-again": extended(["one", "two", "one"]),
    "04-closed-and-the-next-opened": closed,
    "05-resource-dump": resource_dump(1),
    "06-resource-dump-anew": resource_dump(2),
    "07-change-dump": change_dump(1),
    "08-change-dump-extended": change_dump(2),
    "09-archived": archived,
    "10-archive-extended": archive_extended,
    "11-nothing-changed": nothing_changed,
    "12-change-list-archived": first_change_list_moved_out,
    "13-archive-dropped": archive_dropped,
})
