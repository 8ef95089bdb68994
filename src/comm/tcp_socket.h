#pragma once
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"
#include "comm/file_descriptor.h"

namespace tessera {

using Deadline = std::chrono::steady_clock::time_point;

// Milliseconds until the deadline as poll() takes them: rounded up, 0 when it is over.
int poll_timeout(Deadline deadline);

struct Endpoint {
  std::string host;
  int port = 0;
};

// "host", "host:port", "address", "[ipv6]:port". UsageError, in words about `what`, for another
// form or a port outside 0 ... 65535.
Endpoint parse_endpoint(std::string_view text, int default_port, std::string_view what);
// The inverse: "host:port", with brackets around an IPv6 address.
std::string to_string(const Endpoint& endpoint);

// No address is known for a name: a mistake, or too early, as in a cluster whose hosts just start.
struct UnknownHostError : CommError {
  using CommError::CommError;
};

// Does this host have the address (one of the addresses of the name)? Loopback counts.
bool is_local_host(const std::string& host);
// Do all addresses of the name lead back to this host only? Both: UnknownHostError.
bool is_loopback(const std::string& host);

// Where a store of that name is to listen: there. A name that is this host's only through its own
// table of hosts (Debian gives a host's name the address 127.0.1.1) does not say which interface
// others come by: with several hosts every interface then, and a warning.
Endpoint address_to_bind(const Endpoint& endpoint, bool several_hosts);

struct AddressInUseError : CommError {
  using CommError::CommError;
};

// This process has no descriptor left, whatever is at the other end.
struct DescriptorsError : CommError {
  using CommError::CommError;
};

// Nobody listens at the other end.
struct ConnectionRefusedError : CommError {
  using CommError::CommError;
};

// A listening socket, bound to one address of `host`; "" means every interface. Port 0: any free
// one, see local_port(). Not passed on to programs that are started. AddressInUseError,
// DescriptorsError; CommError for every other failure, for example a host that is not this one.
FileDescriptor listen_on(const Endpoint& endpoint);
int local_port(const FileDescriptor& socket);

// One attempt to connect to each address of the host, until the deadline. Non-blocking afterwards,
// without delay of small messages. DescriptorsError, ConnectionRefusedError; CommError with the
// reason.
FileDescriptor connect_to(const Endpoint& endpoint, Deadline deadline);

// All bytes, or CommError: "the connection was closed", "no answer in time", or the system's
// reason.
void send_all(const FileDescriptor& socket, std::string_view bytes, Deadline deadline);
std::string receive_exactly(const FileDescriptor& socket, size_t count, Deadline deadline);
// What is there, at least one byte and at most `most`; "" when the other side has closed.
std::string receive_some(const FileDescriptor& socket, size_t most, Deadline deadline);

}  // namespace tessera
