#include "faults.h"

#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace tessera::emulated_gpu {
namespace {

struct Fault {
  std::string action, event;
  int64_t at = 0, seen = 0;
};

// Of this process, if it is the rank that is meant.
Fault fault_of_environment() {
  const char* text = std::getenv("TESSERA_EMULATED_GPU_FAULT");
  const char* own = std::getenv("RANK");
  Fault fault;
  if (!text) return fault;
  std::istringstream words(text);
  words >> fault.action;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "rank") {
      if (!own || value != own) return {};
    } else {
      fault.event = key;
      fault.at = std::atoll(value.c_str());
    }
  }
  return fault;
}

}  // namespace

bool fault_at(const char* event) {
  static Fault fault = fault_of_environment();
  if (fault.at == 0 || fault.event != event || ++fault.seen != fault.at) return false;
  if (fault.action == "kill") ::raise(SIGKILL);
  if (fault.action == "stop") ::raise(SIGSTOP);
  return fault.action == "fail";
}

}  // namespace tessera::emulated_gpu
