#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "comm/peer_sockets.h"

namespace tessera {
namespace {

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  if (::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

std::string address_of_interface(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw CommError(cat("cannot list the network interfaces: ", std::strerror(errno)));
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<std::string> names;
  std::string found;
  for (ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr) continue;
    names.emplace_back(entry->ifa_name);
    int family = entry->ifa_addr->sa_family;
    if (names.back() != interface || (family != AF_INET && family != AF_INET6)) continue;
    if (family == AF_INET6 && !found.empty()) continue;  // IPv4 where there is a choice
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found = numeric(entry->ifa_addr, size);
    if (family == AF_INET) return found;
  }
  if (!found.empty()) return found;
  std::string hint = nearest(interface, names);
  throw UserError(cat("there is no network interface '", interface, "' with an address",
                      hint.empty() ? "" : cat(" (is it '", hint, "'?)")));
}

}  // namespace

std::string local_address(const std::string& interface, const std::string& master_address) {
  if (!interface.empty()) return address_of_interface(interface);
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  int status = ::getaddrinfo(master_address.c_str(), "1", &hints, &list);
  if (status != 0)
    throw CommError(cat("the master's address '", master_address,
                        "' does not resolve: ", ::gai_strerror(status)));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (addrinfo* entry = list; entry; entry = entry->ai_next) {
    // Connecting a datagram socket sends nothing: it only asks the routing table.
    FileDescriptor probe(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (!probe || ::connect(probe.get(), entry->ai_addr, entry->ai_addrlen) != 0) continue;
    if (::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) continue;
    return numeric(reinterpret_cast<sockaddr*>(&own), size);
  }
  throw CommError(cat("no network interface leads to the master '", master_address, "'"));
}

}  // namespace tessera
