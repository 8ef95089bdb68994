#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace tessera {

// Answers GET and HEAD requests until it is destroyed; other methods get 405. Connections that say
// nothing for the time of `deadline` are closed. Of 16 of one address, and of 48, one more closes
// the one that has had no answer for longest, and all that have had none for the deadline.
class HttpServer {
 public:
  struct Request {
    std::string path;           // decoded, without what stands behind "?"
    std::string authorization;  // that header's value; "" where there is none
  };
  struct Reply {
    int status = 200;
    std::string body;
    std::string content_type = "text/plain; charset=utf-8";
  };
  struct Options {
    std::string address = "127.0.0.1";  // IPv4 or IPv6, in numbers; "0.0.0.0" and "::": every one
    int port = 0;                       // 0: one that is free
    std::chrono::seconds deadline{10};
  };
  // `answer` runs on the server's thread, one request at a time; what it throws is answered by 500.
  using Answer = std::function<Reply(const Request&)>;

  // UserError where nothing can be served: the port is taken, the address is not this host's, the
  // library is missing.
  HttpServer(const Options& options, Answer answer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  struct Daemon;
  std::unique_ptr<Daemon> daemon_;
};

// The same beside a run that nothing must end: where nothing can be served a warning says why, and
// there is no server.
std::unique_ptr<HttpServer> serve_if_possible(const HttpServer::Options& options,
                                              HttpServer::Answer answer);

}  // namespace tessera
