#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace tessera {

// A connection to a server of this host that is given up after a hundred seconds.
class LoopbackConnection {
 public:
  explicit LoopbackConnection(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{100, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~LoopbackConnection() { ::close(fd_); }
  LoopbackConnection(const LoopbackConnection&) = delete;
  LoopbackConnection& operator=(const LoopbackConnection&) = delete;

  bool connected() const { return connected_; }
  void send(std::string_view text) { (void)::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // All that comes until the server closes; "" where it does not in time.
  std::string receive() {
    std::string all;
    char part[4096];
    ssize_t size = 0;
    while ((size = ::recv(fd_, part, sizeof part, 0)) > 0)
      all.append(part, static_cast<size_t>(size));
    return size == 0 ? all : "";
  }

 private:
  int fd_;
  bool connected_ = false;
};

// The whole answer, with its head.
inline std::string http_answer(int port, const std::string& path, const std::string& method = "GET",
                               const std::string& more = "") {
  LoopbackConnection connection(port);
  connection.send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                  more + "\r\n");
  return connection.receive();
}

}  // namespace tessera
