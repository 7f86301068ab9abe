// SPDX-License-Identifier: Apache-2.0
/*
 * What the SDK takes from a recorder's answer: both descriptors of a good one, and of no other any,
 * whatever came with it.
 */
#include <tailscope.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int holds, const char *what)
{
	if (holds)
		return;
	failures++;
	printf("not so: %s\n", what);
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void send_answer(int s, ts_u32 abi, ts_u32 status, int count)
{
	struct ts_answer answer;
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec part = {&answer, sizeof(answer)};
	struct msghdr message;
	int fds[2] = {0, 1};

	memset(&answer, 0, sizeof(answer));
	answer.magic = TS_MAGIC;
	answer.abi = abi;
	answer.status = status;
	memset(&message, 0, sizeof(message));
	message.msg_iov = &part;
	message.msg_iovlen = 1;
	if (count) {
		struct cmsghdr *c;

		message.msg_control = control.space;
		message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
	}
	expect(sendmsg(s, &message, 0) == (ssize_t)sizeof(answer), "the answer is sent");
}

static int answered(ts_u32 abi, ts_u32 status, int count, int fds[2])
{
	int ends[2], e;

	expect(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "a pair of sockets");
	send_answer(ends[0], abi, status, count);
	e = ts__receive(ends[1], fds);
	close(ends[0]);
	close(ends[1]);
	return e;
}

int main(void)
{
	int before = descriptors(), fds[2];

	for (int i = 0; i < 3; i++) {
		expect(answered(TS_ABI + 1, TS_ACCEPTED, 2, fds) == EPROTO, "another version");
		expect(answered(TS_ABI, TS_NOT_WATCHED, 2, fds) == ESRCH, "not watched");
		expect(answered(TS_ABI, TS_NO_ROOM, 2, fds) == EPROTO, "no room");
		expect(answered(TS_ABI, TS_ACCEPTED, 0, fds) == EPROTO, "no descriptors");
		expect(answered(TS_ABI, TS_ACCEPTED, 1, fds) == EPROTO, "one descriptor");
	}
	expect(descriptors() == before, "bad answers leave no descriptors");
	expect(answered(TS_ABI, TS_ACCEPTED, 2, fds) == 0, "a good answer");
	expect(descriptors() == before + 2, "both descriptors");
	return failures != 0;
}
