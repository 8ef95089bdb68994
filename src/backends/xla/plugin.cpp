#include "backends/xla/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/text.h"

namespace tessera::xla {

using pjrt::Function;

namespace {

constexpr int kMajorVersion = 0;

}  // namespace

Plugin::Plugin(const std::string& path) : path_(path) {
  // XLA tells things that only its makers want to know, on standard error.
  ::setenv("TF_CPP_MIN_LOG_LEVEL", "1", 0);
  // A name without a slash is looked for where libraries are installed alone.
  std::error_code ignored;
  const std::string file =
      std::filesystem::exists(path, ignored) ? std::filesystem::absolute(path).string() : path;
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw UserError(cat("cannot load XLA's plug-in: ", ::dlerror()));
  auto get = reinterpret_cast<const pjrt::Api* (*)()>(::dlsym(library, "GetPjrtApi"));
  if (!get) throw UserError(cat("'", path, "' is no plug-in of XLA: it has no GetPjrtApi"));
  api_ = get();
  constexpr size_t kLeast = offsetof(pjrt::Api, functions);
  if (!api_ || api_->head.struct_size < kLeast || api_->major_version != kMajorVersion) {
    throw UserError(cat("'", path, "' is a plug-in of interface ",
                        api_ && api_->head.struct_size >= kLeast ? version() : "unknown",
                        ", this program speaks ", kMajorVersion, ".x"));
  }
  Call<pjrt::PluginInitialize> initialize;
  call(Function::kPluginInitialize, initialize, "starting the plug-in");
}

std::string Plugin::version() const { return cat(api_->major_version, ".", api_->minor_version); }

bool Plugin::has(Function function) const {
  const size_t end = offsetof(pjrt::Api, functions) +
                     (static_cast<size_t>(function) + 1) * sizeof(pjrt::Api::Entry);
  return end <= api_->head.struct_size && api_->functions[static_cast<size_t>(function)];
}

pjrt::Api::Entry Plugin::entry(Function function) const {
  if (!has(function)) {
    throw UserError(cat("'", path_, "', a plug-in of interface ", version(),
                        ", lacks function number ", static_cast<size_t>(function)));
  }
  return api_->functions[static_cast<size_t>(function)];
}

void Plugin::check(pjrt::Error* error, const std::string& doing) const {
  if (!error) return;
  Call<pjrt::ErrorMessage> message;
  message->error = error;
  entry(Function::kErrorMessage)(message.get());
  Call<pjrt::ErrorGetCode> code;
  code->error = error;
  entry(Function::kErrorGetCode)(code.get());
  const std::string_view text(message->message, message->message_size);
  const bool memory = code->code == pjrt::ErrorCode::kResourceExhausted ||
                      text.find("Out of memory") != std::string_view::npos;
  const PluginError thrown(
      cat(doing, ": XLA says: ", text,
          memory ? " Lower --train_batch_size or --max_context_width, or use more ranks" : ""),
      code->code);
  Call<pjrt::ErrorDestroy> destroy;
  destroy->error = error;
  entry(Function::kErrorDestroy)(destroy.get());
  throw thrown;
}

void Plugin::await(pjrt::Event* event, const std::string& doing) const {
  if (!event) return;
  Call<pjrt::EventAwait> await;
  await->event = event;
  pjrt::Error* error = entry(Function::kEventAwait)(await.get());
  Call<pjrt::EventDestroy> destroy;
  destroy->event = event;
  entry(Function::kEventDestroy)(destroy.get());
  check(error, doing);
}

}  // namespace tessera::xla
