#include "backends/cuda/nccl_network.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

constexpr const char* kLevel = "NCCL_DEBUG";
constexpr const char* kFile = "NCCL_DEBUG_FILE";
constexpr const char* kParts = "NCCL_DEBUG_SUBSYS";

// What follows the last of these words, up to one of `ends`; "" if they are not there.
std::string behind(std::string_view log, std::string_view words, std::string_view ends) {
  const size_t at = log.rfind(words);
  if (at == log.npos) return "";
  log.remove_prefix(at + words.size());
  return std::string(trim(log.substr(0, log.find_first_of(ends))));
}

}  // namespace

NcclNetwork::NcclNetwork() {
  for (const char* name : {kLevel, kFile, kParts})
    if (std::getenv(name)) return;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return;
  file_ = (folder / cat("tessera-nccl-log.", unique_suffix())).string();
  ::setenv(kLevel, "INFO", 1);
  ::setenv(kParts, "INIT,NET", 1);
  ::setenv(kFile, file_.c_str(), 1);
}

NcclNetwork::~NcclNetwork() {
  if (file_.empty()) return;
  for (const char* name : {kLevel, kFile, kParts}) ::unsetenv(name);
  std::error_code error;
  std::filesystem::remove(file_, error);
}

std::string NcclNetwork::name() const {
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(file_, error)) return "";
  try {
    return name_in(read_file(file_));
  } catch (const Error&) {  // what it would tell is no condition of training
    return "";
  }
}

std::string NcclNetwork::name_in(std::string_view log) {
  std::string network = behind(log, "Using network ", "\n");
  if (network.empty()) network = behind(log, "Using internal network ", "\n");
  if (network.empty()) return "";
  std::string provider = behind(log, "NET/OFI Selected provider is ", " ,\n");
  if (provider.empty()) provider = behind(log, "NET/OFI Selected Provider is ", " ,\n");
  return provider.empty() ? network : cat(network, ", provider ", provider);
}

}  // namespace tessera::cuda
