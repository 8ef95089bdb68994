#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "backends/xla/client.h"

namespace tessera::xla {

// Compiled programs on disk, by what they are made of: text, options, plug-in, platform, processor
// and XLA_FLAGS. An entry that is damaged, or that XLA does not take, is said and made anew; so is
// nothing where the directory cannot be written, which is said once.
class CompileCache {
 public:
  // Under this directory, in `xla`; an empty path: no cache.
  CompileCache(const Client& client, const std::filesystem::path& directory);

  std::unique_ptr<CompiledProgram> compile(const std::string& text, int replicas);
  int64_t hits() const { return hits_; }

 private:
  std::unique_ptr<CompiledProgram> load(const std::filesystem::path& entry) const;
  void keep(const std::filesystem::path& entry, const CompiledProgram& program);

  const Client& client_;
  std::filesystem::path directory_;
  uint64_t maker_ = 0;  // of plug-in and platform
  int64_t hits_ = 0;
};

}  // namespace tessera::xla
