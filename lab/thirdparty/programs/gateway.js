// SPDX-License-Identifier: Apache-2.0
// An HTTP server on Node.js that asks a backend, on connections that it keeps, for each answer.
// A path that begins with /w/ asks nobody: the server computes as many microseconds as `work` says.
//
// usage: gateway.js PORT BACKEND_PORT
"use strict";

const http = require("http");

const [port, backend] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true });

function compute(us) {
  const end = process.hrtime.bigint() + BigInt(us) * 1000n;
  while (process.hrtime.bigint() < end);
}

function ask(path, answer) {
  const asked = { host: "127.0.0.1", port: backend, path, agent };
  http.get(asked, (found) => {
    const parts = [];
    found.on("data", (part) => parts.push(part));
    found.on("end", () => answer.end(Buffer.concat(parts)));
  });
}

http
  .createServer((request, answer) => {
    if (!request.url.startsWith("/w/")) {
      ask(request.url, answer);
      return;
    }
    compute(Number(/work=(\d+)/.exec(request.url)[1]));
    answer.end("done");
  })
  .listen(port, "127.0.0.1", 512);
