# A server on Crystal's own HTTP.   crystal_server PORT BACKEND_PORT
require "http/client"
require "http/server"

port, backend = ARGV.map(&.to_i)
idle = [] of HTTP::Client

server = HTTP::Server.new do |context|
  case context.request.path
  when "/timer" then sleep 5.milliseconds
  when "/cpu"
    start = Time.monotonic
    while Time.monotonic - start < 1.millisecond
    end
  else
    client = idle.pop? || HTTP::Client.new("127.0.0.1", backend)
    client.get "/fast"
    idle << client
  end
  context.response.content_length = 3
  context.response.print "ok\n"
end
server.listen "127.0.0.1", port
