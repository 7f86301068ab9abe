{-# LANGUAGE OverloadedStrings #-}
-- A server on Haskell's Warp.   warp PORT BACKEND_PORT
import Control.Concurrent
import Network.HTTP.Types (status200)
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import Network.Wai
import Network.Wai.Handler.Warp
import System.CPUTime (getCPUTime)
import System.Environment (getArgs)

main :: IO ()
main = do
  [port, backend] <- getArgs
  idle <- newMVar []
  let settings = setPort (read port) (setHost "127.0.0.1" defaultSettings)
  runSettings settings $ \request respond -> do
    case rawPathInfo request of
      "/timer" -> threadDelay 5000
      "/cpu" -> getCPUTime >>= spin . (+ 1000000000)
      _ -> ask idle (fromIntegral (read backend :: Int))
    respond (responseLBS status200 [("Content-Length", "3")] "ok\n")

spin :: Integer -> IO ()
spin end = do
  now <- getCPUTime
  if now < end then spin end else return ()

ask :: MVar [Socket] -> PortNumber -> IO ()
ask idle port = do
  kept <- modifyMVar idle $ \sockets -> return $ case sockets of
    (one : rest) -> (rest, Just one)
    [] -> ([], Nothing)
  backend <- case kept of
    Just one -> return one
    Nothing -> do
      new <- socket AF_INET Stream 0
      connect new (SockAddrInet port (tupleToHostAddress (127, 0, 0, 1)))
      return new
  sendAll backend "GET /fast HTTP/1.1\r\nHost: here\r\n\r\n"
  _ <- recv backend 4096
  modifyMVar_ idle (return . (backend :))
