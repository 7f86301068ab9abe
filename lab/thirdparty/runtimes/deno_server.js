// A server on Deno.   deno_server.js PORT BACKEND_PORT
const [port, backend] = Deno.args.map(Number);

Deno.serve({ hostname: "127.0.0.1", port }, async (request) => {
  const path = new URL(request.url).pathname;
  if (path === "/timer") {
    await new Promise((resume) => setTimeout(resume, 5));
  } else if (path === "/cpu") {
    const over = performance.now() + 1;
    while (performance.now() < over);
  } else {
    await (await fetch(`http://127.0.0.1:${backend}/fast`)).text();
  }
  return new Response("ok\n");
});
