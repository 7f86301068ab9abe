package main

import (
	"io"
	"net/http"
)

// gateway asks the backend at a URL for what it is asked.
func gateway(backend string) http.HandlerFunc {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return func(answer http.ResponseWriter, request *http.Request) {
		got, err := client.Get(backend + request.URL.Path)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
			return
		}
		defer got.Body.Close()
		if _, err := io.Copy(answer, got.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
