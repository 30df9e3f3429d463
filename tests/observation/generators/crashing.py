"""A generator that crashes in the middle of its runs, and is run again."""
from publishing import changes, document, remove, resources, serve, write

UP = "c/capabilitylist.xml"
DESCRIPTION = ".well-known/resourcesync"
ONE, TWO, THREE = ((name, f"2024-11-0{day}T06:00Z") for day, name in enumerate(("one", "two", "three"), 1))


def snapshot(at, index=None):
    return document("resourcelist", resources("one", "two"), up=UP, md=f'at="{at}"', index=index)


def resource_list(at, name="resourcelist.xml", index=None):
    write(f"c/{name}", snapshot(at, index))


def change_list(*names):
    write("c/changelist.xml", document("changelist", changes(*names), up=UP, md='from="2024-11-01"'))


def links():
    listed = [("c/resourcelist.xml", "resourcelist"), ("c/changelist.xml", "changelist")]
    write(UP, document("capabilitylist", listed, up=DESCRIPTION))
    write(DESCRIPTION, document("description", [(UP, "capabilitylist")]))


def first():
    resource_list("2024-11-01")
    change_list(ONE)
    links()


def crashes_within_a_list():
    change_list(ONE, TWO)
    text = snapshot("2024-11-02")
    write("c/resourcelist.xml", text[:text.index("</url>") + len("</url>")])


def is_run_again():
    resource_list("2024-11-02")
    change_list(ONE, TWO)
    links()


def crashes_before_the_index():
    for number in range(3):
        resource_list("2024-11-03", f"resourcelist-{number}.xml", "c/resourcelist.xml")


def writes_the_index():
    crashes_before_the_index()
    parts = [(f"c/resourcelist-{number}.xml", None) for number in range(3)]
    write("c/resourcelist.xml", document("resourcelist", parts, up=UP, root="sitemapindex"))
    links()


def crashes_within_the_links():
    """It deletes the Capability List to write it anew, and does not come to that."""
    remove(UP)


def writes_the_links():
    change_list(ONE, TWO, THREE)
    links()


def empties_the_description():
    write(DESCRIPTION, "")


serve({
    "01-first": first,
    "02-crashes-within-a-list": crashes_within_a_list,
    "03-is-run-again": is_run_again,
    "04-crashes-before-the-index": crashes_before_the_index,
    "05-writes-the-index": writes_the_index,
    "06-crashes-within-the-links": crashes_within_the_links,
    "07-writes-the-links": writes_the_links,
    "08-empties-the-description": empties_the_description,
    "09-nothing-changed": links,
})
