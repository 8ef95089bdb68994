#include "comm/memory_store.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

void check_store_limits(std::string_view key, std::string_view value) {
  if (key.empty() || key.size() > kMaxStoreKey) {
    throw CommError(cat("a key of the store must have 1 to ", kMaxStoreKey, " bytes: '",
                        key.substr(0, 40), "' has ", key.size()));
  }
  if (value.size() > kMaxStoreValue) {
    throw CommError(cat("a value of the store may have ", kMaxStoreValue, " bytes: '", key,
                        "' has ", value.size()));
  }
}

void throw_store_timeout(const std::string& key, std::chrono::milliseconds timeout) {
  throw CommError(cat("nobody set '", key, "' in the store within ",
                      static_cast<double>(timeout.count()) / 1000, " s"));
}

void MemoryStore::set(const std::string& key, std::string_view value) {
  check_store_limits(key, value);
  std::lock_guard lock(mutex_);
  if (counters_.contains(key)) throw CommError(cat("'", key, "' in the store is a counter"));
  auto [at, added] = values_.emplace(key, value);
  if (!added && at->second != value) {
    throw CommError(cat("'", key,
                        "' in the store is set already, to another value: two processes have the "
                        "same rank, or the store belongs to an earlier job"));
  }
  changed_.notify_all();
}

std::optional<std::string> MemoryStore::find(const std::string& key) {
  check_store_limits(key);
  std::lock_guard lock(mutex_);
  if (auto at = values_.find(key); at != values_.end()) return at->second;
  if (auto at = counters_.find(key); at != counters_.end()) return cat(at->second);
  return std::nullopt;
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  auto deadline = std::chrono::steady_clock::now() + std::min(timeout, kLongestStoreWait);
  while (true) {
    if (auto value = find(key)) return *value;
    std::unique_lock lock(mutex_);
    // What was set since find() is seen by the predicate, not by the notification.
    bool there = changed_.wait_until(
        lock, deadline, [&] { return values_.contains(key) || counters_.contains(key); });
    if (!there) throw_store_timeout(key, timeout);
  }
}

bool MemoryStore::replace(const std::string& key, const std::optional<std::string>& expected,
                          std::string_view value) {
  check_store_limits(key, value);
  std::lock_guard lock(mutex_);
  if (counters_.contains(key)) throw CommError(cat("'", key, "' in the store is a counter"));
  auto at = values_.find(key);
  bool same = at == values_.end() ? !expected : expected && at->second == *expected;
  if (!same) return false;
  values_.insert_or_assign(key, std::string(value));
  changed_.notify_all();
  return true;
}

int64_t MemoryStore::add(const std::string& key, int64_t amount) {
  check_store_limits(key);
  std::lock_guard lock(mutex_);
  if (values_.contains(key)) throw CommError(cat("'", key, "' in the store is not a counter"));
  int64_t& counter = counters_[key];
  int64_t sum = 0;
  if (__builtin_add_overflow(counter, amount, &sum)) {
    throw CommError(cat("the counter '", key, "' in the store overflows"));
  }
  changed_.notify_all();
  return counter = sum;
}

}  // namespace tessera
