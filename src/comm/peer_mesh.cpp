#include "comm/peer_mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "comm/tcp_socket.h"

namespace tessera {
namespace {

struct Header {
  uint32_t kind, bytes;
  uint64_t number;
};
constexpr size_t kMaxPayload = 4096;
constexpr int kMaxDescriptors = 16;  // in one read
// A peer that is stopped takes no messages; news of a failure does not wait for it.
constexpr std::chrono::milliseconds kSendTime{1000};
// A process that runs answers at once, whatever its ranks do.
constexpr std::chrono::milliseconds kAnswerTime{1000};

// So often a rank that waits says in which call.
constexpr std::chrono::milliseconds kSayCall{200};

// Signals are for the program's own threads.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

PeerMesh::PeerMesh(int rank, std::vector<FileDescriptor> sockets, Health& health,
                   std::chrono::milliseconds deadline)
    : rank_(rank),
      sockets_(std::move(sockets)),
      health_(health),
      deadline_(deadline),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      incoming_(sockets_.size()) {
  if (!stop_) throw DeviceError(cat("cannot make an event: ", std::strerror(errno)));
  health_.on_failure([this](const std::string& cause) {
    tell_all(Kind::kFailure, cause);
    wake_receivers();
  });
  health_.set_ask([this](int other) { return ask_waits_for(other); });
  reader_ = std::thread([this] {
    block_signals();
    read_loop();
  });
}

PeerMesh::~PeerMesh() { stop(); }

void PeerMesh::stop() {
  if (!reader_.joinable()) return;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(stop_.get(), &one, sizeof one);
  reader_.join();
}

void PeerMesh::send(int rank, Kind kind, uint64_t number, std::string_view payload,
                    int descriptor) {
  if (try_send(rank, kind, number, payload, descriptor)) return;
  health_.wait_failed(kSendTime);
  health_.check();
  throw CommError(health_.has_left(rank) ? left_the_job(rank)
                                         : cat("rank ", rank, " does not take messages"));
}

bool PeerMesh::try_send(int rank, Kind kind, uint64_t number, std::string_view payload,
                        int descriptor) {
  payload = payload.substr(0, kMaxPayload);
  Header header{static_cast<uint32_t>(kind), static_cast<uint32_t>(payload.size()), number};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame += payload;
  int fd = sockets_[static_cast<size_t>(rank)].get();
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  std::lock_guard lock(sending_);
  size_t done = 0;
  while (done < frame.size()) {
    iovec part{frame.data() + done, frame.size() - done};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0 && done == 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent > 0) {
      done += static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    pollfd entry{fd, POLLOUT, 0};
    if (errno != EAGAIN || ::poll(&entry, 1, static_cast<int>(kSendTime.count())) <= 0)
      return false;
  }
  return true;
}

void PeerMesh::tell_all(Kind kind, std::string_view payload) noexcept {
  for (int rank = 0; rank < world_size(); ++rank)
    if (sockets_[static_cast<size_t>(rank)]) try_send(rank, kind, 0, payload);
}

void PeerMesh::leave() noexcept { tell_all(Kind::kLeave, ""); }

PeerMesh::Message PeerMesh::receive(int rank, Kind kind, uint64_t number) {
  Health::Wait waiting(health_, rank_, rank);
  std::unique_lock lock(mutex_);
  auto key = std::make_tuple(rank, kind, number);
  // By the system's clock: see Health::wait_failed.
  auto end = std::chrono::system_clock::now() + deadline_;
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

std::optional<int> PeerMesh::ask_waits_for(int rank) {
  if (rank == rank_) return health_.waits_for(rank);
  uint64_t number = ++asked_;
  if (!try_send(rank, Kind::kAsk, number, "")) return std::nullopt;
  auto key = std::make_tuple(rank, Kind::kAnswer, number);
  std::unique_lock lock(mutex_);
  arrived_.wait_until(lock, std::chrono::system_clock::now() + kAnswerTime,
                      [&] { return mailbox_.contains(key) || health_.failed(); });
  auto answer = mailbox_.extract(key);
  if (answer.empty()) return std::nullopt;
  int waits_for = Health::kNobody;
  const std::string& text = answer.mapped().payload;
  std::from_chars(text.data(), text.data() + text.size(), waits_for);
  return waits_for >= 0 && waits_for < world_size() ? waits_for : Health::kNobody;
}

std::vector<std::pair<int, uint64_t>> PeerMesh::dropped() {
  std::lock_guard lock(mutex_);
  return std::exchange(dropped_, {});
}

void PeerMesh::read_loop() {
  std::vector<pollfd> entries;
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size(); ++rank) {
    if (!sockets_[static_cast<size_t>(rank)]) continue;
    entries.push_back({sockets_[static_cast<size_t>(rank)].get(), POLLIN, 0});
    ranks.push_back(rank);
  }
  entries.push_back({stop_.get(), POLLIN, 0});
  Deadline next_word = std::chrono::steady_clock::now() + kSayCall;
  while (true) {
    if (::poll(entries.data(), entries.size(), poll_timeout(next_word)) < 0) {
      if (errno != EINTR) return;
      continue;
    }
    if (entries.back().revents) return;
    if (auto now = std::chrono::steady_clock::now(); now >= next_word) {
      say_call();
      next_word = now + kSayCall;
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (!entries[i].revents || read_some(ranks[i])) continue;
      entries[i].fd = -1;  // poll passes over it
      if (!health_.has_left(ranks[i]))
        health_.fail(cat("rank ", ranks[i], " was lost: its process has ended"));
    }
  }
}

void PeerMesh::say_call() {
  int rank = health_.waits_for(rank_);
  if (rank == Health::kNobody || rank == rank_ || health_.failed()) return;
  Health::Meeting meeting = health_.last_call(rank_, rank);
  if (meeting.call) try_send(rank, Kind::kCall, meeting.number, *meeting.call);
}

bool PeerMesh::read_some(int rank) {
  Incoming& incoming = incoming_[static_cast<size_t>(rank)];
  std::array<char, 16384> buffer;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = ::recvmsg(sockets_[static_cast<size_t>(rank)].get(), &message,
                          MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      incoming.descriptors.emplace_back(fd);
    }
  }
  incoming.bytes.append(buffer.data(), static_cast<size_t>(got));
  while (incoming.bytes.size() >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, incoming.bytes.data(), sizeof header);
    if (header.bytes > kMaxPayload) return false;
    if (incoming.bytes.size() < sizeof header + header.bytes) break;
    Message content{header.number, incoming.bytes.substr(sizeof header, header.bytes), {}};
    incoming.bytes.erase(0, sizeof header + header.bytes);
    Kind kind = static_cast<Kind>(header.kind);
    if (kind == Kind::kSegment && !incoming.descriptors.empty()) {
      content.descriptor = std::move(incoming.descriptors.front());
      incoming.descriptors.pop_front();
    }
    deliver(rank, kind, std::move(content));
  }
  return true;
}

void PeerMesh::deliver(int rank, Kind kind, Message message) {
  if (kind == Kind::kFailure) {
    health_.fail(std::move(message.payload));
  } else if (kind == Kind::kLeave) {
    health_.leave(rank);
  } else if (kind == Kind::kAsk) {
    try_send(rank, Kind::kAnswer, message.number, cat(health_.waits_for(rank_)));
  } else if (kind == Kind::kCall) {
    auto call = std::make_shared<const std::string>(std::move(message.payload));
    health_.compare_calls(rank_, rank, {message.number, std::move(call)});
  } else {
    std::lock_guard lock(mutex_);
    if (kind == Kind::kDrop) {
      dropped_.emplace_back(rank, message.number);
    } else {
      mailbox_.insert_or_assign(std::make_tuple(rank, kind, message.number), std::move(message));
    }
  }
  wake_receivers();
}

void PeerMesh::wake_receivers() {
  // Not between somebody's look at the health and its sleep.
  { std::lock_guard lock(mutex_); }
  arrived_.notify_all();
}

}  // namespace tessera
