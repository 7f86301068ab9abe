## A server on Nim's asynchttpserver.   nimserver PORT BACKEND_PORT
import std/[asyncdispatch, asynchttpserver, asyncnet, net, os, strutils, times]

let backendPort = Port(parseInt(paramStr(2)))
var idle: seq[AsyncSocket]

proc ask() {.async.} =
  var backend: AsyncSocket
  if idle.len > 0:
    backend = idle.pop
  else:
    backend = newAsyncSocket()
    await backend.connect("127.0.0.1", backendPort)
  await backend.send("GET /fast HTTP/1.1\r\nHost: here\r\n\r\n")
  var length = 0
  while true:
    let line = await backend.recvLine()
    if line.toLowerAscii.startsWith("content-length:"):
      length = parseInt(line.split(":")[1].strip)
    if line == "\r\n":
      break
  discard await backend.recv(length)
  idle.add backend

proc answer(request: Request) {.async, gcsafe.} =
  {.gcsafe.}:
    case request.url.path
    of "/timer": await sleepAsync(5)
    of "/cpu":
      let until = epochTime() + 0.001
      while epochTime() < until: discard
    else: await ask()
    await request.respond(Http200, "ok\n")

waitFor newAsyncHttpServer().serve(Port(parseInt(paramStr(1))), answer, "127.0.0.1")
