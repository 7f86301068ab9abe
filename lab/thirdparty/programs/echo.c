// The emptiest HTTP server: one thread, one epoll, one read and one write a request. What its
// clients see above what is recorded of it is the network path and the client's own part.
//
// usage: echo PORT [EVERY KIB]    one request in EVERY touches that much fresh memory first

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const char kept[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
static const char last[] = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

static void watch(int poll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) < 0) {
		perror("echo: epoll_ctl");
		exit(1);
	}
}

static void touch_fresh(size_t bytes)
{
	char *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("echo: mmap");
		exit(1);
	}
	// A page at a time, not two MiB.
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
	munmap(memory, bytes);
}

static long every, fresh_kib, answered;

// Requests are small enough to come in one piece.
static void serve(int fd)
{
	char request[4096];
	ssize_t n = read(fd, request, sizeof request - 1);
	if (n <= 0) {
		close(fd);
		return;
	}
	request[n] = 0;
	if (every && ++answered % every == 0)
		touch_fresh((size_t)fresh_kib << 10);
	const int ends = strstr(request, "Connection: close") != NULL;
	const char *answer = ends ? last : kept;
	if (write(fd, answer, strlen(answer)) < 0 || ends)
		close(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port =
					  htons(argc > 1 ? (unsigned short)atoi(argv[1]) : 0),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (argc > 3) {
		every = atol(argv[2]);
		fresh_kib = atol(argv[3]);
	}
	const int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(listener, 128) < 0) {
		perror("echo: bind");
		return 1;
	}
	const int poll = epoll_create1(0);
	watch(poll, listener);
	for (;;) {
		struct epoll_event event;
		if (epoll_wait(poll, &event, 1, -1) < 1)
			continue;
		if (event.data.fd != listener) {
			serve(event.data.fd);
			continue;
		}
		const int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		watch(poll, fd);
	}
}
