// A server on Vert.x.   VertxServer PORT BACKEND_PORT
import io.vertx.core.Vertx;
import io.vertx.core.http.*;

public class VertxServer {
    public static void main(String[] args) {
        int port = Integer.parseInt(args[0]), backend = Integer.parseInt(args[1]);
        Vertx vertx = Vertx.vertx();
        HttpClient client = vertx.createHttpClient(new HttpClientOptions().setMaxPoolSize(32));
        vertx.createHttpServer().requestHandler(request -> {
            HttpServerResponse response = request.response();
            switch (request.path()) {
                case "/timer" -> vertx.setTimer(5, id -> response.end("ok\n"));
                case "/cpu" -> {
                    long over = System.nanoTime() + 1_000_000;
                    while (System.nanoTime() < over) {}
                    response.end("ok\n");
                }
                default -> client.request(HttpMethod.GET, backend, "127.0.0.1", "/fast")
                    .compose(HttpClientRequest::send).compose(HttpClientResponse::body)
                    .onSuccess(body -> response.end("ok\n"));
            }
        }).listen(port, "127.0.0.1");
    }
}
