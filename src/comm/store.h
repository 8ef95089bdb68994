#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Small values under names, shared by the processes of a job while they find each other. Keys are
// set once or counted up, never removed. Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until the key is there. CommError that names the key when the time is over.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // The value if it is there already.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // Adds to a counter, 0 before, and returns its new value.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

// The same store with a prefix in front of every key: one for each group and each attempt.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  void set(const std::string& key, std::string_view value) override {
    store_->set(prefix_ + key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(prefix_ + key, timeout);
  }
  std::optional<std::string> find(const std::string& key) override {
    return store_->find(prefix_ + key);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_->add(prefix_ + key, amount);
  }

 private:
  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace tessera
