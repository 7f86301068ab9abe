"""A WSGI program on gevent.   gevent_server.py PORT BACKEND_PORT"""

from gevent import monkey

monkey.patch_all()

import http.client  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from gevent.pywsgi import WSGIServer  # noqa: E402

IDLE = []


def answer(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    if environ["PATH_INFO"] == "/timer":
        gevent.sleep(0.005)
    elif environ["PATH_INFO"] == "/cpu":
        end = time.thread_time() + 0.001
        while time.thread_time() < end:
            pass
    else:
        backend = IDLE.pop() if IDLE else http.client.HTTPConnection("127.0.0.1", sys.argv[2])
        backend.request("GET", "/fast")
        backend.getresponse().read()
        IDLE.append(backend)
    start_response("200 OK", [("Content-Length", "3")])
    return [b"ok\n"]


WSGIServer(("127.0.0.1", int(sys.argv[1])), answer, log=None).serve_forever()
