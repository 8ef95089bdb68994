#include "launch/etcd_membership_store.h"

#include <algorithm>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int64_t kShortestLease = 2;  // of etcd with its defaults
// So long a late node is told that the job has ended; then its name is free.
constexpr int64_t kLastTextKept = 600;

// Of all keys that begin with it: the next key behind them.
std::string range_end(std::string prefix) {
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

std::string base64_text(std::string_view bytes) { return cat("\"", to_base64(bytes), "\""); }

}  // namespace

EtcdMembershipStore::EtcdMembershipStore(std::unique_ptr<EtcdClient> client, const std::string& job,
                                         std::chrono::milliseconds longest_silence)
    : client_(std::move(client)),
      prefix_(cat("/tessera/", job, "/")),
      ttl_(std::max(kShortestLease, (longest_silence.count() + 999) / 1000)) {}

std::string EtcdMembershipStore::key(std::string_view name) const { return cat(prefix_, name); }

MembershipStore::Text EtcdMembershipStore::read() {
  EtcdAnswer answer = client_->call("kv/range", cat("{\"key\":", base64_text(key("text")), "}"));
  revision_ = answer.revision;
  if (answer.values.empty()) return {};
  return {answer.values[0].value, answer.values[0].mod_revision};
}

bool EtcdMembershipStore::replace(const Text& replaced, std::string_view text) {
  return put(replaced, text, 0);
}

bool EtcdMembershipStore::replace_by_last(const Text& replaced, std::string_view text) {
  return put(replaced, text, grant(kLastTextKept));
}

bool EtcdMembershipStore::put(const Text& replaced, std::string_view text, int64_t lease) {
  const std::string name = base64_text(key("text"));
  EtcdAnswer answer = client_->call(
      "kv/txn", cat("{\"compare\":[{\"key\":", name,
                    ",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"",
                    replaced.version, "\"}],\"success\":[{\"requestPut\":{\"key\":", name,
                    ",\"value\":", base64_text(text), ",\"lease\":\"", lease, "\"}}]}"));
  // An attempt of which nothing was heard may have been the one that succeeded.
  return answer.succeeded || (answer.repeated && read().text == text);
}

int64_t EtcdMembershipStore::grant(int64_t seconds) {
  EtcdAnswer answer = client_->call("lease/grant", cat("{\"TTL\":\"", seconds, "\",\"ID\":\"0\"}"));
  if (answer.lease == 0)
    throw CommError(cat(client_->place(), " granted no lease: ", answer.error));
  return answer.lease;
}

void EtcdMembershipStore::appear(const std::string& node) {
  int64_t lease = grant(ttl_);
  client_->call("kv/put", cat("{\"key\":", base64_text(key(cat("nodes/", node))),
                              ",\"value\":", base64_text("1"), ",\"lease\":\"", lease, "\"}"));
  std::lock_guard lock(mutex_);
  node_ = node;
  lease_ = lease;
}

void EtcdMembershipStore::keep_alive() {
  std::string node;
  int64_t lease = 0;
  {
    std::lock_guard lock(mutex_);
    node = node_;
    lease = lease_;
  }
  if (node.empty()) return;
  EtcdAnswer answer = client_->call("lease/keepalive", cat("{\"ID\":\"", lease, "\"}"));
  // It has run out, as after a time in which nobody could be reached.
  if (answer.ttl <= 0) appear(node);
}

void EtcdMembershipStore::leave() {
  int64_t lease = 0;
  {
    std::lock_guard lock(mutex_);
    if (node_.empty()) return;
    node_.clear();
    lease = lease_;
  }
  try {
    client_->call("lease/revoke", cat("{\"ID\":\"", lease, "\"}"));
  } catch (const Error&) {
    // It runs out by itself.
  }
}

std::set<std::string> EtcdMembershipStore::present(const std::set<std::string>& nodes) {
  std::string first = key("nodes/");
  EtcdAnswer answer = client_->call(
      "kv/range", cat("{\"key\":", base64_text(first),
                      ",\"range_end\":", base64_text(range_end(first)), ",\"keys_only\":true}"));
  std::set<std::string> found;
  for (const EtcdKeyValue& one : answer.values) {
    std::string id = one.key.substr(std::min(first.size(), one.key.size()));
    if (nodes.contains(id)) found.insert(id);
  }
  return found;
}

void EtcdMembershipStore::wait(int64_t, std::chrono::milliseconds longest) {
  client_->watch(cat("{\"create_request\":{\"key\":", base64_text(prefix_),
                     ",\"range_end\":", base64_text(range_end(prefix_)), ",\"start_revision\":\"",
                     revision_ + 1, "\"}}"),
                 longest);
}

}  // namespace tessera
