/* SPDX-License-Identifier: Apache-2.0 */
/* As much of HTTP/1 as the servers need that write down the truth of their requests: a request is
 * `GET /w/ID?KEY=NUMBER&… HTTP/1.1` with an empty body, on a connection that is kept. */
#ifndef LAB_HTTP_H
#define LAB_HTTP_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_BYTES 1024

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline struct sockaddr_in local_port(uint64_t port)
{
	return (struct sockaddr_in){
	    .sin_family = AF_INET,
	    .sin_port = htons((uint16_t)port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

static inline int listen_on(uint64_t port)
{
	struct sockaddr_in at = local_port(port);
	int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(s, (struct sockaddr *)&at, sizeof(at)) || listen(s, 512))
		die("listen");
	return s;
}

static inline int connect_to(uint64_t port)
{
	struct sockaddr_in at = local_port(port);
	int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (s < 0 || connect(s, (struct sockaddr *)&at, sizeof(at)))
		die("connect");
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return s;
}

/* Reads up to the empty line; false: the connection has ended. */
static inline bool read_head(int s, char *head)
{
	size_t have = 0;

	for (;;) {
		ssize_t n = recv(s, head + have, REQUEST_BYTES - 1 - have, 0);

		if (n <= 0)
			return false;
		have += (size_t)n;
		head[have] = '\0';
		if (strstr(head, "\r\n\r\n"))
			return true;
		if (have == REQUEST_BYTES - 1)
			return false;
	}
}

/* A number of the request's query; 0 without it. */
static inline uint64_t number_of(const char *head, const char *key)
{
	const char *at = strstr(head, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static inline void answer(int s, const char *body)
{
	char text[REQUEST_BYTES];
	int length =
	    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
		     strlen(body), body);

	if (send(s, text, (size_t)length, MSG_NOSIGNAL) < 0)
		perror("send");
}

#endif
