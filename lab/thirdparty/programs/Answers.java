import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** The JDK's own HTTP server: a dispatcher, and workers that write head and body apart. */
public final class Answers {
	public static void main(String[] arguments) throws Exception {
		var address =
				new InetSocketAddress(
						InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[0]));
		var server = HttpServer.create(address, 128);
		byte[] body = "an answer\n".getBytes();
		server.createContext(
				"/",
				exchange -> {
					exchange.sendResponseHeaders(200, body.length);
					exchange.getResponseBody().write(body);
					exchange.close();
				});
		server.setExecutor(Executors.newFixedThreadPool(4));
		server.start();
	}
}
