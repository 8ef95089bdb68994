#include "serve/http_server.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

// Connections that may be open: of one address, of all, and with those that are being closed.
constexpr size_t kMostOfOne = 16, kMost = 48;
constexpr unsigned kLimit = 64;

void* load_library() {
  void* library = ::dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw UserError(cat("cannot serve anything: ", ::dlerror(),
                        "; install libmicrohttpd (Debian: the package libmicrohttpd12)"));
  return library;
}

void* function(const char* name) {
  static void* const loaded = load_library();
  void* found = ::dlsym(loaded, name);
  if (!found)
    throw UserError(cat("cannot serve anything: the libmicrohttpd of this machine has no ", name));
  return found;
}

struct Library {
#define TESSERA_LOADED(name) \
  decltype(&::MHD_##name) name = reinterpret_cast<decltype(&::MHD_##name)>(function("MHD_" #name))
  TESSERA_LOADED(start_daemon);
  TESSERA_LOADED(stop_daemon);
  TESSERA_LOADED(lookup_connection_value);
  TESSERA_LOADED(create_response_from_buffer);
  TESSERA_LOADED(add_response_header);
  TESSERA_LOADED(queue_response);
  TESSERA_LOADED(destroy_response);
  TESSERA_LOADED(get_connection_info);
#undef TESSERA_LOADED
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Address parse(const HttpServer::Options& options) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (options.port < 0 || options.port > 65535)
    throw UserError(cat("cannot serve at port ", options.port, ": ports are 0 to 65535"));
  const auto port = htons(static_cast<uint16_t>(options.port));
  if (::inet_pton(AF_INET, options.address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = port;
    address.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, options.address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = port;
    address.size = sizeof *v6;
  } else {
    throw UserError(cat("cannot serve at '", options.address,
                        "': give an address in numbers, 127.0.0.1, 0.0.0.0, ::1 or ::"));
  }
  return address;
}

// Of an address, without its port.
std::string bytes_of(const sockaddr* address) {
  const bool is_v6 = address->sa_family == AF_INET6;
  const void* bytes =
      is_v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
            : &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  return {static_cast<const char*>(bytes), is_v6 ? sizeof(in6_addr) : sizeof(in_addr)};
}

// A socket that listens. Made here and not by the library, which would not say why it cannot.
int listen_at(const HttpServer::Options& options, int& port) {
  Address address = parse(options);
  auto* const plain = reinterpret_cast<sockaddr*>(&address.storage);
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (fd < 0 || ::bind(fd, plain, address.size) != 0 || ::listen(fd, 64) != 0 ||
      ::getsockname(fd, plain, &address.size) != 0) {
    const int cause = errno;
    if (fd >= 0) ::close(fd);
    throw UserError(cat("cannot serve at ", options.address, " port ", options.port, ": ",
                        std::strerror(cause)));
  }
  port = ntohs(address.storage.ss_family == AF_INET
                   ? reinterpret_cast<sockaddr_in*>(plain)->sin_port
                   : reinterpret_cast<sockaddr_in6*>(plain)->sin6_port);
  return fd;
}

}  // namespace

struct HttpServer::Daemon {
  struct Open {
    MHD_Connection* connection;
    int fd;
    std::string address;
    double since;  // it was opened, or had its last answer
  };

  Answer answer;
  int port = 0;
  double deadline = 0;
  MHD_Daemon* daemon = nullptr;
  std::vector<Open> open;  // of the library's thread

  // The library's own deadline is for silence: a byte now and then would hold a connection, and all
  // that there may be of them, for ever. So each one that comes makes room for itself.
  void make_room(const std::string& address) {
    const double now = monotonic_seconds();
    std::erase_if(open, [&](const Open& c) {
      const bool late = now - c.since > deadline;
      if (late) close(c);
      return late;
    });
    auto close_longest = [&](size_t most, auto counts) {
      if (std::cmp_less_equal(std::ranges::count_if(open, counts), most)) return;
      auto longest = open.end();
      for (auto c = open.begin(); c != open.end(); ++c)
        if (counts(*c) && (longest == open.end() || c->since < longest->since)) longest = c;
      close(*longest);
      open.erase(longest);
    };
    close_longest(kMostOfOne, [&](const Open& c) { return c.address == address; });
    close_longest(kMost, [](const Open&) { return true; });
  }

  // The library sees the end of it.
  static void close(const Open& c) { ::shutdown(c.fd, SHUT_RDWR); }

  static void notify(void* self, MHD_Connection* connection, void**,
                     MHD_ConnectionNotificationCode what) {
    auto& daemon = *static_cast<Daemon*>(self);
    std::erase_if(daemon.open, [&](const Open& c) { return c.connection == connection; });
    if (what != MHD_CONNECTION_NOTIFY_STARTED) return;
    const auto* fd = library().get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const auto* from =
        library().get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!fd || !from) return;
    const std::string address = bytes_of(from->client_addr);
    daemon.open.push_back({connection, fd->connect_fd, address, monotonic_seconds()});
    daemon.make_room(address);
  }

  static void completed(void* self, MHD_Connection* connection, void**,
                        MHD_RequestTerminationCode) {
    for (Open& c : static_cast<Daemon*>(self)->open)
      if (c.connection == connection) c.since = monotonic_seconds();
  }

  static MHD_Result handle(void* self, MHD_Connection* connection, const char* path,
                           const char* method, const char*, const char*, size_t* upload_size,
                           void** seen) {
    // The first call is for the head alone. A body is read, so that the answer arrives, and
    // dropped.
    if (!*seen || *upload_size != 0) {
      *seen = self;
      *upload_size = 0;
      return MHD_YES;
    }
    const bool reads = std::strcmp(method, "GET") == 0 || std::strcmp(method, "HEAD") == 0;
    return reply(connection, reads ? static_cast<Daemon*>(self)->answer_to(connection, path)
                                   : Reply{405, "only GET and HEAD\n"});
  }

  Reply answer_to(MHD_Connection* connection, const char* path) {
    const char* authorization =
        library().lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    try {
      return answer({path, authorization ? authorization : ""});
    } catch (const std::exception& error) {
      return {500, cat(error.what(), "\n")};
    }
  }

  static MHD_Result reply(MHD_Connection* connection, const Reply& answer) {
    MHD_Response* response = library().create_response_from_buffer(
        answer.body.size(), const_cast<char*>(answer.body.data()), MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    library().add_response_header(response, "Content-Type", answer.content_type.c_str());
    library().add_response_header(response, "Cache-Control", "no-store");
    library().add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (answer.status == 405) library().add_response_header(response, "Allow", "GET, HEAD");
    const MHD_Result queued =
        library().queue_response(connection, static_cast<unsigned>(answer.status), response);
    library().destroy_response(response);
    return queued;
  }
};

HttpServer::HttpServer(const Options& options, Answer answer)
    : daemon_(std::make_unique<Daemon>()) {
  library();  // before there is a socket
  daemon_->answer = std::move(answer);
  daemon_->deadline = static_cast<double>(options.deadline.count());
  const int fd = listen_at(options, daemon_->port);
  daemon_->daemon = library().start_daemon(
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, nullptr, nullptr, &Daemon::handle,
      daemon_.get(), MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(options.deadline.count()), MHD_OPTION_CONNECTION_LIMIT, kLimit,
      MHD_OPTION_NOTIFY_CONNECTION, &Daemon::notify, daemon_.get(), MHD_OPTION_NOTIFY_COMPLETED,
      &Daemon::completed, daemon_.get(), MHD_OPTION_CONNECTION_MEMORY_LIMIT, size_t{32} << 10,
      MHD_OPTION_END);
  if (daemon_->daemon) return;
  ::close(fd);
  throw UserError(cat("cannot serve at ", options.address, " port ", daemon_->port,
                      ": the server does not start"));
}

HttpServer::~HttpServer() { library().stop_daemon(daemon_->daemon); }

int HttpServer::port() const { return daemon_->port; }

std::unique_ptr<HttpServer> serve_if_possible(const HttpServer::Options& options,
                                              HttpServer::Answer answer) {
  try {
    return std::make_unique<HttpServer>(options, std::move(answer));
  } catch (const UserError& error) {
    TESSERA_WARN(cat(error.what(), "; the run goes on without"));
    return nullptr;
  }
}

}  // namespace tessera
