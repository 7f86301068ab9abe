// HTTP/2, with TLS where the folder has a certificate.
//   node streams.js serve PORT [BACKEND]   answers after the number of milliseconds in the query; asks
//                                          the backend first, if there is one
//   node streams.js ask PORT               for each line "COUNT AT_ONCE METHOD PATH BYTES" of its input:
//                                          so many requests on one connection; then "[ms, …]"
const fs = require("fs"), http2 = require("http2");

const tls = fs.existsSync("cert.pem");
const files = tls ? { key: fs.readFileSync("key.pem"), cert: fs.readFileSync("cert.pem") } : {};
const connect = (port) =>
  http2.connect(`http${tls ? "s" : ""}://127.0.0.1:${port}`, { rejectUnauthorized: false });

function serve(port, backend) {
  const other = backend ? connect(backend) : null;
  const server = tls ? http2.createSecureServer(files) : http2.createServer();
  server.on("stream", (stream, headers) => {
    const answer = () => {
      stream.respond({ ":status": 200 });
      stream.end(headers[":path"].startsWith("/large") ? Buffer.alloc(300000) : "done");
    };
    const work = () => setTimeout(answer, Number(new URLSearchParams(headers[":path"].split("?")[1]).get("ms")));
    stream.resume().on("end", () => {
      if (!other) return work();
      other.request({ ":path": headers[":path"] }).resume().on("end", answer).end();
    });
  }).listen(port, "127.0.0.1");
}

async function ask(session, [count, atOnce, method, path, bytes]) {
  const took = [];
  let left = Number(count);
  const one = () => new Promise((resolve, reject) => {
    const began = process.hrtime.bigint();
    const stream = session.request(
      { ":method": method, ":path": path, secret: `word-${left}` }, { endStream: bytes === "0" });
    stream.on("error", reject).resume().on("end", () => {
      took.push(Number(process.hrtime.bigint() - began) / 1e6);
      resolve();
    });
    if (bytes !== "0") stream.end(Buffer.alloc(Number(bytes)));
  });
  const several = async () => { while (left-- > 0) await one(); };
  await Promise.all(Array.from({ length: Number(atOnce) }, several));
  return took;
}

async function client(port) {
  const session = connect(port);
  for await (const line of require("readline").createInterface({ input: process.stdin }))
    console.log(JSON.stringify(await ask(session, line.split(" "))));
  session.close();
}

const [mode, port, backend] = process.argv.slice(2);
if (mode === "serve") serve(Number(port), backend);
else client(Number(port));
