#pragma once
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "comm/tcp_socket.h"
#include "launch/etcd_answer.h"
#include "launch/run_options.h"
#include "remote/http_transport.h"

namespace tessera {

// Calls to the members of an etcd over their JSON gateway. A member that does not answer within
// 2 s (without a quorum it would after 7) or with an error of the server is left for the next one.
// Thread-safe.
class EtcdClient {
 public:
  // UserError where the file of the password cannot be used.
  EtcdClient(std::vector<Endpoint> endpoints, const EtcdAccess& access);

  // The answer to `body` (JSON) at /v3/`path`, also one that says that there is no such lease.
  // MembershipUnavailableError when no member answers; UserError that says what to do for wrong
  // credentials, for a user who may not do that and for what is no etcd.
  EtcdAnswer call(const std::string& path, const std::string& body);

  // Returns when a watch with this request says anything, or the time is over.
  void watch(const std::string& body, std::chrono::milliseconds longest);

  // "etcd at http://a:2379, http://b:2379"
  std::string place() const;

 private:
  struct Reply {
    HttpOutcome outcome;
    std::string body;
  };
  Reply send(size_t endpoint, const std::string& path, const std::string& body,
             std::chrono::milliseconds longest, bool first_line_only);
  EtcdAnswer judge(size_t endpoint, const Reply& reply) const;
  void authenticate();
  std::string url(size_t endpoint) const;

  std::vector<Endpoint> endpoints_;
  EtcdAccess access_;
  TlsFiles tls_;
  std::string password_;
  std::atomic<size_t> current_ = 0;  // the member that answered last
  std::mutex mutex_;
  std::string token_;  // of this user, by authenticate()
};

}  // namespace tessera
