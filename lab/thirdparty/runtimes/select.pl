# A server that does one thing after the other, and sleeps by select.   select.pl PORT BACKEND_PORT
use strict;
use IO::Select;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes 'time';

my ($port, $backend_port) = @ARGV;
my $listener = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 128, ReuseAddr => 1) or die;
my $backend;
my $sockets = IO::Select->new($listener);
while (my @ready = $sockets->can_read) {
    for my $socket (@ready) {
        if ($socket == $listener) {
            $sockets->add($listener->accept);
            next;
        }
        my $text;
        if (!sysread($socket, $text, 4096)) {
            $sockets->remove($socket);
            close $socket;
            next;
        }
        if ($text =~ m{^GET /timer}) {
            select(undef, undef, undef, 0.005);
        } elsif ($text =~ m{^GET /cpu}) {
            my $end = time + 0.001;
            1 while time < $end;
        } else {
            $backend //= IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $backend_port);
            syswrite($backend, "GET /fast HTTP/1.1\r\nHost: here\r\n\r\n");
            sysread($backend, my $answer, 4096);
        }
        syswrite($socket, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n");
    }
}
