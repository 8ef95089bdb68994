#include "comm/peer_connection.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

struct Header {
  uint32_t kind, bytes;
  uint64_t number;
};
constexpr int kMaxDescriptors = 16;  // in one read

}  // namespace

PeerConnection::Frame PeerConnection::make_frame(uint32_t kind, uint64_t number,
                                                 std::string_view payload) {
  TESSERA_CHECK(payload.size() <= kMaxPayload);
  Header header{kind, static_cast<uint32_t>(payload.size()), number};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame += payload;
  return std::make_shared<const std::string>(std::move(frame));
}

bool PeerConnection::send(std::span<const Frame> frames, int descriptor) {
  std::lock_guard lock(mutex_);
  for (const Frame& frame : frames) {
    unsent_.push_back({frame, {}});
    if (descriptor < 0) continue;
    // The caller may close his before it is sent.
    unsent_.back().descriptor = FileDescriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!unsent_.back().descriptor) ended_ = true;
    descriptor = -1;
  }
  write_all();
  return !ended_;
}

void PeerConnection::flush() {
  std::lock_guard lock(mutex_);
  write_all();
}

void PeerConnection::end() {
  std::lock_guard lock(mutex_);
  ended_ = true;
  write_all();
}

void PeerConnection::write_all() {
  while (!unsent_.empty() && !ended_ && write(unsent_.front())) unsent_.pop_front();
  if (ended_) unsent_.clear();
  has_unsent_ = !unsent_.empty();
}

bool PeerConnection::write(Unsent& unsent) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  while (unsent.done < unsent.frame->size()) {
    iovec part{const_cast<char*>(unsent.frame->data()) + unsent.done,
               unsent.frame->size() - unsent.done};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (unsent.descriptor && unsent.done == 0) {
      int descriptor = unsent.descriptor.get();
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      unsent.done += static_cast<size_t>(sent);
    } else if (errno != EINTR) {
      ended_ = errno != EAGAIN;
      return false;
    }
  }
  return true;
}

bool PeerConnection::read(const Receive& receive) {
  std::array<char, 64 << 10> buffer;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      descriptors_.emplace_back(fd);
    }
  }
  incoming_.append(buffer.data(), static_cast<size_t>(got));
  size_t at = 0;
  while (incoming_.size() - at >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, incoming_.data() + at, sizeof header);
    if (header.bytes > kMaxPayload) return false;
    if (incoming_.size() - at < sizeof header + header.bytes) break;
    std::string_view payload(incoming_.data() + at + sizeof header, header.bytes);
    at += sizeof header + header.bytes;
    if (!receive(header.kind, header.number, payload)) return false;
  }
  incoming_.erase(0, at);
  return true;
}

FileDescriptor PeerConnection::take_descriptor() {
  FileDescriptor descriptor;
  if (descriptors_.empty()) return descriptor;
  descriptor = std::move(descriptors_.front());
  descriptors_.pop_front();
  return descriptor;
}

}  // namespace tessera
