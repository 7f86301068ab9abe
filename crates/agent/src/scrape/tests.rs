use super::*;

#[test]
fn heads_are_understood_when_they_are_whole() {
    assert_eq!(asked(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
    for (head, expected) in [
        ("GET /metrics HTTP/1.1\r\n\r\n", Asked::Metrics),
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Asked::Metrics),
        ("GET / HTTP/1.1\r\n\r\n", Asked::Elsewhere),
        ("POST /metrics HTTP/1.1\r\n\r\n", Asked::Otherwise),
        ("\x16\x03\x01\r\n\r\n", Asked::Nonsense),
    ] {
        assert_eq!(asked(head.as_bytes()), Some(expected), "{head}");
    }
}

fn listening() -> (Scrape, Arc<ScrapeRequests>) {
    let waker = Arc::new(Waker::new().expect("a waker"));
    let scrape_requests = Arc::new(ScrapeRequests::new(waker));
    let here = TcpListener::bind("127.0.0.1:0").expect("a port");
    let scrape = Scrape::start(here, Arc::clone(&scrape_requests)).expect("it listens");
    (scrape, scrape_requests)
}

/// Asks once, and gets the figures.
fn scraped(address: SocketAddr) {
    let mut text = String::new();
    let mut asking = TcpStream::connect(address).expect("connected");
    asking
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .expect("asked");
    asking.read_to_string(&mut text).expect("answered");
    assert!(text.ends_with("\r\n\r\nfigures 1\n"), "{text}");
}

#[test]
fn a_flood_of_scrapes_has_the_figures_put_together_a_few_times_a_second() {
    let (scrape, scrape_requests) = listening();
    let address = scrape.address();
    let began = Instant::now();
    let clients: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || (0..10).for_each(|_| scraped(address))))
        .collect();
    let mut times = 0;
    while !clients.iter().all(std::thread::JoinHandle::is_finished) {
        scrape_requests.answer(|| {
            times += 1;
            "figures 1\n".into()
        });
        std::thread::yield_now();
    }
    let most = began.elapsed().as_millis() / ASKED_EVERY.as_millis() + 1;
    assert!(times > 0 && times <= most, "{times} times, not {most}");
    clients
        .into_iter()
        .for_each(|client| client.join().expect("it was answered"));
}

#[test]
fn a_silent_client_holds_up_nobody_and_the_thread_ends() {
    let (scrape, scrape_requests) = listening();
    let silent: Vec<_> = (0..3 * MOST)
        .map(|_| TcpStream::connect(scrape.address()).expect("connected"))
        .collect();
    let address = scrape.address();
    let answering = std::thread::spawn(move || scraped(address));
    while !answering.is_finished() {
        scrape_requests.answer(|| "figures 1\n".into());
        std::thread::yield_now();
    }
    answering.join().expect("it is answered");
    drop((silent, scrape));
}
