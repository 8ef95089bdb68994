#include "backends/xla/key_values.h"

#include <cstring>
#include <exception>

namespace tessera::xla {
namespace {

using pjrt::ErrorCode;

const KeyValues& values_of(void* argument) { return *static_cast<const KeyValues*>(argument); }

// Runs `work`; what it throws becomes an error of XLA's.
template <class Arguments, class Work>
pjrt::Error* guarded(Arguments& arguments, Work work) {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  try {
    if (work(values_of(arguments.user_argument))) return nullptr;
    code = ErrorCode::kNotFound;
    message = "no key '" + std::string(arguments.key, arguments.key_size) + "'";
  } catch (const std::exception& error) {
    message = error.what();
  }
  return (*arguments.make_error)(code, message.data(), message.size());
}

// The plug-in copies the value, then has it deleted.
template <class Arguments>
void hand_over(Arguments& arguments, const std::string& value) {
  arguments.value = new char[value.size()];
  std::memcpy(arguments.value, value.data(), value.size());
  arguments.value_size = value.size();
  arguments.delete_value = [](char* data) { delete[] data; };
}

pjrt::Error* get(pjrt::KeyValueGet* arguments) {
  return guarded(*arguments, [&](const KeyValues& values) {
    hand_over(*arguments, values.get(std::string(arguments->key, arguments->key_size),
                                     std::chrono::milliseconds(arguments->timeout_ms)));
    return true;
  });
}

pjrt::Error* try_get(pjrt::KeyValueTryGet* arguments) {
  return guarded(*arguments, [&](const KeyValues& values) {
    const auto found = values.find(std::string(arguments->key, arguments->key_size));
    if (found) hand_over(*arguments, *found);
    return found.has_value();
  });
}

pjrt::Error* put(pjrt::KeyValuePut* arguments) {
  return guarded(*arguments, [&](const KeyValues& values) {
    values.put(std::string(arguments->key, arguments->key_size),
               std::string(arguments->value, arguments->value_size));
    return true;
  });
}

}  // namespace

void give(const KeyValues& values, pjrt::ClientCreate& create) {
  void* argument = const_cast<KeyValues*>(&values);
  create.kv_get = get;
  create.kv_put = put;
  create.kv_try_get = try_get;
  create.kv_get_argument = create.kv_put_argument = create.kv_try_get_argument = argument;
}

}  // namespace tessera::xla
