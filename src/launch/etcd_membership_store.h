#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "launch/etcd_client.h"
#include "launch/membership_store.h"

namespace tessera {

// A MembershipStore in etcd, below /tessera/JOB/: the text is one key, a node another one with a
// lease of `longest_silence`, at least 2 s.
class EtcdMembershipStore final : public MembershipStore {
 public:
  EtcdMembershipStore(std::unique_ptr<EtcdClient> client, const std::string& job,
                      std::chrono::milliseconds longest_silence);

  Text read() override;
  bool replace(const Text& replaced, std::string_view text) override;
  bool replace_by_last(const Text& replaced, std::string_view text) override;
  void appear(const std::string& node) override;
  void keep_alive() override;
  void leave() override;
  std::set<std::string> present(const std::set<std::string>& nodes) override;
  void wait(int64_t version, std::chrono::milliseconds longest) override;

 private:
  std::string key(std::string_view name) const;
  bool put(const Text& replaced, std::string_view text, int64_t lease);
  int64_t grant(int64_t seconds);

  std::unique_ptr<EtcdClient> client_;
  std::string prefix_;
  int64_t ttl_;                        // seconds
  std::atomic<int64_t> revision_ = 0;  // of the last read
  std::mutex mutex_;
  std::string node_;
  int64_t lease_ = 0;
};

}  // namespace tessera
