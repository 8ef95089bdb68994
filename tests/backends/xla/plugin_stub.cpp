// Plug-ins that are none, by what STUB says: which version of the interface they claim, how long
// their table is, and what their first function does.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "backends/xla/pjrt_api.h"

namespace {

using tessera::xla::pjrt::Api;
using tessera::xla::pjrt::Error;

Error* succeed(void*) { return nullptr; }

[[maybe_unused]] Error* crash(void*) {
  std::fprintf(stderr, "Check failed: the stub goes no further\n");
  std::fflush(stderr);
  ::raise(SIGSEGV);
  return nullptr;
}

[[maybe_unused]] Error* hang(void*) {
  for (;;) ::pause();
}

struct Table {
  Api api{};  // with room for one function
  Api::Entry more[120] = {};
};

Table table;

}  // namespace

extern "C" __attribute__((visibility("default"))) const Api* GetPjrtApi() {
  [[maybe_unused]] constexpr size_t kInitialize = 3;
  table.api.head.struct_size = sizeof(Table);
  for (size_t i = 0; i < 100; ++i) (&table.api.functions[0])[i] = succeed;
#ifdef STUB_MAJOR
  table.api.major_version = STUB_MAJOR;
#endif
  table.api.minor_version = 7;
#if defined STUB_SHORT  // ends before the function that starts the plug-in
  table.api.head.struct_size = offsetof(Api, functions) + kInitialize * sizeof(Api::Entry);
#elif defined STUB_TINY  // has not even its version
  table.api.head.struct_size = sizeof(tessera::xla::pjrt::Head);
#elif defined STUB_OLD   // has nothing for compiling ahead of time
  table.api.head.struct_size = offsetof(Api, functions) + 60 * sizeof(Api::Entry);
#elif defined STUB_NULL
  return nullptr;
#elif defined STUB_CRASH
  (&table.api.functions[0])[kInitialize] = crash;
#elif defined STUB_HANG
  (&table.api.functions[0])[kInitialize] = hang;
#endif
  return &table.api;
}
