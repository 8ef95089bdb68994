#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/cryptography.h"
#include "comm/store_protocol.h"
#include "comm/tcp_store.h"

namespace tessera {
namespace {

using std::chrono::steady_clock;

// A client that has not proved who it is by then is closed; sooner where too many have not.
constexpr std::chrono::milliseconds kHandshake{10'000}, kCrowdedHandshake{500};
// So many may be connected at once; more wait in the listener's queue.
constexpr size_t kMaxConnections = 16'384;

// So many may not have proved who they are: whoever reaches the port could else take all of this
// process's descriptors, of which what it starts needs some.
size_t most_unproved() {
  constexpr rlim_t kMost = 512;
  rlimit descriptors{kMost, kMost};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  return static_cast<size_t>(std::clamp<rlim_t>(descriptors.rlim_cur / 4, 1, kMost));
}

struct Connection {
  Connection(FileDescriptor accepted, MemoryStore& store, const std::string& token)
      : socket(std::move(accepted)),
        session(store, token, secret_random_bytes(32)),
        accepted_at(steady_clock::now()) {}

  Deadline prove_until(bool crowded) const {
    return accepted_at + (crowded ? kCrowdedHandshake : kHandshake);
  }
  // Until when nothing need be done for it.
  Deadline next_event(bool crowded) const {
    if (!session.is_accepted()) return prove_until(crowded);
    return session.waits_until().value_or(Deadline::max());
  }

  void read() {
    char bytes[64 << 10];
    ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, 0);
    if (got > 0) input.assign(bytes, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) gone = true;
  }

  void send() {
    std::string& output = session.output();
    while (!output.empty() && !gone) {
      ssize_t sent = ::send(socket.get(), output.data() + done, output.size() - done, MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) {
        gone = errno != EAGAIN;
        return;
      }
      done += static_cast<size_t>(std::max<ssize_t>(sent, 0));
      if (done == output.size()) output.clear(), done = 0;
    }
  }

  bool is_over(steady_clock::time_point now, bool crowded) {
    bool late = !session.is_accepted() && now >= prove_until(crowded);
    return gone || late || (session.is_closed() && session.output().empty());
  }

  FileDescriptor socket;
  StoreSession session;
  steady_clock::time_point accepted_at;
  std::string input;  // read and not yet taken
  size_t done = 0;    // bytes of the output that are sent
  bool gone = false;
};

using Connections = std::vector<std::unique_ptr<Connection>>;

bool is_crowded(const Connections& all) {
  static const auto most = static_cast<std::ptrdiff_t>(most_unproved());
  return std::ranges::count_if(all, [](const auto& c) { return !c->session.is_accepted(); }) >=
         most;
}

// Waits for events and says which connections have some; the first two entries are the server's.
std::vector<pollfd> wait(const FileDescriptor& wake, const FileDescriptor& listener,
                         const Connections& all) {
  const bool crowded = is_crowded(all), room = !crowded && all.size() < kMaxConnections;
  std::vector<pollfd> polls{{wake.get(), POLLIN, 0}, {room ? listener.get() : -1, POLLIN, 0}};
  Deadline deadline = Deadline::max();
  for (const auto& c : all) {
    short events = c->session.output().empty() ? POLLIN : POLLOUT;
    polls.push_back({c->socket.get(), events, 0});
    deadline = std::min(deadline, c->next_event(crowded));
  }
  int timeout = deadline == Deadline::max() ? -1 : poll_timeout(deadline);
  if (::poll(polls.data(), polls.size(), timeout) < 0) {
    for (pollfd& p : polls) p.revents = 0;
  }
  return polls;
}

}  // namespace

TcpStoreServer::TcpStoreServer(std::string token, const Endpoint& bind)
    : token_(std::move(token)),
      listener_(listen_on(bind)),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      port_(local_port(listener_)),
      thread_([this] { serve(); }) {}

TcpStoreServer::~TcpStoreServer() {
  stop_ = true;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void TcpStoreServer::serve() {
  Connections all;
  while (!stop_) {
    std::vector<pollfd> polls = wait(wake_, listener_, all);
    auto now = steady_clock::now();
    for (size_t i = 0; i < all.size(); ++i) {
      if (polls[i + 2].revents & (POLLIN | POLLHUP | POLLERR)) all[i]->read();
    }
    // Who asks for something learns of all that ended before.
    for (const auto& c : all) {
      if (c->gone) c->session.end();
    }
    for (const auto& c : all) {
      c->session.receive(std::exchange(c->input, {}), now);
      if (c->session.is_refused()) has_refused_ = true;
    }
    // After all requests of this round: one of them may have set what another waits for.
    for (const auto& c : all) {
      c->session.resume(now);
      c->send();
    }
    std::erase_if(all, [&, crowded = is_crowded(all)](const auto& c) {
      bool over = c->is_over(now, crowded);
      if (over) c->session.end();
      return over;
    });
    if (!polls[1].revents) continue;
    FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() >= 0) {
      all.push_back(std::make_unique<Connection>(std::move(socket), store_, token_));
    } else if (errno == EMFILE || errno == ENFILE) {
      // Out of descriptors: others will be closed, and polling would not pause.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

}  // namespace tessera
