// A server on Asio, whose timers are timerfds.   asio PORT BACKEND_PORT THREADS
#include <asio.hpp>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using asio::ip::tcp;

static const std::string answer_text = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
static const std::string ask_text = "GET /fast HTTP/1.1\r\nHost: here\r\n\r\n";
static unsigned short backend_port;
static std::mutex idle_lock;
static std::vector<std::shared_ptr<tcp::socket>> idle;

static double cpu_time()
{
	timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

struct Connection : std::enable_shared_from_this<Connection> {
	tcp::socket socket;
	asio::steady_timer timer;
	char text[4096], answered[4096];

	explicit Connection(tcp::socket from) : socket(std::move(from)), timer(socket.get_executor()) {}

	void receive()
	{
		socket.async_read_some(asio::buffer(text), [me = shared_from_this()](auto error, size_t n) {
			if (!error)
				me->serve(std::string(me->text, n));
		});
	}

	void serve(const std::string &request)
	{
		if (request.rfind("GET /timer", 0) == 0) {
			timer.expires_after(std::chrono::milliseconds(5));
			timer.async_wait([me = shared_from_this()](auto) { me->answer(); });
		} else if (request.rfind("GET /cpu", 0) == 0) {
			for (double end = cpu_time() + 0.001; cpu_time() < end;)
				;
			answer();
		} else {
			ask();
		}
	}

	void ask()
	{
		std::shared_ptr<tcp::socket> backend;
		{
			std::lock_guard<std::mutex> guard(idle_lock);
			if (!idle.empty()) {
				backend = idle.back();
				idle.pop_back();
			}
		}
		if (!backend) {
			backend = std::make_shared<tcp::socket>(socket.get_executor());
			backend->connect({asio::ip::address_v4::loopback(), backend_port});
		}
		asio::write(*backend, asio::buffer(ask_text));
		backend->async_read_some(asio::buffer(answered), [me = shared_from_this(), backend](auto, size_t) {
			{
				std::lock_guard<std::mutex> guard(idle_lock);
				idle.push_back(backend);
			}
			me->answer();
		});
	}

	void answer()
	{
		asio::async_write(socket, asio::buffer(answer_text), [me = shared_from_this()](auto error, size_t) {
			if (!error)
				me->receive();
		});
	}
};

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	backend_port = std::atoi(words[2]);
	asio::io_context context;
	tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), static_cast<unsigned short>(std::atoi(words[1]))});
	std::function<void()> accept = [&] {
		acceptor.async_accept([&](auto error, tcp::socket socket) {
			if (!error)
				std::make_shared<Connection>(std::move(socket))->receive();
			accept();
		});
	};
	accept();
	std::vector<std::thread> threads;
	for (int i = 1; i < std::atoi(words[3]); i++)
		threads.emplace_back([&] { context.run(); });
	context.run();
}
