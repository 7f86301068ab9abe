// A server on Bun.   bun_server.js PORT BACKEND_PORT
const [port, backend] = process.argv.slice(2).map(Number);

Bun.serve({
  hostname: "127.0.0.1",
  port,
  async fetch(request) {
    const path = new URL(request.url).pathname;
    if (path === "/timer") {
      await Bun.sleep(5);
    } else if (path === "/cpu") {
      const over = performance.now() + 1;
      while (performance.now() < over);
    } else {
      await (await fetch(`http://127.0.0.1:${backend}/fast`)).text();
    }
    return new Response("ok\n");
  },
});
