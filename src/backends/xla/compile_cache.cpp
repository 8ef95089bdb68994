#include "backends/xla/compile_cache.h"

#include <cstdlib>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

namespace fs = std::filesystem;

// Behind it the hash of the program, in hexadecimal digits, then the program.
constexpr std::string_view kHead = "tessera xla program 1 ";
constexpr size_t kDigits = 16;

// XLA makes code for the processor that it runs on, and takes options from its variable.
std::string processor_and_flags() {
  std::string text;
  for (std::string_view line : split(read_file("/proc/cpuinfo"), '\n')) {
    if (line.empty()) break;  // others are as the first
    for (const char* field : {"vendor_id", "cpu family", "model", "flags"})
      if (line.starts_with(field)) text += cat(line, "\n");
  }
  const char* flags = std::getenv("XLA_FLAGS");
  return cat(text, flags ? flags : "");
}

}  // namespace

CompileCache::CompileCache(const Client& client, const fs::path& directory) : client_(client) {
  if (directory.empty()) return;
  directory_ = directory / "xla";
  const MappedFile plugin(client.plugin().path());
  maker_ = hash_combine(hash_text(plugin.text()),
                        hash_text(cat(client.platform(), client.platform_version())));
  maker_ = hash_combine(maker_, hash_text(processor_and_flags()));
}

std::unique_ptr<CompiledProgram> CompileCache::compile(const std::string& text, int replicas) {
  if (directory_.empty()) return client_.compile(text, replicas);
  uint64_t key =
      hash_combine(hash_combine(maker_, hash_text(text)), hash_text(compile_options(replicas)));
  const fs::path entry = directory_ / (hex(key) + ".pjrt");
  if (auto known = load(entry)) {
    ++hits_;
    return known;
  }
  auto program = client_.compile(text, replicas);
  keep(entry, *program);
  return program;
}

std::unique_ptr<CompiledProgram> CompileCache::load(const fs::path& entry) const {
  std::error_code ignored;
  if (!fs::exists(entry, ignored)) return nullptr;
  try {
    const MappedFile file(entry);
    std::string_view text = file.text();
    if (!text.starts_with(kHead) || text.size() < kHead.size() + kDigits)
      throw UserError("it is no program of this cache");
    const std::string_view hash = text.substr(kHead.size(), kDigits);
    text.remove_prefix(kHead.size() + kDigits);
    // XLA may end the process over what is cut or changed.
    if (hash != hex(hash_text(text))) throw UserError("it is damaged");
    return client_.load(std::string(text));
  } catch (const Error& error) {
    TESSERA_WARN(cat("the compiled program '", entry.string(), "' is made anew: ", error.what()));
    return nullptr;
  }
}

void CompileCache::keep(const fs::path& entry, const CompiledProgram& program) {
  try {
    make_directories(directory_);
    const std::string bytes = program.serialized();
    AtomicFile file(entry);
    file.write(kHead);
    file.write(hex(hash_text(bytes)));
    file.write(bytes);
    file.commit();
  } catch (const Error& error) {
    TESSERA_WARN(cat("compiled programs are not kept: ", error.what()));
    directory_.clear();
  }
}

}  // namespace tessera::xla
