// SPDX-License-Identifier: Apache-2.0
// An HTTP server of which one request in 50 also calls a planted function, for 10 ms of CPU time.
// node planted.js PORT
"use strict";
const http = require("node:http");

let sink = 0;

function usualWork() {
  for (let i = 0; i < 20000; i++) sink = (sink * 17 + i) % 1000003;
}

function plantedCpu() {
  const start = process.cpuUsage();
  const isShort = (used) => used.user + used.system < 10_000;
  while (isShort(process.cpuUsage(start))) {
    for (let i = 0; i < 30000; i++) sink = (sink * 31 + i) % 1000003;
  }
}

let requests = 0;
http
  .createServer((request, response) => {
    usualWork();
    if (++requests % 50 === 0) plantedCpu();
    response.end("ok\n");
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
