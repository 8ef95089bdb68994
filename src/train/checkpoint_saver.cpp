#include "train/checkpoint_saver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/interruption.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kFirstNotice{30};

}  // namespace

CheckpointSaver::CheckpointSaver(const Session& session, CheckpointGroup group)
    : group_(std::move(group)), files_(session.checkpoint_boxes(), group_.rank, group_.ranks) {}

void CheckpointSaver::save_beside_training(ThreadPool& pool) {
  staging_ = HostBuffer(std::max<int64_t>(staging_bytes(), 1));
  constexpr int64_t kTile = 4 << 20;
  pool.run((staging_.bytes() + kTile - 1) / kTile, [&](int64_t tile, int) {
    int64_t begin = tile * kTile, end = std::min(begin + kTile, staging_.bytes());
    std::memset(staging_.data() + begin, 0, static_cast<size_t>(end - begin));
  });
}

void CheckpointSaver::start(std::vector<Destination> destinations, CheckpointContent content) {
  TESSERA_CHECK(!saved_.valid(), "a save is still running");
  start_seconds_ = monotonic_seconds();
  waiting_seconds_ = 0;
  std::promise<void> copied;
  copied_ = copied.get_future();
  auto save = [this, destinations = std::move(destinations), content = std::move(content),
               copied = std::move(copied)]() mutable {
    // What is asked to end ends with a checkpoint, wherever that goes.
    InterruptedBy nothing(kNeverRequested);
    std::span<std::byte> staged(staging_.data(), static_cast<size_t>(staging_.bytes()));
    Manifest manifest;
    if (is_beside_training()) {
      try {
        manifest = files_.stage(staged);
      } catch (...) {
        copied.set_exception(std::current_exception());
        throw;
      }
    }
    copied.set_value();
    Result result;
    content.write_state = [&](const std::filesystem::path& to) {
      const double begin = monotonic_seconds();
      struct Writing {
        std::atomic<bool>& flag;
        ~Writing() { flag = false; }
      } writing{writes_};
      writes_ = true;
      Manifest written = manifest;
      if (is_beside_training()) {
        files_.write_staged(to, staged);
      } else {
        written = files_.write(to);
      }
      result.writing_seconds += monotonic_seconds() - begin;
      return written;
    };
    for (const Destination& to : destinations) {
      Saved& saved = result.saved.emplace_back();
      content.on_complete = [&] { saved.seconds = monotonic_seconds() - start_seconds_; };
      try {
        CheckpointGroup group = group_;
        group.first_here = to.first_here;
        saved.path = save_checkpoint(to.directory, content, to.retention, group, to.check);
      } catch (const UserError& error) {
        saved.error = error.what();
      }
    }
    return result;
  };
  saved_ = std::async(std::launch::async, std::move(save));
  waiting_seconds_ = monotonic_seconds() - start_seconds_;
}

void CheckpointSaver::wait_for_copy() {
  if (!copied_.valid()) return;
  double before = monotonic_seconds();
  copied_.get();
  waiting_seconds_ += monotonic_seconds() - before;
}

bool CheckpointSaver::is_done() const {
  return saved_.valid() && saved_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CheckpointSaver::Result CheckpointSaver::finish(const OnWait& on_wait) {
  const double before = monotonic_seconds();
  const auto begin = std::chrono::steady_clock::now();
  for (std::chrono::seconds due = kFirstNotice;
       on_wait && saved_.wait_until(begin + due) != std::future_status::ready; due *= 2)
    on_wait(monotonic_seconds() - before, writes_);
  Result result = saved_.get();
  copied_ = {};
  result.waiting_seconds = waiting_seconds_ + monotonic_seconds() - before;
  return result;
}

}  // namespace tessera
