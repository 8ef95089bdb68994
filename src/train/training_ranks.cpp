// What the ranks of a training run do together beside the steps themselves.
#include <algorithm>
#include <chrono>
#include <future>

#include "base/file.h"
#include "base/hash.h"
#include "train/interruption.h"
#include "train/option_table.h"
#include "train/training_run.h"

namespace tessera {

// Every rank must run the same program with the same options: what differs is named.
void TrainingRun::check_ranks_agree() const {
  if (!device_.communicator) return;
  auto compare = [&](const std::string& mine, const std::string& what) {
    auto all = device_.communicator->exchange(mine, cat("comparison of ", what));
    for (size_t r = 1; r < all.size(); ++r) {
      if (all[r] == all[0]) continue;
      auto left = split(all[0], '\n'), right = split(all[r], '\n');
      auto [a, b] = std::ranges::mismatch(left, right);
      throw UserError(cat("ranks 0 and ", r, " have different ", what, ": ",
                          a == left.end() ? "" : *a, " and ", b == right.end() ? "" : *b,
                          "; start all ranks with the same program and options"));
    }
  };
  MappedFile program("/proc/self/exe");
  compare(hex(hash_bytes(program.data(), program.size())), "programs");
  RunConfig common = config_;  // but for what a rank may choose by itself
  const RunConfig defaults;
  common.threads = defaults.threads;
  common.rank = common.local_rank = common.world_size = std::nullopt;
  common.cache_dir = defaults.cache_dir;
  common.config = defaults.config;  // what the files say stands in the other options
  common.hf_home = defaults.hf_home;
  common.log_level = defaults.log_level;
  std::string options;
  for (const OptionRow& row : option_table())
    options += cat("--", row.name, " ", value_text(common, row), "\n");
  compare(options, "options");
  compare(hex(session_->plan_hash()), "plans");
}

// Whether any rank was asked to stop: all must end at the same step.
bool TrainingRun::stop_requested() const {
  int32_t mine = interrupted() ? 1 : 0, any = mine;
  if (device_.communicator) {
    device_.communicator->run({CommAction::kAllReduce, &device_.communicator->world(), DType::kI32,
                               DType::kI32, Reduction::kMax, 1, 1, &mine, &any,
                               "agreement on whether to stop"});
  }
  return any != 0;
}

CheckpointGroup TrainingRun::checkpoint_group() const {
  if (!device_.communicator) return {};
  const Parallelism& p = session_->programs().parallelism;
  AxisSet apart = p.data.shard | p.tp.all;
  CheckpointGroup group;
  group.rank = rank();
  group.ranks = world_size();
  group.part = p.mesh.index(rank(), apart);
  group.parts = p.mesh.size(apart);
  group.writes = p.mesh.index(rank(), p.data.replicate) == 0;
  group.exchange = [this](const std::string& text) {
    return device_.communicator->exchange(text, "checkpoint");
  };
  return group;
}

// Token caches are made by one rank of a host; the others find them.
void TrainingRun::prepare_data() {
  auto prepare = [&] {
    data_ =
        prepare_text(config_, record_.model.vocab_size, config_.max_context_width, *device_.pool);
  };
  if (!device_.communicator) return prepare();
  while_others_wait(device_.first_on_host, "preparation of the data", prepare);
  if (!device_.first_on_host) prepare();
}

// It may take longer than an exchange between ranks may: so they meet every second meanwhile.
void TrainingRun::while_others_wait(bool chosen, const std::string& what,
                                    const std::function<void()>& work) const {
  std::future<void> working;
  if (chosen) working = std::async(std::launch::async, work);
  for (int32_t left = 1; left > 0;) {
    int32_t mine =
        working.valid() && working.wait_for(std::chrono::seconds(1)) != std::future_status::ready;
    device_.communicator->run({CommAction::kAllReduce, &device_.communicator->world(), DType::kI32,
                               DType::kI32, Reduction::kMax, 1, 1, &mine, &left, what});
  }
  if (working.valid()) working.get();
}

}  // namespace tessera
