package main

import (
	"bufio"
	"net"
	"net/textproto"
	"runtime"
	"time"
)

// job is a request that has been read, and who waits for its answer.
type job struct {
	client net.Conn
	close  bool
}

// workers has one goroutine read each connection and four, each a thread of its own, answer.
func workers(listener net.Listener) {
	jobs := make(chan job, 64)
	for range [4]struct{}{} {
		go work(jobs)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go read(client, jobs)
	}
}

func read(client net.Conn, jobs chan<- job) {
	reader := textproto.NewReader(bufio.NewReader(client))
	for {
		if _, err := reader.ReadLine(); err != nil {
			client.Close()
			return
		}
		head, err := reader.ReadMIMEHeader()
		if err != nil {
			client.Close()
			return
		}
		jobs <- job{client, head.Get("Connection") == "close"}
	}
}

func work(jobs <-chan job) {
	runtime.LockOSThread()
	for one := range jobs {
		time.Sleep(time.Millisecond)
		connection := ""
		if one.close {
			connection = "Connection: close\r\n"
		}
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n" + connection + "\r\nan answer\n"
		if _, err := one.client.Write([]byte(answer)); err != nil || one.close {
			one.client.Close()
		}
	}
}
