# A server on Tcl's event loop.   server.tcl PORT BACKEND_PORT
lassign $argv port backendPort
set idle {}

proc accepted {client address port} {
    fconfigure $client -translation binary -blocking 0 -buffering none
    fileevent $client readable [list received $client]
}

proc answer {client} {
    catch {puts -nonewline $client "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"}
}

proc received {client} {
    if {[catch {read $client} text] || [eof $client]} {
        catch {close $client}
        return
    }
    switch -glob $text {
        "GET /timer*" {after 5 [list answer $client]}
        "GET /cpu*" {
            set end [expr {[clock microseconds] + 1000}]
            while {[clock microseconds] < $end} {}
            answer $client
        }
        "GET /fast*" {ask $client}
    }
}

proc ask {client} {
    global idle backendPort
    if {[llength $idle]} {
        set backend [lindex $idle end]
        set idle [lrange $idle 0 end-1]
    } else {
        set backend [socket 127.0.0.1 $backendPort]
        fconfigure $backend -translation binary -blocking 0 -buffering none
    }
    fileevent $backend readable [list answered $backend $client]
    puts -nonewline $backend "GET /fast HTTP/1.1\r\nHost: here\r\n\r\n"
}

proc answered {backend client} {
    global idle
    read $backend
    fileevent $backend readable {}
    lappend idle $backend
    answer $client
}

socket -server accepted -myaddr 127.0.0.1 $port
vwait forever
