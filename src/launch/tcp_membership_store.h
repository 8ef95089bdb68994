#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "comm/tcp_store.h"
#include "launch/membership_store.h"

namespace tessera {

// A MembershipStore in the store that an agent serves. A node is gone when the server has seen the
// end of its connection, or when it has given no sign of life for `longest_silence`. The end of the
// server is a CommError.
class TcpMembershipStore final : public MembershipStore {
 public:
  TcpMembershipStore(std::unique_ptr<TcpStore> store, std::chrono::milliseconds longest_silence)
      : store_(std::move(store)), longest_silence_(longest_silence) {}

  Text read() override;
  bool replace(const Text& replaced, std::string_view text) override;
  bool replace_by_last(const Text& replaced, std::string_view text) override {
    return replace(replaced, text);  // the store ends with its agent
  }
  void appear(const std::string& node) override;
  void keep_alive() override;
  void leave() override;
  std::set<std::string> present(const std::set<std::string>& nodes) override;
  void wait(int64_t version, std::chrono::milliseconds longest) override;

 private:
  struct Sign {
    std::string count;
    std::chrono::steady_clock::time_point seen;
  };

  std::unique_ptr<TcpStore> store_;
  std::chrono::milliseconds longest_silence_;
  std::mutex mutex_;
  std::string node_;
  std::map<std::string, Sign> signs_;
};

}  // namespace tessera
