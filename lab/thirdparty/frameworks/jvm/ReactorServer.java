// A server on Reactor Netty.   ReactorServer PORT BACKEND_PORT
import java.time.Duration;
import reactor.core.publisher.Mono;
import reactor.netty.http.client.HttpClient;
import reactor.netty.http.server.HttpServer;
import reactor.netty.resources.ConnectionProvider;

public class ReactorServer {
    public static void main(String[] args) {
        int port = Integer.parseInt(args[0]), backend = Integer.parseInt(args[1]);
        HttpClient client = HttpClient.create(ConnectionProvider.create("back", 32));
        Mono<String> ok = Mono.just("ok\n");
        HttpServer.create().host("127.0.0.1").port(port).route(routes -> routes
            .get("/timer", (request, response) ->
                response.sendString(Mono.delay(Duration.ofMillis(5)).then(ok)))
            .get("/cpu", (request, response) -> {
                long over = System.nanoTime() + 1_000_000;
                while (System.nanoTime() < over) {}
                return response.sendString(ok);
            })
            .get("/fast", (request, response) -> response.sendString(
                client.get().uri("http://127.0.0.1:" + backend + "/fast")
                    .responseContent().aggregate().asString().then(ok)))
        ).bindNow().onDispose().block();
    }
}
