#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "comm/slurm_lists.h"

// Any bytes as the lists in Slurm's variables: names that a resolver and scontrol may be given, and
// a bounded number of them, or a UserError.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    std::vector<std::string> hosts = expand_host_list(text, "list");
    if (hosts.empty() || hosts.size() > 65'536) std::abort();
    for (const std::string& host : hosts) {
      if (host.empty() || host[0] == '-' || host.size() > 512) std::abort();
      if (host.find_first_of("[], \n/;") != std::string::npos) std::abort();
    }
  } catch (const UserError&) {
  }
  try {
    std::vector<int> counts = expand_task_counts(text, "counts");
    if (counts.empty() || counts.size() > 65'536) std::abort();
    for (int count : counts)
      if (count < 1) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
