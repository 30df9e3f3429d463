#!/usr/bin/env python3
"""What a container asks of the world outside: hub.py ADDRESS CERTIFICATE KEY

answers name servers' questions for hub.test at ADDRESS port 53, with that address, and is a hub over TLS at its port
443. It prints a line when it is there, and one for each notification it takes.
"""

import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET, SOCK_DGRAM, inet_aton, socket

address, certificate, key = sys.argv[1:]
NAME = b"\x03hub\x04test\x00"
IPV4 = b"\x00\x01"


def answer_names(server):
    while True:
        question, client = server.recvfrom(512)
        end = question.index(b"\0", 12) + 5
        name, kind = question[12 : end - 4], question[end - 4 : end - 2]
        is_known = name.lower() == NAME
        answers = 1 if is_known and kind == IPV4 else 0
        # An answer with recursion; 3 says that there is no such name.
        flags = b"\x81\x80" if is_known else b"\x81\x83"
        head = question[:2] + flags + b"\0\1" + bytes([0, answers]) + b"\0\0\0\0"
        # The name of the question, class IN, for a minute.
        record = b"\xc0\x0c" + IPV4 + b"\0\1" + b"\0\0\0\x3c" + b"\0\4" + inet_aton(address)
        server.sendto(head + question[12:end] + record * answers, client)


class Hub(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        print("notified:", " ".join(body.split()), flush=True)
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


names = socket(AF_INET, SOCK_DGRAM)
names.bind((address, 53))
threading.Thread(target=answer_names, args=(names,), daemon=True).start()
hub = HTTPServer((address, 443), Hub)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
hub.socket = context.wrap_socket(hub.socket, server_side=True)
print("hub.test is there", flush=True)
hub.serve_forever()
