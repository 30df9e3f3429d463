"""Prints the changes that content change messages tell of, read over STOMP with Python's own library.

    python3 consumer.py HOST PORT DESTINATION [SELECTOR [LOGIN PASSCODE]]

The subscription is durable: the broker keeps messages while this program is away. Each message is acknowledged after its
changes were handled, so one may come again; its id tells, and is remembered in the file seen.txt.
"""

import pathlib
import re
import socket
import sys
import time
import xml.etree.ElementTree as ElementTree

ATOM = "{http://www.w3.org/2005/Atom}"
NAME = "example-python"
SEEN = pathlib.Path("seen.txt")


def frame(command, headers, body=""):
    """Returns a frame of STOMP 1.2; headers of CONNECT are not escaped."""
    special = {} if command == "CONNECT" else {"\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c"}
    text = str.maketrans(special)
    lines = [f"{name.translate(text)}:{value.translate(text)}" for name, value in headers.items()]
    return "\n".join([command, *lines, "", body]).encode() + b"\0"


def unescaped(text):
    characters = {"c": ":", "n": "\n", "r": "\r"}
    return re.sub(r"\\(.)", lambda escape: characters.get(escape[1], escape[1]), text)


def exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionError("the broker closed the connection")
    return data


def frames(stream):
    """Yields command, headers and body of each frame that the broker sends."""
    while True:
        command = stream.readline()
        if not command:
            raise ConnectionError("the broker closed the connection")
        if not command.strip():
            continue  # a heart-beat
        headers = {}
        while True:
            line = stream.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("the broker closed the connection")
            line = line.rstrip(b"\r\n").decode()
            if not line:
                break
            name, value = line.split(":", 1)
            headers.setdefault(unescaped(name), unescaped(value))
        if "content-length" in headers:
            body = exactly(stream, int(headers["content-length"]))
            exactly(stream, 1)
        else:
            body = b""
            while (byte := exactly(stream, 1)) != b"\0":
                body += byte
        yield command.strip().decode(), headers, body


def changes(body):
    """Yields change, item and content location of each entry of a feed."""
    feed = ElementTree.fromstring(body)
    for entry in feed.iter(ATOM + "entry"):
        links = {link.get("rel"): link.get("href") for link in entry.iter(ATOM + "link")}
        terms = {one.get("scheme"): one.get("term") for one in entry.iter(ATOM + "category")}
        content = entry.find(ATOM + "content")
        source = None if content is None else content.get("src")
        yield terms.get("changes:ITEM:CHANGE:TYPE", "STATE"), links["via"], source


def handle(change, item, source):
    """What a consumer does with a change: index the content at the source, or remove the item."""
    print(change, item, source or "-", flush=True)


def read(host, port, destination, selector, login, passcode, seen):
    with socket.create_connection((host, port)) as connection:
        stream = connection.makefile("rb")
        received = frames(stream)
        credentials = {"login": login, "passcode": passcode} if login else {}
        connect = {"accept-version": "1.2", "host": "/", "client-id": NAME, "heart-beat": "0,0"}
        connection.sendall(frame("CONNECT", connect | credentials))
        subscribe = {
            "id": NAME,
            "destination": destination,
            "ack": "client-individual",
            "receipt": "subscribed",
            "activemq.subscriptionName": NAME,
            "durable": "true",
            "auto-delete": "false",
        }
        if selector:
            subscribe["selector"] = selector
        connection.sendall(frame("SUBSCRIBE", subscribe))
        for command, headers, body in received:
            if command == "RECEIPT":
                print("listening", flush=True)
            elif command == "ERROR":
                raise ConnectionError(headers.get("message"))
            elif command == "MESSAGE":
                identity = headers["messageId"]
                if identity not in seen:
                    for change in changes(body):
                        handle(*change)
                    seen.add(identity)
                    with SEEN.open("a") as file:
                        print(identity, file=file)
                connection.sendall(frame("ACK", {"id": headers["ack"]}))


def main(host, port, destination, selector="", login="", passcode=""):
    seen = set(SEEN.read_text().split()) if SEEN.exists() else set()
    while True:
        try:
            read(host, int(port), destination, selector, login, passcode, seen)
        except OSError as error:
            print(f"{error}; connecting again", file=sys.stderr)
            time.sleep(1)


main(*sys.argv[1:])
