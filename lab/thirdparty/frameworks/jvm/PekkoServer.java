// A server on Pekko.   PekkoServer PORT BACKEND_PORT
import java.time.Duration;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CompletableFuture;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.http.javadsl.Http;
import org.apache.pekko.http.javadsl.model.*;
import org.apache.pekko.japi.function.Function;
import org.apache.pekko.pattern.Patterns;
import org.apache.pekko.stream.Materializer;

public class PekkoServer {
    static HttpResponse ok() { return HttpResponse.create().withEntity("ok\n"); }

    public static void main(String[] args) {
        int port = Integer.parseInt(args[0]), backend = Integer.parseInt(args[1]);
        ActorSystem system = ActorSystem.create("lab");
        Materializer materializer = Materializer.matFromSystem(system);
        Http http = Http.get(system);
        HttpRequest fast = HttpRequest.create("http://127.0.0.1:" + backend + "/fast");
        Function<HttpRequest, CompletionStage<HttpResponse>> answer = request ->
            switch (request.getUri().path()) {
                case "/timer" -> Patterns.after(Duration.ofMillis(5), system,
                    () -> CompletableFuture.completedFuture(ok()));
                case "/cpu" -> {
                    long over = System.nanoTime() + 1_000_000;
                    while (System.nanoTime() < over) {}
                    yield CompletableFuture.completedFuture(ok());
                }
                default -> http.singleRequest(fast)
                    .thenCompose(back -> back.entity().toStrict(1000, materializer))
                    .thenApply(body -> ok());
            };
        http.newServerAt("127.0.0.1", port).bind(answer);
    }
}
