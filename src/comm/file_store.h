#pragma once
#include <filesystem>

#include "comm/store.h"

namespace tessera {

// A store in a folder that all ranks see, empty at first: for ranks of one host without an agent,
// or of hosts with a common file system. A value is a file that is moved into place; counters lock
// theirs. Waiting looks every few milliseconds. UserError where the folder cannot be written.
class FileStore final : public Store {
 public:
  explicit FileStore(std::filesystem::path folder);
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> find(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  std::filesystem::path path_of(const std::string& key) const;
  std::filesystem::path folder_;
};

}  // namespace tessera
