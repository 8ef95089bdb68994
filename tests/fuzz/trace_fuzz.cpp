#include <cstdint>
#include <string>

#include "base/error.h"
#include "profile/profile_page.h"
#include "profile/profile_report.h"
#include "profile/trace_reader.h"
#include "tests/fuzz/memory_source.h"

// Any bytes as a trace of the profiler: refused, or a report that can be printed.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const std::vector<RankTrace> traces =
        read_trace(MemorySource(std::string(reinterpret_cast<const char*>(data), size)));
    if (traces.empty()) return 0;
    const ProfileReport report = profile_report(traces);
    report_text(report, 5);
    report_json(report);
    profile_page(traces, report);
    diff_text(report, report, 5);
  } catch (const UserError&) {
  }
  return 0;
}
