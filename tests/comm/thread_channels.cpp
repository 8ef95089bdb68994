#include "tests/comm/thread_channels.h"

#include <deque>

#include "comm/exchange_communicator.h"
#include "comm/local_transport.h"
#include "comm/message_control.h"

namespace tessera {
namespace {

// One address space: a location is an address.
class ThreadMemory final : public LocalMemory {
 public:
  ThreadMemory(int world_size, bool direct)
      : control_(static_cast<size_t>(world_size)), direct_(direct) {
    for (int rank = 0; rank < world_size; ++rank)
      staging_.emplace_back(2 * round_bytes(world_size));
  }
  bool holds(int) const override { return true; }
  ControlPage& control(int rank) override { return control_[static_cast<size_t>(rank)]; }
  std::byte* staging(int rank) override { return staging_[static_cast<size_t>(rank)].data(); }
  Location find(const void* data, int64_t) override {
    if (!direct_) return {};
    return {0, static_cast<int64_t>(reinterpret_cast<intptr_t>(data))};
  }
  const std::byte* resolve(int, const Location& location, int64_t) override {
    return reinterpret_cast<const std::byte*>(static_cast<intptr_t>(location.offset));
  }

 private:
  std::vector<ControlPage> control_;
  std::vector<HostBuffer> staging_;
  bool direct_;
};

}  // namespace

struct ThreadHub::Content {
  using Inboxes = std::deque<ControlInbox>;  // by rank
  Content(int world, bool direct)
      : world_size(world),
        health(std::make_shared<Health>(world)),
        memory(std::make_shared<ThreadMemory>(world, direct)),
        inboxes(std::make_shared<Inboxes>()) {
    for (int rank = 0; rank < world; ++rank) inboxes->emplace_back(world, *health);
    health->on_failure([all = inboxes](const std::string&) {
      for (ControlInbox& inbox : *all) inbox.wake();
    });
  }
  ControlLink link_of(int rank) const {
    ControlLink link{health, {inboxes, &(*inboxes)[static_cast<size_t>(rank)]}, {}};
    link.post = [rank, all = inboxes](const std::string& message) {
      for (size_t other = 0; other < all->size(); ++other)
        if (other != static_cast<size_t>(rank)) (*all)[other].put(rank, message, 0);
    };
    return link;
  }
  int world_size;
  std::shared_ptr<Health> health;
  std::shared_ptr<ThreadMemory> memory;
  std::shared_ptr<Inboxes> inboxes;
};

ThreadHub::ThreadHub(int world_size, Access access)
    : content_(std::make_shared<Content>(world_size, access == Access::kDirect)) {}

ThreadHub::~ThreadHub() = default;

Channels thread_channels(std::shared_ptr<ThreadHub> hub, int rank, Communicator::Options options) {
  const ThreadHub::Content& content = *hub->content_;
  Connections connections;
  connections.health = content.health;
  connections.memory = content.memory;
  connections.transports.push_back(std::make_unique<LocalTransport>(
      rank, content.world_size, *content.memory, *content.health, options.deadline));
  Channels channels;
  channels.control = std::make_unique<MessageControl>(rank, content.world_size, options.deadline,
                                                      content.link_of(rank));
  channels.communicator = std::make_unique<ExchangeCommunicator>(rank, content.world_size, options,
                                                                 std::move(connections));
  return channels;
}

}  // namespace tessera
