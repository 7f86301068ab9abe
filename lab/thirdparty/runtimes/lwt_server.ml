(* A server on OCaml's Lwt and Cohttp.   lwt_server PORT BACKEND_PORT *)
open Lwt.Infix

let port = int_of_string Sys.argv.(1)
let backend = int_of_string Sys.argv.(2)
let idle = Queue.create ()

let connect () =
  let socket = Lwt_unix.socket Unix.PF_INET Unix.SOCK_STREAM 0 in
  Lwt_unix.connect socket (Unix.ADDR_INET (Unix.inet_addr_loopback, backend)) >|= fun () -> socket

let ask () =
  (if Queue.is_empty idle then connect () else Lwt.return (Queue.pop idle)) >>= fun socket ->
  let request = "GET /fast HTTP/1.1\r\nHost: here\r\n\r\n" in
  Lwt_unix.write_string socket request 0 (String.length request) >>= fun _ ->
  Lwt_unix.read socket (Bytes.create 4096) 0 4096 >|= fun _ -> Queue.push socket idle

let spin () =
  let over = Sys.time () +. 0.001 in
  while Sys.time () < over do () done;
  Lwt.return_unit

let answer _ request _ =
  (match Uri.path (Cohttp.Request.uri request) with
  | "/timer" -> Lwt_unix.sleep 0.005
  | "/cpu" -> spin ()
  | _ -> ask ())
  >>= fun () -> Cohttp_lwt_unix.Server.respond_string ~status:`OK ~body:"ok\n" ()

let () =
  let server = Cohttp_lwt_unix.Server.make ~callback:answer () in
  Lwt_main.run (Cohttp_lwt_unix.Server.create ~mode:(`TCP (`Port port)) server)
