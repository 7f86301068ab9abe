// Command example is the first one of fasthttp's, on a port of the command line.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/valyala/fasthttp"
)

func main() {
	handler := func(context *fasthttp.RequestCtx) {
		fmt.Fprintf(context, "Hello, world! Requested path is %q\n", context.Path())
	}
	if err := fasthttp.ListenAndServe("127.0.0.1:"+os.Args[1], handler); err != nil {
		log.Fatal(err)
	}
}
