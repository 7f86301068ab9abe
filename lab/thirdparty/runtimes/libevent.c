/* A server on libevent's HTTP.   libevent PORT BACKEND_PORT */
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdlib.h>
#include <time.h>

static struct event_base *base;
static struct evhttp_connection *idle[1024];
static int idle_count, backend_port;

struct call {
	struct evhttp_request *request;
	struct evhttp_connection *backend;
};

static void answer(struct evhttp_request *request)
{
	struct evbuffer *body = evbuffer_new();

	evbuffer_add(body, "ok\n", 3);
	evhttp_send_reply(request, 200, "OK", body);
	evbuffer_free(body);
}

static void timed_out(evutil_socket_t fd, short what, void *request)
{
	answer(request);
}

static void timer(struct evhttp_request *request, void *unused)
{
	struct timeval time = {0, 5000};

	event_base_once(base, -1, EV_TIMEOUT, timed_out, request, &time);
}

static double cpu_time(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static void cpu(struct evhttp_request *request, void *unused)
{
	double end = cpu_time() + 0.001;

	while (cpu_time() < end)
		;
	answer(request);
}

static void answered(struct evhttp_request *asked, void *of)
{
	struct call *call = of;

	idle[idle_count++] = call->backend;
	answer(call->request);
	free(call);
}

static void fast(struct evhttp_request *request, void *unused)
{
	struct call *call = malloc(sizeof(*call));
	struct evhttp_request *asked = evhttp_request_new(answered, call);

	call->request = request;
	call->backend = idle_count
			    ? idle[--idle_count]
			    : evhttp_connection_base_new(base, NULL, "127.0.0.1", backend_port);
	evhttp_add_header(evhttp_request_get_output_headers(asked), "Host", "here");
	evhttp_add_header(evhttp_request_get_output_headers(asked), "Connection", "keep-alive");
	evhttp_make_request(call->backend, asked, EVHTTP_REQ_GET, "/fast");
}

int main(int count, char **words)
{
	struct evhttp *http;

	if (count != 3)
		return 2;
	base = event_base_new();
	http = evhttp_new(base);
	backend_port = atoi(words[2]);
	evhttp_set_cb(http, "/timer", timer, NULL);
	evhttp_set_cb(http, "/cpu", cpu, NULL);
	evhttp_set_cb(http, "/fast", fast, NULL);
	if (evhttp_bind_socket(http, "127.0.0.1", atoi(words[1])))
		return 1;
	return event_base_dispatch(base);
}
