module tailscope.invalid/goserver

go 1.19
