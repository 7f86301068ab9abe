// SPDX-License-Identifier: Apache-2.0
/*
 * A key-value server, annotated: enough of memcached's text protocol (get, set, version, quit)
 * for the load generator. A span is one request, from when its last byte was received until its
 * reply was sent.
 */
#include <tailscope.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "options.h"
#include "run.h"
#include "store.h"

#define LONGEST_KEY 250u
#define LARGEST_VALUE (1u << 20)
#define INBOX (LARGEST_VALUE + 1024)

struct connection {
	int socket;
	size_t used;
	char inbox[INBOX];
};

struct request {
	bool is_set;
	const char *key; /* of a get: all keys, with spaces between them */
	size_t key_length;
	unsigned long flags;
	const char *value;
	size_t value_length;
	size_t length; /* of all of it */
};

enum parsed {
	WHOLE,
	PARTIAL,
	GARBLED,
	VERSION,
	QUIT,
};

static uint64_t port = 11300, threads = 1, cpu = UINT64_MAX;
static uint64_t fresh_every;
static bool bare, split;
static int *epolls, listener;

/* Reads `<key>` and the numbers behind it from a line that ends with a zero byte. */
static enum parsed parse_set(struct request *r, char *line, size_t head, size_t used)
{
	long expires;
	int key_end = 0;

	if (sscanf(line, "set %*250s%n %lu %ld %zu", &key_end, &r->flags, &expires,
		   &r->value_length) != 3 ||
	    r->value_length > LARGEST_VALUE)
		return GARBLED;
	r->key_length = (size_t)key_end - 4;
	r->value = line + head;
	r->length = head + r->value_length + 2;
	return used < r->length ? PARTIAL : WHOLE;
}

/* One or more keys, with a space between two. */
static bool are_keys(const char *keys)
{
	for (;; keys++) {
		size_t length = strcspn(keys, " ");

		if (!length || length > LONGEST_KEY)
			return false;
		keys += length;
		if (!*keys)
			return true;
	}
}

/* Looks at the first request of `used` bytes. */
static enum parsed parse(struct request *r, char *bytes, size_t used)
{
	char *end = memmem(bytes, used, "\r\n", 2);
	enum parsed result = GARBLED;

	if (!end)
		return used > 1024 ? GARBLED : PARTIAL;
	*end = '\0';
	r->length = (size_t)(end - bytes) + 2;
	r->key = bytes + 4;
	r->is_set = !strncmp(bytes, "set ", 4);
	if (r->is_set) {
		result = parse_set(r, bytes, r->length, used);
	} else if (!strncmp(bytes, "get ", 4)) {
		r->key_length = strlen(r->key);
		if (are_keys(r->key))
			result = WHOLE;
	} else if (!strcmp(bytes, "version")) {
		result = VERSION;
	} else if (!strcmp(bytes, "quit")) {
		result = QUIT;
	}
	*end = '\r'; /* a request that isn't whole is read again */
	return result;
}

/* Sends all of it, waiting for room if it must. Returns false if the client is gone. */
static bool send_all(int socket, const char *bytes, size_t length)
{
	while (length) {
		ssize_t sent = send(socket, bytes, length, MSG_NOSIGNAL);
		struct pollfd room = {socket, POLLOUT, 0};

		if (sent < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		if (sent < 0)
			poll(&room, 1, -1);
		else
			bytes += sent, length -= (size_t)sent;
	}
	return true;
}

/* Sends the values of the keys that are there. */
static bool answer_get(int socket, const struct request *r)
{
	static _Thread_local char reply[INBOX], value[LARGEST_VALUE];
	const char *key = r->key, *end = r->key + r->key_length;
	size_t used = 0;

	for (size_t key_length; key < end; key += key_length + 1) {
		unsigned long flags;
		long length;

		key_length = strcspn(key, " \r");
		length = store_get(key, key_length, &flags, value, sizeof(value));
		if (length < 0)
			continue;
		if (used + key_length + (size_t)length + 64 > sizeof(reply))
			return send_all(socket, "SERVER_ERROR out of memory\r\n", 28);
		used +=
		    (size_t)snprintf(reply + used, sizeof(reply) - used, "VALUE %.*s %lu %ld\r\n",
				     (int)key_length, key, flags, length);
		memcpy(reply + used, value, (size_t)length);
		memcpy(reply + used + length, "\r\n", 2);
		used += (size_t)length + 2;
	}
	memcpy(reply + used, "END\r\n", 5);
	if (split && used) {
		/* The fault is here: a second small write waits for the first one's acknowledgement. */
		if (!send_all(socket, reply, used))
			return false;
		return send_all(socket, reply + used, 5);
	}
	return send_all(socket, reply, used + 5);
}

#define FRESH (32u << 20)
#define HUGE_PAGE (2u << 20)

/* The other fault: memory that is touched for the first time, in huge pages that the kernel has to
 * clear, while a client waits. */
static void touch_fresh_memory(void)
{
	char *memory = mmap(NULL, FRESH + HUGE_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *aligned;

	if (memory == MAP_FAILED)
		return;
	aligned = (char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	madvise(aligned, FRESH, MADV_HUGEPAGE);
	for (size_t at = 0; at < FRESH; at += HUGE_PAGE)
		*(volatile char *)(aligned + at) = 1;
	munmap(memory, FRESH + HUGE_PAGE);
}

static bool answer(int socket, const struct request *r)
{
	static _Thread_local uint64_t gets;

	if (!r->is_set) {
		if (fresh_every && ++gets % fresh_every == 0)
			touch_fresh_memory();
		return answer_get(socket, r);
	}
	if (store_set(r->key, r->key_length, r->flags, r->value, r->value_length))
		return send_all(socket, "SERVER_ERROR out of memory\r\n", 28);
	return send_all(socket, "STORED\r\n", 8);
}

static bool serve_request(int socket, const struct request *r)
{
	static _Thread_local int64_t served;
	ts_span span;
	bool sent;

	if (bare)
		return answer(socket, r);
	ts_span_begin(&span, r->is_set ? "set" : "get");
	sent = answer(socket, r);
	ts_span_end_id(&span, ++served);
	return sent;
}

/* Serves every whole request that was received. Returns false to close. */
static bool serve(struct connection *c)
{
	size_t at = 0;
	bool open = true;

	while (open && at < c->used) {
		struct request r;
		enum parsed parsed = parse(&r, c->inbox + at, c->used - at);

		if (parsed == PARTIAL)
			break;
		if (parsed == WHOLE) {
			open = serve_request(c->socket, &r);
			at += r.length;
		} else if (parsed == VERSION) {
			open = send_all(c->socket, "VERSION lab\r\n", 13);
			at += r.length;
		} else {
			if (parsed == GARBLED)
				send_all(c->socket, "ERROR\r\n", 7);
			open = false;
		}
	}
	memmove(c->inbox, c->inbox + at, c->used - at);
	c->used -= at;
	return open && c->used < INBOX;
}

static void receive(struct connection *c)
{
	ssize_t n = recv(c->socket, c->inbox + c->used, INBOX - c->used, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		c->used += (size_t)n;
		if (serve(c))
			return;
	}
	close(c->socket); /* which takes it out of the epoll */
	free(c);
}

/* Gives a new client to the threads in turn. */
static void accept_client(void)
{
	static unsigned turn;
	int one = 1, socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct connection *c;
	struct epoll_event event = {.events = EPOLLIN};

	if (socket < 0)
		return;
	if (!split)
		setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* Not calloc: untouched pages of the inbox cost nothing. */
	c = malloc(sizeof(*c));
	if (!c) {
		close(socket);
		return;
	}
	c->socket = socket;
	c->used = 0;
	event.data.ptr = c;
	if (epoll_ctl(epolls[turn++ % threads], EPOLL_CTL_ADD, socket, &event)) {
		close(socket);
		free(c);
	}
}

static void *run(void *argument)
{
	int epoll = *(int *)argument;
	struct epoll_event events[64];

	for (;;) {
		int n = epoll_wait(epoll, events, 64, -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				receive(events[i].data.ptr);
			else
				accept_client();
		}
	}
	return NULL;
}

static void fail(const char *what)
{
	fprintf(stderr, "kvserver: %s: %s\n", what, strerror(errno));
	exit(3);
}

static void listen_on(uint64_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int one = 1;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 1024))
		fail("can't listen on 127.0.0.1 at --port");
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"port", "TCP port on 127.0.0.1", .number = &port},
	    {"threads", "threads that serve", .number = &threads},
	    {"cpu", "keep all threads on this CPU", .number = &cpu},
	    {"bare", "leave out the annotation, to see what it costs", .flag = &bare},
	    {"split", "answer a get in two writes, and leave Nagle's algorithm on", .flag = &split},
	    {"fresh-every", "each so many gets one touches 32 MiB of fresh huge pages; 0: none",
	     .number = &fresh_every},
	    {0},
	};
	const struct option *const tables[] = {options, NULL};
	struct epoll_event event = {.events = EPOLLIN};

	options_parse(argc, argv,
		      "kvserver: a key-value server with a span around each request.\n"
		      "Runs until it is killed.",
		      tables);
	if (!threads || threads > 1024 || !port || port > 65535) {
		fprintf(stderr, "kvserver: --threads from 1 to 1024, --port from 1 to 65535\n");
		return 2;
	}
	stay_on(cpu);
	store_prepare();
	listen_on(port);
	epolls = calloc(threads, sizeof(*epolls));
	if (!epolls)
		fail("no memory");
	for (uint64_t i = 0; i < threads; i++)
		if ((epolls[i] = epoll_create1(EPOLL_CLOEXEC)) < 0)
			fail("epoll_create1");
	epoll_ctl(epolls[0], EPOLL_CTL_ADD, listener, &event);
	for (uint64_t i = 1; i < threads; i++) {
		pthread_t thread;

		errno = pthread_create(&thread, NULL, run, &epolls[i]);
		if (errno)
			fail("can't start a thread");
	}
	run(&epolls[0]);
}
