import java.io.IOException;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.handler.AbstractHandler;

/** Jetty's own first example, embedded, on a port of the command line. */
public final class Hello extends AbstractHandler {
	@Override
	public void handle(
			String target, Request base, HttpServletRequest request, HttpServletResponse response)
			throws IOException {
		response.setContentType("text/html; charset=utf-8");
		response.setStatus(HttpServletResponse.SC_OK);
		response.getWriter().println("<h1>Hello World</h1>");
		base.setHandled(true);
	}

	public static void main(String[] arguments) throws Exception {
		var server = new Server(Integer.parseInt(arguments[0]));
		server.setHandler(new Hello());
		server.start();
		server.join();
	}
}
