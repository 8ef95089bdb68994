#include "comm/peer_mesh.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_without_signals.h"
#include "comm/tcp_socket.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// For the news why a connection broke.
constexpr std::chrono::milliseconds kNews{1000};
// At the end, without that a peer takes more of what it has not got yet.
constexpr std::chrono::milliseconds kFarewell{1000};
// A process that runs answers at once, whatever its ranks do.
constexpr std::chrono::milliseconds kAnswerTime{1000};

// So often a rank that waits says in which call.
constexpr std::chrono::milliseconds kSayCall{200};

PeerConnection::Frame make_frame(PeerMesh::Kind kind, uint64_t number, std::string_view payload) {
  return PeerConnection::make_frame(static_cast<uint32_t>(kind), number,
                                    payload.substr(0, PeerConnection::kMaxPayload));
}

}  // namespace

PeerMesh::PeerMesh(int rank, std::vector<FileDescriptor> sockets, Health& health,
                   std::chrono::milliseconds deadline)
    : rank_(rank),
      health_(health),
      deadline_(deadline),
      inbox_(static_cast<int>(sockets.size()), health),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw DeviceError(cat("cannot make an event: ", std::strerror(errno)));
  for (FileDescriptor& socket : sockets)
    connections_.push_back(socket ? std::make_unique<PeerConnection>(std::move(socket)) : nullptr);
  health_.on_failure([this](const std::string& cause) {
    tell_all(Kind::kFailure, cause);
    wake_receivers();
  });
  health_.set_ask([this](int other) { return ask_waits_for(other); });
  thread_ = thread_without_signals([this] { loop(); });
}

PeerMesh::~PeerMesh() {
  leave();
  ending_ = true;
  wake_loop();
  thread_.join();
}

void PeerMesh::post(const std::string& message) {
  std::vector<PeerConnection::Frame> frames;
  std::string_view rest = message;
  do {
    std::string_view part = rest.substr(0, PeerConnection::kMaxPayload);
    rest.remove_prefix(part.size());
    frames.push_back(make_frame(Kind::kControl, rest.size(), part));
  } while (!rest.empty());
  // Starts after the own rank, so that not all send to the same one.
  for (int step = 1; step < world_size(); ++step)
    send_frames((rank_ + step) % world_size(), frames);
}

void PeerMesh::send(int rank, Kind kind, uint64_t number, std::string_view payload,
                    int descriptor) {
  if (try_send(rank, kind, number, payload, descriptor)) return;
  health_.wait_failed(kNews);
  health_.check();
  throw CommError(health_.has_left(rank) ? left_the_job(rank)
                                         : cat("the connection to rank ", rank, " was lost"));
}

bool PeerMesh::try_send(int rank, Kind kind, uint64_t number, std::string_view payload,
                        int descriptor) {
  PeerConnection::Frame frame = make_frame(kind, number, payload);
  return send_frames(rank, std::span(&frame, 1), descriptor);
}

bool PeerMesh::send_frames(int rank, std::span<const PeerConnection::Frame> frames,
                           int descriptor) {
  PeerConnection& connection = *connections_[static_cast<size_t>(rank)];
  bool open = connection.send(frames, descriptor);
  if (connection.has_unsent()) wake_loop();
  return open;
}

void PeerMesh::tell_all(Kind kind, std::string_view payload) noexcept {
  for (int rank = 0; rank < world_size(); ++rank)
    if (rank != rank_) try_send(rank, kind, 0, payload);
}

void PeerMesh::leave() noexcept {
  if (!left_.exchange(true)) tell_all(Kind::kLeave, "");
}

PeerMesh::Message PeerMesh::receive(int rank, Kind kind, uint64_t number) {
  Health::Wait waiting(health_, rank_, rank);
  std::unique_lock lock(mutex_);
  auto key = std::make_tuple(rank, kind, number);
  auto end = Clock::now() + deadline_;
  while (true) {
    auto it = mailbox_.find(key);
    if (it != mailbox_.end()) {
      Message message = std::move(it->second);
      mailbox_.erase(it);
      return message;
    }
    health_.check();
    if (health_.has_left(rank)) throw CommError(left_the_job(rank));
    if (arrived_.wait_until(lock, end) == std::cv_status::timeout) {
      lock.unlock();
      health_.fail_late(rank, rank_, deadline_);
      health_.check();
    }
  }
}

std::optional<Health::Waiting> PeerMesh::ask_waits_for(int rank) {
  if (rank == rank_) return health_.waits_for(rank);
  uint64_t number = ++asked_;
  if (!try_send(rank, Kind::kAsk, number, "")) return std::nullopt;
  auto key = std::make_tuple(rank, Kind::kAnswer, number);
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, kAnswerTime, [&] { return mailbox_.contains(key) || health_.failed(); });
  auto answer = mailbox_.extract(key);
  if (answer.empty()) return std::nullopt;
  const std::string& text = answer.mapped().payload;
  Health::Waiting waiting;
  const char* end = std::from_chars(text.data(), text.data() + text.size(), waiting.rank).ptr;
  if (waiting.rank < 0 || waiting.rank >= world_size()) return Health::Waiting();
  waiting.call =
      text.substr(std::min<size_t>(text.size(), static_cast<size_t>(end - text.data()) + 1));
  return waiting;
}

std::vector<std::pair<int, uint64_t>> PeerMesh::dropped() {
  std::lock_guard lock(mutex_);
  return std::exchange(dropped_, {});
}

void PeerMesh::loop() {
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size(); ++rank) {
    if (rank == rank_) continue;
    entries.push_back({connections_[static_cast<size_t>(rank)]->socket(), POLLIN, 0});
    ranks.push_back(rank);
  }
  Deadline next_word = Clock::now() + kSayCall, last = Deadline::max();
  while (true) {
    if (ending_ && last == Deadline::max()) last = Clock::now() + kFarewell;
    if (ending_ && (all_sent() || Clock::now() >= last)) return;
    for (size_t i = 0; i < ranks.size(); ++i) {
      bool unsent = connections_[static_cast<size_t>(ranks[i])]->has_unsent();
      entries[i + 1].events = static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN);
    }
    if (::poll(entries.data(), entries.size(), poll_timeout(std::min(next_word, last))) < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      // Nothing would come in any more, and nobody would know.
      if (!ending_)
        health_.fail(cat("rank ", rank_, " cannot watch its connections: ", std::strerror(error)));
      return;
    }
    eventfd_t events;
    if (entries[0].revents) ::eventfd_read(wake_.get(), &events);
    if (auto now = Clock::now(); now >= next_word) {
      say_call();
      next_word = now + kSayCall;
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      short revents = entries[i + 1].revents;
      if (ending_ && (revents & POLLOUT)) last = Clock::now() + kFarewell;
      if (!serve(ranks[i], revents)) entries[i + 1].fd = -1;  // poll passes over it
    }
  }
}

bool PeerMesh::serve(int rank, short events) {
  PeerConnection& connection = *connections_[static_cast<size_t>(rank)];
  if (events & POLLOUT) connection.flush();
  auto receive = [&](uint32_t kind, uint64_t number, std::string_view payload) {
    return deliver(rank, static_cast<Kind>(kind), number, payload);
  };
  if (!(events & ~POLLOUT) || connection.read(receive)) return true;
  connection.end();
  if (!health_.has_left(rank)) health_.fail(cat("rank ", rank, " was lost: its process has ended"));
  return false;
}

bool PeerMesh::all_sent() const {
  return std::ranges::none_of(connections_, [](const auto& c) { return c && c->has_unsent(); });
}

void PeerMesh::say_call() {
  if (health_.failed()) return;
  for (int rank : health_.waited_for(rank_)) {
    if (rank == rank_ || connections_[static_cast<size_t>(rank)]->has_unsent()) continue;
    Health::Meeting meeting = health_.last_call(rank_, rank);
    if (meeting.call) try_send(rank, Kind::kCall, meeting.number, *meeting.call);
  }
}

bool PeerMesh::deliver(int rank, Kind kind, uint64_t number, std::string_view payload) {
  if (kind == Kind::kControl) return inbox_.put(rank, payload, number);
  if (kind == Kind::kFailure) {
    health_.fail(std::string(payload));
  } else if (kind == Kind::kLeave) {
    health_.leave(rank);
  } else if (kind == Kind::kAsk) {
    Health::Waiting waiting = health_.waits_for(rank_);
    try_send(rank, Kind::kAnswer, number, cat(waiting.rank, " ", waiting.call));
  } else if (kind == Kind::kCall) {
    health_.compare_calls(rank_, rank, {number, std::make_shared<const std::string>(payload)});
  } else {
    Message message{std::string(payload), {}};
    if (kind == Kind::kSegment)
      message.descriptor = connections_[static_cast<size_t>(rank)]->take_descriptor();
    std::lock_guard lock(mutex_);
    if (kind == Kind::kDrop) {
      dropped_.emplace_back(rank, number);
    } else {
      mailbox_.insert_or_assign(std::make_tuple(rank, kind, number), std::move(message));
    }
  }
  wake_receivers();
  return true;
}

void PeerMesh::wake_receivers() {
  // Not between somebody's look at the health and its sleep.
  { std::lock_guard lock(mutex_); }
  arrived_.notify_all();
  inbox_.wake();
}

void PeerMesh::wake_loop() { ::eventfd_write(wake_.get(), 1); }

}  // namespace tessera
