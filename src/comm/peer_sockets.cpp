#include "comm/peer_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "comm/health.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

constexpr char kMagic[8] = "tessera";
constexpr uint32_t kMaxTokenBytes = 256;
constexpr char kWelcome = 'w', kRefused = 'r';
// A stranger that connects and says nothing holds the others up no longer than this.
constexpr milliseconds kHelloTime{5000};

// The first words of who connects; the token follows.
struct Hello {
  char magic[8];
  uint32_t protocol, rank, attempt, world_size, token_bytes, reserved;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress unix_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The first byte stays zero: the name is no file.
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  SocketAddress result;
  std::memcpy(&result.storage, &address, sizeof address);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

SocketAddress tcp_address(const std::string& address, int port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0)
    throw CommError(cat("'", address, "' is not a network address"));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  SocketAddress result;
  std::memcpy(&result.storage, list->ai_addr, list->ai_addrlen);
  result.size = list->ai_addrlen;
  return result;
}

FileDescriptor stream_socket(int family) {
  FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw CommError(cat("cannot make a socket: ", std::strerror(errno)));
  return fd;
}

FileDescriptor listen_on(const SocketAddress& address, const std::string& what) {
  FileDescriptor fd = stream_socket(address.storage.ss_family);
  if (::bind(fd.get(), address.get(), address.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0)
    throw CommError(cat("cannot listen on ", what, ": ", std::strerror(errno)));
  return fd;
}

int milliseconds_left(Deadline end) {
  auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000'000));
}

bool wait_for(int fd, short events, Deadline end) {
  pollfd entry{fd, events, 0};
  int ready;
  do {
    ready = ::poll(&entry, 1, milliseconds_left(end));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// Whole messages; false when the other side closes or the time is over.
bool send_all(int fd, const void* data, size_t size, Deadline end) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t sent = ::send(fd, at, size, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      size -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN ? !wait_for(fd, POLLOUT, end) : errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool receive_all(int fd, void* data, size_t size, Deadline end) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    ssize_t got = ::recv(fd, at, size, 0);
    if (got == 0) return false;
    if (got > 0) {
      at += got;
      size -= static_cast<size_t>(got);
    } else if (errno == EAGAIN ? !wait_for(fd, POLLIN, end) : errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

// In a time that does not depend on where they differ.
bool equal_secrets(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

void set_no_delay(int fd) {
  int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string random_name() {
  unsigned char bytes[16];
  TESSERA_CHECK(::getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
  std::string text;
  for (unsigned char byte : bytes) text += format("%02x", byte);
  return text;
}

PeerListeners::PeerListeners(const std::string& address) {
  address_.unix_name = cat("tessera-", random_name());
  unix_ = listen_on(unix_address(address_.unix_name), "a Unix socket");
  if (address.empty()) return;
  address_.address = address;
  tcp_ = listen_on(tcp_address(address, 0), address);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ::getsockname(tcp_.get(), reinterpret_cast<sockaddr*>(&own), &size);
  // The port lies at the same place in both families.
  address_.port = ntohs(reinterpret_cast<sockaddr_in*>(&own)->sin_port);
}

class PeerConnector {
 public:
  PeerConnector(const PeerListeners& own, const JobMember& self,
                const std::vector<PeerAddress>& peers, Deadline end)
      : own_(own), self_(self), peers_(peers), end_(end), sockets_(peers.size()) {}

  // To the lower ranks, then from the higher ones. A rank that has reached all lower ones accepts
  // at once, so the ranks finish one after the other.
  std::vector<FileDescriptor> connect() && {
    for (int rank = 0; rank < self_.rank; ++rank) connect_to(rank);
    int missing = self_.world_size - self_.rank - 1;
    while (missing > 0)
      if (accept_one()) --missing;
    return std::move(sockets_);
  }

 private:
  void connect_to(int rank) {
    const PeerAddress& peer = peers_[static_cast<size_t>(rank)];
    SocketAddress address =
        peer.same_host ? unix_address(peer.unix_name) : tcp_address(peer.address, peer.port);
    FileDescriptor fd = stream_socket(address.storage.ss_family);
    if (::connect(fd.get(), address.get(), address.size) != 0) {
      int error = errno;
      if (error == EINPROGRESS || error == EAGAIN) {
        socklen_t size = sizeof error;
        if (!wait_for(fd.get(), POLLOUT, end_))
          throw CommError(cat("rank ", rank, " cannot be reached in time at ", peer.address));
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error != 0) throw CommError(unreachable(rank, peer, error));
    }
    if (!peer.same_host) set_no_delay(fd.get());
    if (peer.same_host && !same_user(fd.get()))
      throw CommError(cat("rank ", rank, " runs as another user"));
    std::string message = hello();
    char answer = 0;
    bool sent = send_all(fd.get(), message.data(), message.size(), end_);
    if (!sent || !receive_all(fd.get(), &answer, 1, end_) || answer != kWelcome) {
      throw CommError(answer == kRefused
                          ? cat("rank ", rank, " refused rank ", self_.rank,
                                ": its job token or attempt differs")
                          : cat("rank ", rank, " did not welcome rank ", self_.rank));
    }
    sockets_[static_cast<size_t>(rank)] = std::move(fd);
  }

  static std::string unreachable(int rank, const PeerAddress& peer, int error) {
    if (!peer.same_host)
      return cat("rank ", rank, " cannot be reached at ", peer.address, " port ", peer.port, ": ",
                 std::strerror(error));
    return cat("rank ", rank, " has the host id of this rank but cannot be reached here (",
               std::strerror(error),
               "): give ranks that do not share a network namespace different host ids");
  }

  std::string hello() const {
    Hello words{};
    std::memcpy(words.magic, kMagic, sizeof kMagic);
    words.protocol = kPeerProtocol;
    words.rank = static_cast<uint32_t>(self_.rank);
    words.attempt = static_cast<uint32_t>(self_.attempt);
    words.world_size = static_cast<uint32_t>(self_.world_size);
    words.token_bytes = static_cast<uint32_t>(self_.token.size());
    return std::string(reinterpret_cast<const char*>(&words), sizeof words) + self_.token;
  }

  // Whether a peer has come; strangers are turned away.
  bool accept_one() {
    pollfd entries[] = {{own_.unix_.get(), POLLIN, 0}, {own_.tcp_.get(), POLLIN, 0}};
    int ready = ::poll(entries, 2, milliseconds_left(end_));
    if (ready < 0 && errno == EINTR) return false;
    if (ready <= 0) throw CommError(missing_text());
    for (const pollfd& entry : entries) {
      if (!(entry.revents & POLLIN)) continue;
      FileDescriptor fd(::accept4(entry.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      bool is_unix = entry.fd == own_.unix_.get();
      if (!fd || (is_unix && !same_user(fd.get()))) continue;
      int rank = rank_of(fd.get());
      char answer = rank < 0 ? kRefused : kWelcome;
      if (!send_all(fd.get(), &answer, 1, end_) || rank < 0) continue;
      if (!is_unix) set_no_delay(fd.get());
      sockets_[static_cast<size_t>(rank)] = std::move(fd);
      return true;
    }
    return false;
  }

  // Of who has connected; -1 if it does not belong here.
  int rank_of(int fd) {
    Hello words{};
    Deadline end = std::min(end_, std::chrono::steady_clock::now() + kHelloTime);
    if (!receive_all(fd, &words, sizeof words, end)) return -1;
    bool known = std::memcmp(words.magic, kMagic, sizeof kMagic) == 0 &&
                 words.protocol == kPeerProtocol && words.token_bytes <= kMaxTokenBytes;
    if (!known) return -1;
    std::string token(words.token_bytes, '\0');
    if (!receive_all(fd, token.data(), token.size(), end)) return -1;
    bool same_job = equal_secrets(token, self_.token) &&
                    words.attempt == static_cast<uint32_t>(self_.attempt) &&
                    words.world_size == static_cast<uint32_t>(self_.world_size);
    bool expected = words.rank > static_cast<uint32_t>(self_.rank) &&
                    words.rank < sockets_.size() && !sockets_[words.rank];
    if (same_job && expected) return static_cast<int>(words.rank);
    refused_ = same_job ? refused_
                        : cat(" (one that called itself rank ", words.rank,
                              " was refused: its job token or attempt differs)");
    return -1;
  }

  std::string missing_text() const {
    std::vector<int> missing;
    for (int rank = self_.rank + 1; rank < self_.world_size; ++rank)
      if (!sockets_[static_cast<size_t>(rank)]) missing.push_back(rank);
    return cat(missing.size() == 1 ? "rank " : "ranks ", join(missing, ", "), " of ",
               self_.world_size, " did not connect to rank ", self_.rank, " in time", refused_);
  }

  const PeerListeners& own_;
  const JobMember& self_;
  const std::vector<PeerAddress>& peers_;
  Deadline end_;
  std::vector<FileDescriptor> sockets_;
  std::string refused_;
};

std::vector<FileDescriptor> connect_peers(const PeerListeners& own, const JobMember& self,
                                          const std::vector<PeerAddress>& peers, Deadline end) {
  return PeerConnector(own, self, peers, end).connect();
}

}  // namespace tessera
