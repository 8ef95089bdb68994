#include "comm/peer_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <string_view>
#include <utility>

#include "base/cryptography.h"
#include "base/text.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMagic[8] = "tessera";
constexpr size_t kRandomBytes = 32, kProofBytes = 32;
// So long one that connects may take to say who it is. So many are served at a time.
constexpr std::chrono::seconds kHelloTime{5};
constexpr size_t kMostGuests = 512;
// When nobody has come for so long, one of the missing ranks is asked whether it still listens.
constexpr std::chrono::milliseconds kPatience{500};

// Who connects sends this, who accepts answers with random bytes and a proof, and gets a proof.
struct Hello {
  char magic[8];
  uint32_t protocol, rank, attempt, world_size;
  char random[kRandomBytes];
};

std::string proof(const JobMember& self, std::string_view side, std::string_view hello,
                  std::string_view random) {
  return hmac_sha256(self.token, cat(side, hello, random));
}

class UnixAddress {
 public:
  explicit UnixAddress(const std::string& name) {
    address_.sun_family = AF_UNIX;
    size_t size = std::min(name.size(), sizeof address_.sun_path - 1);
    // The first byte stays zero: the name is no file.
    std::memcpy(address_.sun_path + 1, name.data(), size);
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_un address_{};
  socklen_t size_;
};

FileDescriptor unix_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw CommError(cat("cannot make a socket: ", std::strerror(errno)));
  return socket;
}

FileDescriptor listen_on_unix(const std::string& name) {
  FileDescriptor socket = unix_socket();
  UnixAddress address(name);
  if (::bind(socket.get(), address.get(), address.size()) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    throw CommError(cat("cannot listen on a Unix socket: ", std::strerror(errno)));
  return socket;
}

// Without waiting: who listens has done so before its address was known.
FileDescriptor connect_to_unix(const std::string& name, Deadline deadline) {
  FileDescriptor socket = unix_socket();
  UnixAddress address(name);
  while (::connect(socket.get(), address.get(), address.size()) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    const std::string text =
        cat(std::strerror(error),
            "; ranks that do not share a network namespace need different host ids");
    if (error == ECONNREFUSED) throw ConnectionRefusedError(text);
    // The queue of those who wait to be accepted is full.
    if (error != EAGAIN || Clock::now() >= deadline) throw CommError(text);
    ::poll(nullptr, 0, 1);
  }
  return socket;
}

void set_no_delay(const FileDescriptor& socket) {
  int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool same_user(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace

PeerListeners::PeerListeners(const std::string& address) {
  address_.unix_name = cat("tessera-", hex(secret_random_bytes(16)));
  unix_ = listen_on_unix(address_.unix_name);
  if (address.empty()) return;
  tcp_ = listen_on({address, 0});
  address_.address = address;
  address_.port = local_port(tcp_);
}

// Somebody who has connected to this rank and has yet to prove which rank it is.
struct Guest {
  FileDescriptor socket;
  bool is_unix = false;
  Deadline until;                    // turned away if it has not done so by then
  std::string input, hello, random;  // hello: once it is complete
};

class PeerConnector {
 public:
  PeerConnector(const PeerListeners& own, const JobMember& self,
                const std::vector<PeerAddress>& peers, Deadline deadline)
      : own_(own),
        self_(self),
        peers_(peers),
        deadline_(deadline),
        sockets_(peers.size()),
        without_token_(peers.size()) {}

  // To the lower ranks, then from the higher ones. A rank that has reached all lower ones accepts
  // at once, so the ranks finish one after the other.
  std::vector<FileDescriptor> connect() && {
    for (int rank = 0; rank < self_.rank; ++rank) {
      try {
        sockets_[static_cast<size_t>(rank)] = connect_to_rank(peers_[static_cast<size_t>(rank)]);
      } catch (const CommError& error) {
        throw CommError(
            cat("rank ", self_.rank, " cannot connect to rank ", rank, ": ", error.what()));
      }
    }
    int missing = self_.world_size - self_.rank - 1, asked = self_.rank;
    Deadline patience = Clock::now() + kPatience;
    while (missing > 0) {
      int come = serve_guests(std::min<Deadline>(deadline_, patience));
      missing -= come;
      if (come > 0) patience = Clock::now() + kPatience;
      if (missing > 0 && Clock::now() >= deadline_) throw CommError(missing_text());
      if (missing == 0 || Clock::now() < patience) continue;
      do {
        asked = asked + 1 < self_.world_size ? asked + 1 : self_.rank + 1;
      } while (sockets_[static_cast<size_t>(asked)]);
      check_listens(asked);
      patience = Clock::now() + kPatience;
    }
    return std::move(sockets_);
  }

 private:
  static FileDescriptor open_connection(const PeerAddress& peer, Deadline deadline) {
    return peer.same_host ? connect_to_unix(peer.unix_name, deadline)
                          : connect_to({peer.address, peer.port}, deadline);
  }

  // A rank listens until all have connected, so one that does not has ended before.
  void check_listens(int rank) const {
    try {
      open_connection(peers_[static_cast<size_t>(rank)], Clock::now() + kPatience);
    } catch (const ConnectionRefusedError&) {
      throw CommError(cat("rank ", rank, " was lost: its process has ended before it connected",
                          refused_text()));
    } catch (const CommError&) {
    }
  }

  FileDescriptor connect_to_rank(const PeerAddress& peer) const {
    FileDescriptor socket = open_connection(peer, deadline_);
    if (peer.same_host && !same_user(socket)) throw CommError("it runs as another user");
    Hello words{};
    std::memcpy(words.magic, kMagic, sizeof kMagic);
    words.protocol = kPeerProtocol;
    words.rank = static_cast<uint32_t>(self_.rank);
    words.attempt = static_cast<uint32_t>(self_.attempt);
    words.world_size = static_cast<uint32_t>(self_.world_size);
    std::memcpy(words.random, secret_random_bytes(kRandomBytes).data(), kRandomBytes);
    std::string hello(reinterpret_cast<const char*>(&words), sizeof words);
    send_all(socket, hello, deadline_);
    std::string answer = receive_exactly(socket, kRandomBytes + kProofBytes, deadline_);
    std::string random = answer.substr(0, kRandomBytes);
    if (!equal_in_constant_time(answer.substr(kRandomBytes), proof(self_, "accept", hello, random)))
      throw CommError("it has another job token");
    send_all(socket, proof(self_, "connect", hello, random), deadline_);
    return socket;
  }

  // Waits for events, serves whoever has some, and returns how many ranks have come. Guests that
  // say nothing hold up nobody else.
  int serve_guests(Deadline deadline) {
    bool room = guests_.size() < kMostGuests;
    std::vector<pollfd> entries{{room ? own_.unix_.get() : -1, POLLIN, 0},
                                {room ? own_.tcp_.get() : -1, POLLIN, 0}};
    for (const Guest& guest : guests_) {
      entries.push_back({guest.socket.get(), POLLIN, 0});
      deadline = std::min(deadline, guest.until);
    }
    if (::poll(entries.data(), entries.size(), poll_timeout(deadline)) < 0) {
      if (errno == EINTR) return 0;
      throw CommError(
          cat("rank ", self_.rank, " cannot watch its connections: ", std::strerror(errno)));
    }
    int come = 0;
    auto entry = entries.begin() + 2;
    for (auto guest = guests_.begin(); guest != guests_.end(); ++entry) {
      bool stays = !entry->revents || hear(*guest);
      come += guest->socket.get() < 0;  // it is a rank of the job now
      stays = stays && guest->socket && Clock::now() < guest->until;
      guest = stays ? std::next(guest) : guests_.erase(guest);
    }
    for (int i : {0, 1})
      if (entries[static_cast<size_t>(i)].revents)
        let_in(entries[static_cast<size_t>(i)].fd, i == 0);
    return come;
  }

  void let_in(int listener, bool is_unix) {
    FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket || (is_unix && !same_user(socket))) return;
    if (!is_unix) set_no_delay(socket);
    Deadline until = std::min<Deadline>(deadline_, Clock::now() + kHelloTime);
    guests_.push_back({.socket = std::move(socket), .is_unix = is_unix, .until = until});
  }

  // Takes what a guest says. False if it does not belong here, or has gone.
  bool hear(Guest& guest) {
    size_t needed = guest.hello.empty() ? sizeof(Hello) : kProofBytes;
    char bytes[sizeof(Hello) + kProofBytes];
    ssize_t got = ::recv(guest.socket.get(), bytes, needed - guest.input.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    guest.input.append(bytes, static_cast<size_t>(got));
    if (guest.input.size() < needed) return true;
    std::string said = std::exchange(guest.input, {});
    if (guest.hello.empty()) return greet(guest, std::move(said));
    auto rank = static_cast<size_t>(rank_in(guest.hello));
    if (sockets_[rank] ||
        !equal_in_constant_time(said, proof(self_, "connect", guest.hello, guest.random)))
      return false;
    sockets_[rank] = std::move(guest.socket);
    return true;
  }

  bool greet(Guest& guest, std::string hello) {
    int rank = rank_in(hello);
    if (rank < 0 || sockets_[static_cast<size_t>(rank)]) return false;
    without_token_[static_cast<size_t>(rank)] = true;
    guest.random = secret_random_bytes(kRandomBytes);
    std::string answer = guest.random + proof(self_, "accept", hello, guest.random);
    guest.hello = std::move(hello);
    // The first bytes on the connection: there is room for them.
    return ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(answer.size());
  }

  // Which rank a hello is from; -1 if that is none which this one waits for.
  int rank_in(const std::string& hello) const {
    Hello words;
    std::memcpy(&words, hello.data(), sizeof words);
    bool expected = std::memcmp(words.magic, kMagic, sizeof kMagic) == 0 &&
                    words.protocol == kPeerProtocol &&
                    words.attempt == static_cast<uint32_t>(self_.attempt) &&
                    words.world_size == static_cast<uint32_t>(self_.world_size) &&
                    words.rank > static_cast<uint32_t>(self_.rank) && words.rank < sockets_.size();
    return expected ? static_cast<int>(words.rank) : -1;
  }

  std::string missing_text() const {
    std::vector<int> missing;
    for (int rank = self_.rank + 1; rank < self_.world_size; ++rank)
      if (!sockets_[static_cast<size_t>(rank)]) missing.push_back(rank);
    return cat(missing.size() == 1 ? "rank " : "ranks ", join(missing, ", "), " of ",
               self_.world_size, " did not connect to rank ", self_.rank, " in time",
               refused_text());
  }

  std::string refused_text() const {
    std::string text;
    for (size_t rank = 0; rank < sockets_.size(); ++rank)
      if (!sockets_[rank] && without_token_[rank])
        text += cat("; one that called itself rank ", rank, " did not know the job's token");
    return text;
  }

  const PeerListeners& own_;
  const JobMember& self_;
  const std::vector<PeerAddress>& peers_;
  Deadline deadline_;
  std::vector<FileDescriptor> sockets_;
  std::list<Guest> guests_;
  std::vector<bool> without_token_;  // by rank: one that called itself so did not prove it
};

std::vector<FileDescriptor> connect_peers(const PeerListeners& own, const JobMember& self,
                                          const std::vector<PeerAddress>& peers,
                                          Deadline deadline) {
  return PeerConnector(own, self, peers, deadline).connect();
}

}  // namespace tessera
