// Command goserver is an HTTP server with a goroutine for each connection, which asks a backend for
// some requests: goserver PORT BACKEND_PORT.
//
// At its end (SIGTERM) it prints the truth of each request as a line of JSON: how long threads worked
// for it, when another server had it, and when its answer was sent. Work is the time for which a
// thread did not wait for a CPU. How much of that time it had no CPU all the same is a doubt.
// What the runtime did to find the goroutine that went on, and the threads' ways to sleep and back,
// are not in it: how long that can have been is a doubt of its own.
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
	"sync/atomic"
	"syscall"
	"unsafe"
)

// truth is what really happened to a request.
type truth struct {
	ID         string    `json:"id"`
	Sending    int64     `json:"sending"`
	Sent       int64     `json:"sent"`
	Working    int64     `json:"working"`
	Doubt      int64     `json:"doubt"`
	Runtime    int64     `json:"runtime"`
	Send       int64     `json:"send"`
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

// thread is what is known of a thread of the process.
type thread struct {
	schedstat int          // its open file
	used      atomic.Int64 // CPU time that it had had when it last left a request
}

// threads has each thread by its id.
var threads sync.Map

// current is the thread that runs this.
func current() *thread {
	id := syscall.Gettid()
	if known, is := threads.Load(id); is {
		return known.(*thread)
	}
	file, err := syscall.Open(fmt.Sprintf("/proc/self/task/%d/schedstat", id), syscall.O_RDONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	begins := &thread{schedstat: file}
	begins.used.Store(used())
	known, _ := threads.LoadOrStore(id, begins)
	return known.(*thread)
}

// waited is the thread that runs this, and what it has waited for a CPU.
func waited() (*thread, int64) {
	on := current()
	var text [96]byte
	got, err := syscall.Pread(on.schedstat, text[:], 0)
	if err != nil {
		log.Fatal(err)
	}
	fields := bytes.Fields(text[:got])
	waits, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return on, waits
}

// used is the CPU time that the thread has had which runs this.
func used() int64 {
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
	var time syscall.Timespec
	_, _, errno := syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&time)), 0)
	if errno != 0 {
		log.Fatal(errno)
	}
	return time.Nano()
}

// work is a stretch of one goroutine's work: since when, and for how long its thread had waited for
// a CPU, and had had one, by then.
type work struct {
	thread         *thread
	at, lost, used int64
}

// mark is a moment at which the thread has not lost its CPU between the two clocks.
func mark() work {
	thread, before := waited()
	for {
		at := now()
		again, after := waited()
		if again == thread && after == before {
			return work{thread, at, after, used()}
		}
		thread, before = again, after
	}
}

// since is how long the goroutine has worked, and its CPU time; false if it has changed its thread.
func (begun work) since() (worked, used int64, same bool) {
	ends := mark()
	worked = ends.at - begun.at - (ends.lost - begun.lost)
	return worked, ends.used - begun.used, ends.thread == begun.thread
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

// begin begins a stretch of work. The CPU time that its thread has had since it left a request was the
// runtime's, and at most that was for this one.
func (j *job) begin() {
	j.begun = mark()
	j.one.Runtime += j.begun.used - j.begun.thread.used.Load()
}

// leave takes down that what the thread does next is not for the request.
func leave() (on *thread, had int64) {
	on, had = current(), used()
	on.used.Store(had)
	return on, had
}

// pause ends a stretch of work.
func (j *job) pause() {
	worked, used, same := j.begun.since()
	j.one.Working += worked
	if worked > used {
		j.one.Doubt += worked - used
	}
	j.moved = j.moved || !same
	leave()
}

// finish does what the request asks for, and answers.
func (j *job) finish(backend net.Conn) {
	spin(j.wanted["work"])
	if us := j.wanted["ask"]; us > 0 {
		j.one.Downstream = append(j.one.Downstream, ask(backend, us, j.pause))
		j.begin()
	}
	spin(j.wanted["after"])
	j.pause()
	on, had := leave()
	j.one.Sending = now()
	j.client.Write(answered)
	j.one.Sent = now()
	if still, used := leave(); still == on {
		j.one.Send = used - had
	}
	defer open.Done()
	held.Lock()
	defer held.Unlock()
	if !j.moved {
		truths = append(truths, j.one)
	}
}

func parse(client net.Conn, head []byte) *job {
	j := &job{client: client, wanted: map[string]int64{}}
	j.begin()
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
