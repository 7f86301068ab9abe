// SPDX-License-Identifier: Apache-2.0
// The header in C++: a span as an object, ended also by an exception, on threads.
#include <tailscope.h>

#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "work.h"

namespace
{

constexpr int kThreads = 3;
constexpr int kSpans = 500;

class Scope
{
      public:
	Scope(const char *name, std::int64_t id) : id_(id)
	{
		ts_span_begin(&span_, name);
	}
	~Scope()
	{
		ts_span_end_id(&span_, id_);
	}
	Scope(const Scope &) = delete;
	Scope &operator=(const Scope &) = delete;

      private:
	ts_span span_;
	std::int64_t id_;
};

int run_spans(int thread)
{
	int caught = 0;

	for (int i = 0; i < kSpans; i++) {
		try {
			Scope scope("scoped", thread * kSpans + i);
			spin(5000);
			if (i % 2)
				throw std::runtime_error("half of them end like this");
		} catch (const std::runtime_error &) {
			caught++;
		}
	}
	return caught;
}

} // namespace

int main()
{
	std::vector<std::thread> threads;

	for (int i = 0; i < kThreads; i++)
		threads.emplace_back(run_spans, i);
	for (auto &thread : threads)
		thread.join();
	return 0;
}
