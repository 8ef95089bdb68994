#pragma once
#include <memory>

#include "comm/channels.h"

namespace tessera {

// What ranks that are threads of one process share: make one, hand it to each.
class ThreadHub {
 public:
  // kDirect: sources are read where they lie, so after a failure a rank must keep its buffers until
  // the others have ended their calls too. kStaged: through the staging area, as between
  // processes for buffers outside shared memory.
  enum class Access { kDirect, kStaged };
  explicit ThreadHub(int world_size, Access access = Access::kDirect);
  ~ThreadHub();

 private:
  friend Channels thread_channels(std::shared_ptr<ThreadHub> hub, int rank,
                                  Communicator::Options options);
  struct Content;
  std::shared_ptr<Content> content_;
};

// What one rank has of the others.
Channels thread_channels(std::shared_ptr<ThreadHub> hub, int rank, Communicator::Options options);

}  // namespace tessera
