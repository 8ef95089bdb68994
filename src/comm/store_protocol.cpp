#include "comm/store_protocol.h"

#include <algorithm>
#include <utility>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {
constexpr size_t kSizeBytes = 4, kRequestHead = 1 + 4;
constexpr uint64_t kNothingExpected = 0xFFFF'FFFF;
}  // namespace

std::string little_endian(uint64_t number, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(number >> (8 * i)));
  return text;
}

uint64_t from_little_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<uint8_t>(bytes[i]);
  return number;
}

std::string store_hello(std::string_view random) {
  TESSERA_CHECK(random.size() == 32);
  return cat(kStoreMagic, little_endian(kStoreVersion, 4), random);
}

std::optional<uint32_t> store_hello_version(std::string_view hello) {
  if (hello.size() != kStoreHelloSize || !hello.starts_with(kStoreMagic)) return std::nullopt;
  return static_cast<uint32_t>(from_little_endian(hello.substr(kStoreMagic.size(), 4)));
}

std::string store_proof(std::string_view token, std::string_view side,
                        std::string_view client_hello, std::string_view server_hello) {
  return hmac_sha256(token, cat(side, client_hello, server_hello));
}

std::string store_request(StoreOperation operation, std::string_view key,
                          std::string_view argument) {
  return cat(little_endian(kRequestHead + key.size() + argument.size(), kSizeBytes),
             static_cast<char>(operation), little_endian(key.size(), 4), key, argument);
}

std::string store_replacement(const std::optional<std::string>& expected, std::string_view value) {
  return cat(little_endian(expected ? expected->size() : kNothingExpected, kSizeBytes),
             expected.value_or(""), value);
}

void StoreSession::receive(std::string_view bytes, TimePoint now) {
  while (!bytes.empty() && !closed_) {
    // A client sends nothing while its last request is unanswered, so that no more than one answer
    // is ever kept for it.
    bool early = is_accepted() && (until_ || !output_.empty());
    if (early) {
      closed_ = true;
      return;
    }
    size_t part = std::min(bytes.size(), needed_ - input_.size());
    input_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (input_.size() < needed_) return;
    take(std::exchange(input_, {}), now);
  }
}

void StoreSession::expect(Stage stage, size_t bytes) {
  stage_ = stage;
  needed_ = bytes;
}

void StoreSession::take(std::string_view message, TimePoint now) {
  switch (stage_) {
    case Stage::kHello: return check_hello(message);
    case Stage::kProof: return check_proof(message);
    case Stage::kSize: return check_size(from_little_endian(message));
    case Stage::kRequest: return do_request(message, now);
  }
}

void StoreSession::check_hello(std::string_view hello) {
  auto version = store_hello_version(hello);
  if (version) output_ += hello_;  // of another version: the client says so
  closed_ = version != kStoreVersion;
  client_hello_ = hello;
  expect(Stage::kProof, kStoreProofSize);
}

void StoreSession::check_proof(std::string_view proof) {
  if (!equal_in_constant_time(proof, store_proof(token_, "client", client_hello_, hello_))) {
    output_.push_back('\0');
    closed_ = refused_ = true;
    return;
  }
  output_ += cat('\1', store_proof(token_, "server", client_hello_, hello_));
  expect(Stage::kSize, kSizeBytes);
}

void StoreSession::check_size(uint64_t size) {
  closed_ =
      size < kRequestHead || size > kRequestHead + kMaxStoreKey + kSizeBytes + 2 * kMaxStoreValue;
  expect(Stage::kRequest, size);
}

void StoreSession::do_request(std::string_view request, TimePoint now) {
  expect(Stage::kSize, kSizeBytes);
  auto operation = static_cast<StoreOperation>(request[0]);
  uint64_t key_size = from_little_endian(request.substr(1, 4));
  request.remove_prefix(kRequestHead);
  closed_ = key_size > request.size();
  if (closed_) return;
  std::string key(request.substr(0, key_size));
  try {
    check_store_limits(key);
    do_operation(operation, key, request.substr(key_size), now);
  } catch (const CommError& error) {
    answer(StoreAnswer::kError, error.what());
  }
}

void StoreSession::do_operation(StoreOperation operation, const std::string& key,
                                std::string_view argument, TimePoint now) {
  bool set = operation == StoreOperation::kSet, find = operation == StoreOperation::kFind;
  if (set) {
    store_.set(key, argument);
    answer(StoreAnswer::kValue, "");
  } else if (find && argument.empty()) {
    auto value = store_.find(key);
    answer(value ? StoreAnswer::kValue : StoreAnswer::kNone, value.value_or(""));
  } else if (operation == StoreOperation::kAdd && argument.size() == 8) {
    auto amount = static_cast<int64_t>(from_little_endian(argument));
    answer(StoreAnswer::kValue, cat(store_.add(key, amount)));
  } else if (operation == StoreOperation::kGet && argument.size() == 8) {
    auto longest = static_cast<uint64_t>(kLongestStoreWait.count());
    uint64_t wait = std::min(from_little_endian(argument), longest);
    until_ = now + std::chrono::milliseconds(wait);
    awaited_ = key;
    resume(now);
  } else if (operation == StoreOperation::kReplace && argument.size() >= kSizeBytes) {
    do_replace(key, argument);
  } else if (operation == StoreOperation::kAtEnd) {
    check_store_limits(key, argument);
    last_key_ = key;
    last_value_ = argument;
    answer(StoreAnswer::kValue, "");
  } else {
    closed_ = true;
  }
}

void StoreSession::do_replace(const std::string& key, std::string_view argument) {
  uint64_t size = from_little_endian(argument.substr(0, kSizeBytes));
  argument.remove_prefix(kSizeBytes);
  std::optional<std::string> expected;
  if (size != kNothingExpected) {
    closed_ = size > argument.size();
    if (closed_) return;
    expected = argument.substr(0, size);
    argument.remove_prefix(size);
  }
  answer(StoreAnswer::kValue, store_.replace(key, expected, argument) ? "1" : "0");
}

void StoreSession::end() {
  std::string key = std::exchange(last_key_, {});
  try {
    if (!key.empty()) store_.set(key, last_value_);
  } catch (const CommError&) {
    // It has another value already, and nobody to be told so.
  }
}

void StoreSession::resume(TimePoint now) {
  if (!until_) return;
  auto value = store_.find(awaited_);
  if (!value && now < *until_) return;
  until_.reset();
  answer(value ? StoreAnswer::kValue : StoreAnswer::kTimeout, value.value_or(""));
}

void StoreSession::answer(StoreAnswer kind, std::string_view text) {
  output_ += cat(little_endian(1 + text.size(), kSizeBytes), static_cast<char>(kind), text);
}

}  // namespace tessera
