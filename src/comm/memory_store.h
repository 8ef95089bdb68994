#pragma once
#include <condition_variable>
#include <map>
#include <mutex>

#include "comm/store.h"

namespace tessera {

// A store in this process: of a job with one process, of tests, and behind a TcpStoreServer.
// CommError when a key is set again to another value (two processes under one name, or a store that
// belongs to an earlier job), when a counter is set or a value counted, and for a key longer than
// 4 KiB or a value longer than 16 MiB.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> find(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  // Compare-and-swap, for keys that are used in no other way: gives the key this value if it has
  // the expected one, or, with none expected, if it is not there. Whether it did.
  bool replace(const std::string& key, const std::optional<std::string>& expected,
               std::string_view value);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, int64_t, std::less<>> counters_;  // read as their decimal text
};

// Limits of every store.
constexpr size_t kMaxStoreKey = 4 << 10, kMaxStoreValue = 16 << 20;
constexpr std::chrono::milliseconds kLongestStoreWait = std::chrono::hours(24 * 30);

// CommError for an empty or too long key, or a too long value.
void check_store_limits(std::string_view key, std::string_view value = {});

// CommError: nobody set the key in time.
[[noreturn]] void throw_store_timeout(const std::string& key, std::chrono::milliseconds timeout);

}  // namespace tessera
