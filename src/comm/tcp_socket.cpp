#include "comm/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"
#include "base/open_files.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const Endpoint& endpoint, bool passive) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const char* host = endpoint.host.empty() ? nullptr : endpoint.host.c_str();
  int status = ::getaddrinfo(host, cat(endpoint.port).c_str(), &hints, &found);
  if (status != 0) {
    const char* reason = status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status);
    throw UnknownHostError(cat("cannot find the host '", endpoint.host, "': ", reason));
  }
  return {found, &::freeaddrinfo};
}

// The bytes of an address without its port.
std::string_view address_bytes(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const char*>(&v4->sin_addr), sizeof v4->sin_addr};
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return {reinterpret_cast<const char*>(&v6->sin6_addr), sizeof v6->sin6_addr};
  }
  return {};
}

bool is_loopback(const sockaddr* address) {
  std::string_view bytes = address_bytes(address);
  if (address->sa_family == AF_INET) return bytes[0] == 127;
  return bytes == std::string(15, '\0') + '\1';
}

FileDescriptor open_socket(const addrinfo& address) {
  FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket;  // and errno
  int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

// 0, or the error of a wait for `events`.
int wait_for(const FileDescriptor& socket, short events, Deadline deadline) {
  while (true) {
    pollfd poll{socket.get(), events, 0};
    int ready = ::poll(&poll, 1, poll_timeout(deadline));
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

// Where nobody listens on a port of this host, the system may choose just that for the near end.
bool leads_to_itself(const FileDescriptor& socket) {
  sockaddr_storage near{}, far{};
  socklen_t near_size = sizeof near, far_size = sizeof far;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&near), &near_size) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&far), &far_size) == 0 &&
         near_size == far_size && std::memcmp(&near, &far, near_size) == 0;
}

int try_connect(const FileDescriptor& socket, const addrinfo& address, Deadline deadline) {
  if (socket.get() < 0) return errno;
  int error = 0;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (int late = wait_for(socket, POLLOUT, deadline)) return late;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  return error == 0 && leads_to_itself(socket) ? ECONNREFUSED : error;
}

void check_descriptors(int error) {
  if (error != EMFILE && error != ENFILE) return;
  throw DescriptorsError(cat("no descriptor is left for a connection: ", open_error_text(error)));
}

[[noreturn]] void throw_lost(int error) {
  if (error == ETIMEDOUT) throw CommError("no answer in time");
  bool closed = error == EPIPE || error == ECONNRESET;
  throw CommError(closed ? "the connection was closed" : std::strerror(error));
}

}  // namespace

int poll_timeout(Deadline deadline) {
  auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000'000));
}

Endpoint parse_endpoint(std::string_view text, int default_port, std::string_view what) {
  std::string_view host = text, port;
  if (text.starts_with('[')) {
    size_t end = text.find(']');
    if (end == std::string_view::npos) throw UsageError(cat(what, ": '", text, "' has no ']'"));
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && port[0] != ':') {
      throw UsageError(cat(what, ": a port is written '[address]:port', not '", text, "'"));
    }
  } else if (std::ranges::count(text, ':') == 1) {
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':'));
  }
  if (host.empty()) throw UsageError(cat(what, " is 'host' or 'host:port', not '", text, "'"));
  Endpoint endpoint{std::string(host), default_port};
  if (port.empty()) return endpoint;
  port.remove_prefix(1);
  const auto number = parse_number<int>(port);
  if (!number || *number < 0 || *number > 65535)
    throw UsageError(cat(what, ": the port in '", text, "' must be 0 to 65535"));
  endpoint.port = *number;
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  bool v6 = endpoint.host.find(':') != std::string::npos;
  return v6 ? cat("[", endpoint.host, "]:", endpoint.port) : cat(endpoint.host, ":", endpoint.port);
}

bool is_local_host(const std::string& host) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(list, &::freeifaddrs);
  Addresses addresses = resolve({host, 0}, false);
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    if (is_loopback(a->ai_addr)) return true;
    for (const ifaddrs* i = interfaces.get(); i; i = i->ifa_next) {
      if (i->ifa_addr && i->ifa_addr->sa_family == a->ai_family &&
          address_bytes(i->ifa_addr) == address_bytes(a->ai_addr)) {
        return true;
      }
    }
  }
  return false;
}

bool is_loopback(const std::string& host) {
  Addresses addresses = resolve({host, 0}, false);
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    if (!is_loopback(a->ai_addr)) return false;
  }
  return true;
}

Endpoint address_to_bind(const Endpoint& endpoint, bool several_hosts) {
  const std::string& host = endpoint.host;
  bool meant = host.empty() || host == "localhost" || host.starts_with("127.") || host == "::1";
  if (!several_hosts || meant || !is_loopback(host)) return endpoint;
  TESSERA_WARN(cat("this host resolves '", host,
                   "' to itself only: the store listens on all interfaces; --local_addr ADDRESS of "
                   "tessera run chooses one"));
  return {"", endpoint.port};
}

FileDescriptor listen_on(const Endpoint& endpoint) {
  Addresses addresses = resolve(endpoint, true);
  int error = 0;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    FileDescriptor socket = open_socket(*a);
    int on = 1;  // a port whose last connections are still in TIME_WAIT is free
    if (socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0) {
      return socket;
    }
    if (error != EADDRINUSE) error = errno;
  }
  check_descriptors(error);
  std::string place = endpoint.host.empty() ? cat("port ", endpoint.port) : to_string(endpoint);
  if (error == EADDRINUSE) throw AddressInUseError(cat(place, " is in use by another process"));
  throw CommError(cat(
      "cannot listen on ", place, ": ",
      error == EADDRNOTAVAIL ? "no interface of this host has the address" : std::strerror(error)));
}

int local_port(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  TESSERA_CHECK(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

FileDescriptor connect_to(const Endpoint& endpoint, Deadline deadline) {
  Addresses addresses = resolve(endpoint, false);
  int count = 0, error = 0;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) ++count;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    // An address that swallows packets leaves time for the others.
    auto now = std::chrono::steady_clock::now();
    FileDescriptor socket = open_socket(*a);
    error = try_connect(socket, *a, now + (deadline - now) / count--);
    if (error == 0) return socket;
  }
  check_descriptors(error);
  if (error == ECONNREFUSED) throw ConnectionRefusedError(std::strerror(error));
  throw CommError(std::strerror(error));
}

void send_all(const FileDescriptor& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (int error = wait_for(socket, POLLOUT, deadline)) throw_lost(error);
    } else if (errno != EINTR) {
      throw_lost(errno);
    }
  }
}

std::string receive_some(const FileDescriptor& socket, size_t most, Deadline deadline) {
  std::string bytes(std::min<size_t>(most, 64 << 10), '\0');
  while (true) {
    ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got >= 0) {
      bytes.resize(static_cast<size_t>(got));
      return bytes;
    }
    if (errno == EAGAIN) {
      if (int error = wait_for(socket, POLLIN, deadline)) throw_lost(error);
    } else if (errno != EINTR) {
      throw_lost(errno);
    }
  }
}

std::string receive_exactly(const FileDescriptor& socket, size_t count, Deadline deadline) {
  std::string bytes;
  while (bytes.size() < count) {
    std::string more = receive_some(socket, count - bytes.size(), deadline);
    if (more.empty()) throw_lost(EPIPE);
    bytes += more;
  }
  return bytes;
}

}  // namespace tessera
