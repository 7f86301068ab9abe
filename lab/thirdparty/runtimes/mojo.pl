# A server on Mojolicious.   mojo.pl PORT BACKEND_PORT
use Mojolicious::Lite -signatures;
use Time::HiRes 'time';

my ($port, $backend) = @ARGV;
my $asks = Mojo::UserAgent->new;
app->log->level('fatal');

get '/timer' => sub ($c) {
    $c->render_later;
    Mojo::IOLoop->timer(0.005 => sub { $c->render(text => "ok\n") });
};
get '/cpu' => sub ($c) {
    my $end = time + 0.001;
    1 while time < $end;
    $c->render(text => "ok\n");
};
get '/fast' => sub ($c) {
    $c->render_later;
    $asks->get("http://127.0.0.1:$backend/fast" => sub { $c->render(text => "ok\n") });
};
app->start('daemon', '-l', "http://127.0.0.1:$port", '-i', '1000');
