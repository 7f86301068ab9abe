/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As planted.c, in C++: one request in 50 computes in a member function that the compiler puts into
 * its caller. `planted REQUESTS MICROSECONDS`.
 */
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <thread>

namespace shop
{

volatile std::uint64_t sink;

/* The thread's CPU time: other threads can't make the planted function do less. */
inline std::chrono::nanoseconds cpu_time()
{
	timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

struct Cart {
	std::chrono::microseconds length;

	[[gnu::always_inline]] inline void planted_inline() const
	{
		const auto end = cpu_time() + length;

		do {
			for (int i = 0; i < 30000; i++)
				sink = sink * 6364136223846793005u + 1;
		} while (cpu_time() < end);
	}

	[[gnu::noinline]] void checkout(bool planted) const
	{
		for (int i = 0; i < 60000; i++)
			sink = sink * 1103515245 + 12345;
		if (planted)
			planted_inline();
		sink = sink + 1;
	}
};

} // namespace shop

extern "C" [[gnu::noinline]] void handle_request(const shop::Cart *cart, bool planted)
{
	cart->checkout(planted);
	shop::sink = shop::sink + 1;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	const shop::Cart cart{std::chrono::microseconds(std::atol(argv[2]))};

	for (long i = 0; i < std::atol(argv[1]); i++) {
		handle_request(&cart, i % 50 == 7);
		if (i % 8 == 0)
			std::this_thread::sleep_for(std::chrono::microseconds(50));
	}
}
