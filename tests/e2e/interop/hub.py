"""Runs the hub of Flask-WebSub, which nobody here wrote, on loopback and without a message broker.

hub.py DIRECTORY PORT queue|eager: its subscriptions lie in DIRECTORY. With `queue`, Celery's tasks wait for a worker in
this process, so that a ping is answered first and the topic fetched later; with `eager` a request is answered only
once all that follows from it is done.
"""

import logging
import os
import signal
import sys

from celery import Celery
from celery.contrib.testing.worker import start_worker
from flask import Flask
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import make_server

directory, port, manner = sys.argv[1:]

# Who asks it, and whom it asks.
logging.basicConfig(format="%(asctime)s hub %(name)s: %(message)s", level=logging.INFO)
logging.getLogger("urllib3.connectionpool").setLevel(logging.DEBUG)

# Of Celery's brokers that need no server, the one that keeps its messages in files reads them half-written.
celery = Celery("hub", broker="memory://")
celery.conf.update(
    broker_transport_options={"polling_interval": 0.02},
    task_always_eager=manner == "eager",
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
)

app = Flask("hub")
app.config["PUBLISH_SUPPORTED"] = True
storage = SQLite3HubStorage(os.path.join(directory, "subscriptions.sqlite3"))
# Subscribers that are away are tried again soon; a busy machine is waited for.
hub = Hub(storage, celery, BACKOFF_BASE=0.05, REQUEST_TIMEOUT=30)
app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))

# As a service manager stops it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
server = make_server("127.0.0.1", int(port), app, threaded=True)
with start_worker(celery, pool="solo", perform_ping_check=False):
    print(server.port, flush=True)
    server.serve_forever()
