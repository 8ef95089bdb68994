#include "remote/curl_library.h"

#include <curl/curl.h>
#include <dlfcn.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

void* load_curl() {
  // The number of the interface; it has not changed since 2006.
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw UserError(cat("cannot fetch anything: ", ::dlerror(),
                        "; install libcurl (Debian: the package libcurl4), or give local files"));
  }
  auto* init =
      reinterpret_cast<decltype(&::curl_global_init)>(::dlsym(library, "curl_global_init"));
  if (!init || init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    throw UserError("cannot fetch anything: libcurl does not start; install it again");
  return library;
}

}  // namespace

void* curl_function(const char* name) {
  static void* const library = load_curl();
  void* function = ::dlsym(library, name);
  if (!function) {
    throw UserError(cat("cannot fetch anything: the libcurl of this machine has no ", name,
                        "; install version 7.85 or later (Debian: the package libcurl4)"));
  }
  return function;
}

}  // namespace tessera
