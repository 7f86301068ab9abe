// Command goserver is an HTTP server with a goroutine for each connection, which asks a backend for
// some requests: goserver PORT BACKEND_PORT.
//
// At its end (SIGTERM) it prints the truth of each request as a line of JSON: how long threads worked
// for it, when another server had it, and when its answer was sent. What the runtime does to find a
// goroutine that can go on is not in it.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	_ "unsafe" // for linkname
)

// truth is what really happened to a request.
type truth struct {
	ID         string    `json:"id"`
	Sending    int64     `json:"sending"`
	Sent       int64     `json:"sent"`
	Working    int64     `json:"working"`
	Downstream [][]int64 `json:"downstream"`
}

var (
	held     sync.Mutex
	truths   []truth
	open     sync.WaitGroup // requests
	number   = regexp.MustCompile(`(\w+)=(\d+)`)
	endOfIt  = []byte("\r\n\r\n")
	answered = []byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
)

//go:linkname now runtime.nanotime
func now() int64

// schedstats has the open file of each thread.
var schedstats sync.Map

// waited is the thread that runs this, and what it has waited for a CPU.
func waited() (int, int64) {
	thread := syscall.Gettid()
	file, is := schedstats.Load(thread)
	if !is {
		fd, err := syscall.Open(fmt.Sprintf("/proc/self/task/%d/schedstat", thread), syscall.O_RDONLY, 0)
		if err != nil {
			log.Fatal(err)
		}
		file, _ = schedstats.LoadOrStore(thread, fd)
	}
	var text [96]byte
	got, err := syscall.Pread(file.(int), text[:], 0)
	if err != nil {
		log.Fatal(err)
	}
	fields := bytes.Fields(text[:got])
	waits, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return thread, waits
}

// work is a stretch of one goroutine's work.
type work struct {
	thread   int
	at, lost int64
}

// mark is a moment at which the thread has not lost its CPU between the two clocks.
func mark() work {
	thread, before := waited()
	for {
		at := now()
		again, after := waited()
		if again == thread && after == before {
			return work{thread, at, after}
		}
		thread, before = again, after
	}
}

// since is how long the goroutine has worked; false if it has changed its thread.
func (begun work) since() (int64, bool) {
	ends := mark()
	return ends.at - begun.at - (ends.lost - begun.lost), ends.thread == begun.thread
}

func spin(us int64) {
	for until := now() + us*1000; now() < until; {
	}
}

// receive reads up to an empty line and what came with it.
func receive(connection net.Conn, into []byte) ([]byte, error) {
	length := 0
	for {
		got, err := connection.Read(into[length:])
		length += got
		if err != nil {
			return nil, err
		}
		if bytes.Contains(into[:length], endOfIt) {
			return into[:length], nil
		}
	}
}

// ask asks the backend, and returns the moments of the question and of the answer.
func ask(backend net.Conn, us int64, asked func()) []int64 {
	fmt.Fprintf(backend, "GET /ask?ask=%d HTTP/1.1\r\n\r\n", us)
	asked()
	since := now()
	var text [1024]byte
	answer, err := receive(backend, text[:])
	if err != nil {
		log.Fatal(err)
	}
	_, body, _ := bytes.Cut(answer, endOfIt)
	at, err := strconv.ParseInt(string(bytes.TrimSpace(body)), 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return []int64{since, at}
}

// job is a request that has been received, and the work for it since.
type job struct {
	client net.Conn
	one    truth
	wanted map[string]int64
	begun  work
	moved  bool // to another thread while it worked: how long that took is not known
}

// pause ends a stretch of work.
func (j *job) pause() {
	worked, same := j.begun.since()
	j.one.Working += worked
	j.moved = j.moved || !same
}

// finish does what the request asks for, and answers.
func (j *job) finish(backend net.Conn) {
	spin(j.wanted["work"])
	if us := j.wanted["ask"]; us > 0 {
		j.one.Downstream = append(j.one.Downstream, ask(backend, us, j.pause))
		j.begun = mark()
	}
	spin(j.wanted["after"])
	j.pause()
	j.one.Sending = now()
	j.client.Write(answered)
	j.one.Sent = now()
	defer open.Done()
	held.Lock()
	defer held.Unlock()
	if !j.moved {
		truths = append(truths, j.one)
	}
}

func parse(client net.Conn, head []byte) *job {
	j := &job{client: client, begun: mark(), wanted: map[string]int64{}}
	target := bytes.Fields(head)[1]
	for _, pair := range number.FindAllSubmatch(target, -1) {
		j.wanted[string(pair[1])], _ = strconv.ParseInt(string(pair[2]), 10, 64)
	}
	path, _, _ := bytes.Cut(target, []byte("?"))
	j.one.ID = string(bytes.TrimPrefix(path, []byte("/w/")))
	j.one.Downstream = [][]int64{}
	return j
}

func connect(address string) net.Conn {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

// serve finishes the requests of a connection.
func serve(client net.Conn, address string) {
	defer client.Close()
	backend := connect(address)
	defer backend.Close()
	var text [1024]byte
	for {
		head, err := receive(client, text[:])
		if err != nil {
			return
		}
		open.Add(1)
		parse(client, head).finish(backend)
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: goserver PORT BACKEND_PORT")
	}
	address := "127.0.0.1:" + os.Args[2]
	debug.SetGCPercent(-1) // a collection's work would be nobody's
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(client, address)
		}
	}()
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	<-ends
	open.Wait()
	for _, one := range truths {
		line, _ := json.Marshal(one)
		fmt.Println(string(line))
	}
}
