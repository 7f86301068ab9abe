// A server on Mono's HttpListener.   MonoServer.exe PORT BACKEND_PORT
using System.Diagnostics;
using System.Net;
using System.Net.Http;
using System.Threading.Tasks;

static class MonoServer {
    static readonly HttpClient Client = new HttpClient();

    static async Task Answer(HttpListenerContext context, string backend) {
        switch (context.Request.Url.AbsolutePath) {
        case "/timer":
            await Task.Delay(5);
            break;
        case "/cpu":
            var watch = Stopwatch.StartNew();
            while (watch.Elapsed.TotalMilliseconds < 1) {}
            break;
        default:
            await Client.GetStringAsync("http://127.0.0.1:" + backend + "/fast");
            break;
        }
        context.Response.ContentLength64 = 3;
        context.Response.OutputStream.Write(new byte[] { 111, 107, 10 }, 0, 3);
        context.Response.Close();
    }

    static void Main(string[] arguments) {
        ServicePointManager.DefaultConnectionLimit = 64;
        var listener = new HttpListener();
        listener.Prefixes.Add("http://127.0.0.1:" + arguments[0] + "/");
        listener.Start();
        while (true) {
            var context = listener.GetContext();
            Task.Run(() => Answer(context, arguments[1]));
        }
    }
}
