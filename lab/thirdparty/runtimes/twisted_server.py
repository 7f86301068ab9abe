"""A server on Twisted.   twisted_server.py PORT BACKEND_PORT"""

import sys
import time

from twisted.internet import reactor
from twisted.web import client, resource, server

PORT, BACKEND = int(sys.argv[1]), int(sys.argv[2])
AGENT = client.Agent(reactor, pool=client.HTTPConnectionPool(reactor))


class Answers(resource.Resource):
    isLeaf = True

    def render_GET(self, request: server.Request) -> bytes | int:
        def answer(_: object = None) -> None:
            request.write(b"ok\n")
            request.finish()

        if request.path == b"/timer":
            reactor.callLater(0.005, answer)
        elif request.path == b"/cpu":
            end = time.thread_time() + 0.001
            while time.thread_time() < end:
                pass
            return b"ok\n"
        else:
            asked = AGENT.request(b"GET", b"http://127.0.0.1:%d/fast" % BACKEND)
            asked.addCallback(client.readBody).addCallback(answer)
        return server.NOT_DONE_YET


reactor.listenTCP(PORT, server.Site(Answers()), interface="127.0.0.1")
reactor.run()
