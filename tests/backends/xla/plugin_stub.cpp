// Plug-ins that are none, by what STUB says: which version of the interface they claim, how long
// their table is, what their first function does, and how they meet the other processes of a job.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

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

#if defined STUB_JOB
using namespace tessera::xla::pjrt;

struct Raised {
  ErrorCode code;
  std::string message;
};
Error* raise(ErrorCode code, const char* message, size_t size) {
  return reinterpret_cast<Error*>(new Raised{code, std::string(message, size)});
}
MakeError make_error = raise;

// Arguments of a callback of the job, or of looking at an error.
template <class Arguments>
Arguments of(const std::string& key, void* user) {
  Arguments arguments{};
  arguments.head.struct_size = sizeof(Arguments);
  arguments.key = key.data();
  arguments.key_size = key.size();
  arguments.make_error = &make_error;
  arguments.user_argument = user;
  return arguments;
}

Error* error_message(void* arguments) {
  auto& ask = *static_cast<ErrorMessage*>(arguments);
  const std::string& message = reinterpret_cast<const Raised*>(ask.error)->message;
  ask.message = message.data();
  ask.message_size = message.size();
  return nullptr;
}
Error* error_code(void* arguments) {
  auto& ask = *static_cast<ErrorGetCode*>(arguments);
  ask.code = reinterpret_cast<const Raised*>(ask.error)->code;
  return nullptr;
}
Error* error_destroy(void* arguments) {
  delete reinterpret_cast<Raised*>(static_cast<ErrorDestroy*>(arguments)->error);
  return nullptr;
}

// A device of a job: puts its options under "options", waits for "hello", says it again as "echo",
// and notes as "missing" what looking for a key that is not there gives.
Error* create_client(void* arguments) {
  auto& create = *static_cast<ClientCreate*>(arguments);
  auto put = [&](const std::string& key, const std::string& value) {
    auto call = of<KeyValuePut>(key, create.kv_put_argument);
    call.value = value.data();
    call.value_size = value.size();
    return create.kv_put(&call);
  };
  std::string options;
  for (size_t k = 0; k < create.num_options; ++k) {
    const NamedValue& option = create.options[k];
    options += std::string(option.name, option.name_size) + " ";
    options += std::to_string(option.type == NamedValue::Type::kI64List ? option.int64_list[0]
                                                                        : option.int64_value);
    options += ";";
  }
  if (Error* error = put("options", options)) return error;
  const std::string hello = "hello", nobody = "nobody";
  auto get = of<KeyValueGet>(hello, create.kv_get_argument);
  get.timeout_ms = 1500;
  if (Error* error = create.kv_get(&get)) return error;
  const std::string value(get.value, get.value_size);
  get.delete_value(get.value);
  if (Error* error = put("echo", value)) return error;
  auto find = of<KeyValueTryGet>(nobody, create.kv_try_get_argument);
  auto* none = reinterpret_cast<Raised*>(create.kv_try_get(&find));
  const std::string found = none ? std::to_string(static_cast<int>(none->code)) : "found";
  delete none;
  create.client = reinterpret_cast<Client*>(&make_error);
  return put("missing", found);
}
Error* list_devices(void* arguments) {
  static Device* const devices[1] = {nullptr};
  auto& list = *static_cast<ClientAddressableDevices*>(arguments);
  list.devices = devices;
  list.num_devices = 1;
  return nullptr;
}
#endif

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
#elif defined STUB_JOB
  auto set = [](Function function, Api::Entry entry) {
    (&table.api.functions[0])[static_cast<size_t>(function)] = entry;
  };
  set(Function::kErrorMessage, error_message);
  set(Function::kErrorGetCode, error_code);
  set(Function::kErrorDestroy, error_destroy);
  set(Function::kClientCreate, create_client);
  set(Function::kClientAddressableDevices, list_devices);
#endif
  return &table.api;
}
