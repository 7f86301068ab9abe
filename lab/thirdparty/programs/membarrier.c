// Interrupts every CPU that runs a process which has registered for it (membarrier(2)), again and
// again. Preloaded as a library, it registers the process that it is loaded into.

#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

__attribute__((constructor)) static void take_part(void)
{
	if (membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) < 0)
		perror("membarrier: can't register");
}

int main(void)
{
	// The pause leaves others some of this CPU; a real-time thread's is as long as it says.
	for (unsigned n = 1; membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0; n++)
		if (n % 32 == 0)
			usleep(30);
	perror("membarrier: can't interrupt");
	return 1;
}
