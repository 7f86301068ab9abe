# A server on Puma.   puma_server.rb PORT BACKEND_PORT
require "net/http"
require "puma"

PORT, BACKEND = ARGV.map(&:to_i)

def backend
  Thread.current[:backend] ||= Net::HTTP.start("127.0.0.1", BACKEND)
end

def cpu
  Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
end

answer = lambda do |env|
  case env["PATH_INFO"]
  when "/timer" then sleep 0.005
  when "/cpu"
    over = cpu + 0.001
    nil while cpu < over
  else backend.get("/fast")
  end
  [200, { "content-length" => "3" }, ["ok\n"]]
end

server = Puma::Server.new(answer, Puma::Events.stdio, min_threads: 8, max_threads: 8)
server.add_tcp_listener("127.0.0.1", PORT)
server.run.join
