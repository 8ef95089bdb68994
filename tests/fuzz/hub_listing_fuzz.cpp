#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "remote/hub_listing.h"
#include "remote/hub_reference.h"

// Any bytes as the hub's answers, and as a name on it: files below a directory, or a UserError.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (parse_hub_revision(text, "hub").size() != 40) std::abort();
  } catch (const UserError&) {
  }
  try {
    if (parse_hub_reference(text).repository.find("..") == 0) std::abort();
  } catch (const UserError&) {
  }
  try {
    std::vector<HubFile> files;
    parse_hub_tree(text, "hub", files);
    for (const HubFile& file : files) {
      if (file.path.empty() || file.path[0] == '/' || file.path.starts_with("../")) std::abort();
      if (file.path.find("/../") != std::string::npos) std::abort();
    }
    size_t count = files.size();
    if (choose_data_files(std::move(files), "", "hub").files.size() > count) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
