#include "launch/tcp_membership_store.h"

#include <algorithm>
#include <thread>

#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kTextKey = "membership/text";
constexpr milliseconds kReadAgain{50};

// The value of the key is the version, a line end and the text.
MembershipStore::Text parse(const std::optional<std::string>& value) {
  MembershipStore::Text result;
  if (!value) return result;
  size_t line = value->find('\n');
  const auto version = parse_number<int64_t>(std::string_view(*value).substr(0, line));
  if (line == std::string::npos || !version)
    throw CommError("the store of the job holds something else than its membership");
  result.version = *version;
  result.text = value->substr(line + 1);
  return result;
}

std::string value_of(const MembershipStore::Text& text) {
  return cat(text.version, "\n", text.text);
}

}  // namespace

MembershipStore::Text TcpMembershipStore::read() { return parse(store_->find(kTextKey)); }

bool TcpMembershipStore::replace(const Text& replaced, std::string_view text) {
  std::optional<std::string> expected;
  if (replaced.version > 0) expected = value_of(replaced);
  return store_->replace(kTextKey, expected, value_of({std::string(text), replaced.version + 1}));
}

void TcpMembershipStore::appear(const std::string& node) {
  {
    std::lock_guard lock(mutex_);
    node_ = node;
  }
  store_->set_at_end(cat("membership/gone/", node), "1");
  store_->add(cat("membership/alive/", node), 1);
}

void TcpMembershipStore::keep_alive() {
  std::string node;
  {
    std::lock_guard lock(mutex_);
    node = node_;
  }
  if (!node.empty()) store_->add(cat("membership/alive/", node), 1);
}

void TcpMembershipStore::leave() {
  std::lock_guard lock(mutex_);
  try {
    if (!node_.empty()) store_->set(cat("membership/gone/", node_), "1");
  } catch (const CommError&) {
    // The store is gone, and with it who would want to know.
  }
  node_.clear();
}

std::set<std::string> TcpMembershipStore::present(const std::set<std::string>& nodes) {
  std::set<std::string> found;
  for (const std::string& node : nodes) {
    auto count = store_->find(cat("membership/alive/", node));
    if (!count || store_->find(cat("membership/gone/", node))) continue;
    auto now = steady_clock::now();
    std::lock_guard lock(mutex_);
    Sign& sign = signs_.try_emplace(node, Sign{*count, now}).first->second;
    if (sign.count != *count) sign = {*count, now};
    if (now - sign.seen <= longest_silence_) found.insert(node);
  }
  return found;
}

void TcpMembershipStore::wait(int64_t version, milliseconds longest) {
  auto deadline = steady_clock::now() + longest;
  while (steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::min(longest, kReadAgain));
    if (read().version != version) return;
  }
}

}  // namespace tessera
