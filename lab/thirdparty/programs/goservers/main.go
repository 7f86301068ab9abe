// Command goservers is one of several servers of net/http, or of net, as programs in Go have them.
//
//	goservers backend PORT            answers /fast after 2 ms, /slow after 20 ms, others at once
//	goservers gateway PORT BACKEND    asks a backend for each answer, on connections that are kept
//	goservers mutex PORT              each answer needs a mutex that is held for 300 µs
//	goservers workers PORT            one goroutine reads a connection, others answer
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

var delays = map[string]time.Duration{"/fast": 2 * time.Millisecond, "/slow": 20 * time.Millisecond}

func backend(answer http.ResponseWriter, request *http.Request) {
	time.Sleep(delays[request.URL.Path])
	fmt.Fprintln(answer, "an answer")
}

var held sync.Mutex

func mutex(answer http.ResponseWriter, _ *http.Request) {
	held.Lock()
	for until := time.Now().Add(300 * time.Microsecond); time.Now().Before(until); {
	}
	held.Unlock()
	fmt.Fprintln(answer, "an answer")
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: goservers backend|gateway|mutex|workers PORT [BACKEND]")
	}
	address := "127.0.0.1:" + os.Args[2]
	handlers := map[string]http.HandlerFunc{"backend": backend, "mutex": mutex}
	switch kind := os.Args[1]; kind {
	case "backend", "mutex":
		log.Fatal(http.ListenAndServe(address, handlers[kind]))
	case "gateway":
		log.Fatal(http.ListenAndServe(address, gateway("http://127.0.0.1:"+os.Args[3])))
	case "workers":
		listener, err := net.Listen("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		workers(listener)
	default:
		log.Fatalf("no server %q", kind)
	}
}
