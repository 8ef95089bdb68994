// What g++ calls from code that it compiles with -fsanitize=thread, and with -fsanitize=bounds and
// alignment. Compiled into the checked variant only, in the place of the sanitizers' own libraries.
#include "access_checks.h"
#include "block_runner.h"
#include "findings.h"

namespace tessera::simt {
namespace {
[[maybe_unused]] const bool is_checked = checking = true;

// Of the sanitizers' interface: where an expression stands.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
void wrong_expression(const char* rule, const void* data) {
  const auto* at = static_cast<const SourceLocation*>(data);
  kernel_finding(rule,
                 text_of({at->file ? at->file : "unknown place", static_cast<int>(at->line)}));
}
}  // namespace
}  // namespace tessera::simt

using tessera::simt::Access;
using tessera::simt::touch;

extern "C" {
#pragma GCC visibility push(hidden)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define TESSERA_ACCESS(bytes)                                     \
  void __tsan_read##bytes(void* p) {                              \
    touch(p, bytes, Access::kRead, __builtin_return_address(0));  \
  }                                                               \
  void __tsan_write##bytes(void* p) {                             \
    touch(p, bytes, Access::kWrite, __builtin_return_address(0)); \
  }                                                               \
  void __tsan_unaligned_read##bytes(void* p) {                    \
    touch(p, bytes, Access::kRead, __builtin_return_address(0));  \
  }                                                               \
  void __tsan_unaligned_write##bytes(void* p) {                   \
    touch(p, bytes, Access::kWrite, __builtin_return_address(0)); \
  }                                                               \
  void __tsan_volatile_read##bytes(void* p) {                     \
    touch(p, bytes, Access::kRead, __builtin_return_address(0));  \
  }                                                               \
  void __tsan_volatile_write##bytes(void* p) {                    \
    touch(p, bytes, Access::kWrite, __builtin_return_address(0)); \
  }
TESSERA_ACCESS(1)
TESSERA_ACCESS(2)
TESSERA_ACCESS(4)
TESSERA_ACCESS(8)
TESSERA_ACCESS(16)
void __tsan_read_range(void* p, size_t bytes) {
  touch(p, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t bytes) {
  touch(p, bytes, Access::kWrite, __builtin_return_address(0));
}
void __ubsan_handle_out_of_bounds(void* data, void*) {
  tessera::simt::wrong_expression("an index is outside its array", data);
}
void __ubsan_handle_type_mismatch_v1(void* data, void*) {
  tessera::simt::wrong_expression("an address is not aligned to its type", data);
}
#pragma GCC visibility pop
}
