#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/state_files.h"
#include "programs/session.h"
#include "runtime/memory.h"

namespace tessera {

// Saves the state of a session: while the caller waits or, with memory to stage it in, beside the
// steps that follow. Then a thread copies the state, which only an update changes, while the next
// gradients are computed, and writes the files behind that. Into several directories it writes one
// after the other, each from that one copy: what becomes of one says nothing of the next.
class CheckpointSaver {
 public:
  CheckpointSaver(const Session& session, CheckpointGroup group);

  // What saving beside training takes of the host, of this rank.
  int64_t staging_bytes() const { return files_.staging_bytes(); }
  // From here on saves run beside training. The memory is touched here: the first touch of a page
  // costs thirty times what copying to it does.
  void save_beside_training(ThreadPool& pool);
  bool is_beside_training() const { return staging_.bytes() > 0; }

  struct Destination {
    std::filesystem::path directory;
    Retention retention = {};
    // Runs on the thread that writes, before anything else; of the first rank here. May be null.
    std::function<void()> check = {};
    int first_here = 0;  // CheckpointGroup::first_here
  };
  // What has become of a destination: the checkpoint, or the UserError of save_checkpoint().
  struct Saved {
    std::filesystem::path path;
    std::string error;
    double seconds = 0;  // from the call of start() until it was whole
  };
  struct Result {
    std::vector<Saved> saved;    // by destination
    double waiting_seconds = 0;  // those that the caller spent in calls of this class
    double writing_seconds = 0;  // of the files of this rank, without waiting for others
  };

  // Begins to save. The one before must have been finished. `content` lacks the state.
  void start(std::vector<Destination> destinations, CheckpointContent content);
  // To be called before the state is changed.
  void wait_for_copy();
  // Whether finish() would return at once.
  bool is_done() const;
  // Waits for the end of what was started. A wait that goes on is told of, with its seconds and
  // whether this rank is still writing: after half a minute, and after twice as long each time.
  // UserError where the state could not be read.
  using OnWait = std::function<void(double seconds, bool writes)>;
  Result finish(const OnWait& on_wait = {});

 private:
  CheckpointGroup group_;
  StateFiles files_;
  HostBuffer staging_;
  double start_seconds_ = 0, waiting_seconds_ = 0;
  std::atomic<bool> writes_ = false;
  std::future<void> copied_;
  std::future<Result> saved_;  // its end waits for the thread
};

}  // namespace tessera
