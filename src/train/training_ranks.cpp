// What the ranks of a training run do together beside the steps themselves.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/hash.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/process_identity.h"
#include "options/option_record.h"
#include "options/option_table.h"
#include "train/own_tokenizer.h"
#include "train/training_run.h"

namespace tessera {

// Launchers place ranks as they like, and hosts need not have equally many: all must know the same.
int64_t TrainingRun::meet_hosts() {
  if (!device_.control) return device_.ranks_per_host;
  const auto all = device_.control->exchange(
      "ranks of hosts", cat(device_.ranks_per_host, "\n", host_name(), "\n", device_.host_id));
  int64_t common = 0;
  std::vector<std::string> hosts;
  std::set<std::string_view> seen;
  for (size_t r = 0; r < all.size(); ++r) {
    const auto lines = split(all[r], '\n');
    common = std::gcd(common, std::stoll(std::string(lines.at(0))));
    if (!seen.insert(lines.at(2)).second) continue;
    hosts.push_back(cat(lines[0], " on ", lines[1]));
    if (lines[2] == device_.host_id) first_on_host_ = static_cast<int>(r);
  }
  const std::string warning = shard_group_warning(config_, world_size(), common);
  if (rank() == 0 && !warning.empty())
    TESSERA_WARN(cat(warning, " (ranks: ", join(hosts, ", "), ")"));
  return common;
}

// Every rank must run the same program with the same options: what differs is named.
void TrainingRun::check_ranks_agree() const {
  if (!device_.control) return;
  const std::string same_start = "start all ranks with the same program and options";
  auto compare = [&](const std::string& mine, const std::string& what, const std::string& advice) {
    auto all = device_.control->exchange(cat("comparison of ", what), mine);
    for (size_t r = 1; r < all.size(); ++r) {
      if (all[r] == all[0]) continue;
      auto left = split(all[0], '\n'), right = split(all[r], '\n');
      auto [a, b] = std::ranges::mismatch(left, right);
      throw UserError(cat("ranks 0 and ", r, " have different ", what, ": ",
                          a == left.end() ? "" : *a, " and ", b == right.end() ? "" : *b, "; ",
                          advice));
    }
  };
  compare(hex(program_hash()), "programs", same_start);
  RunConfig common =
      without_secrets(with_model_names(config_));  // but for what a rank may choose by itself
  const RunConfig defaults;
  common.threads = defaults.threads;
  common.rank = common.local_rank = common.world_size = std::nullopt;
  common.cache_dir = defaults.cache_dir;
  common.max_cache_size = defaults.max_cache_size;
  if (is_own_tokenizer(common)) common.tokenizer = defaults.tokenizer;  // lies in cache_dir
  common.config = defaults.config;  // what the files say stands in the other options
  common.hf_home = defaults.hf_home;
  common.log_level = defaults.log_level;
  std::string options;
  for (const OptionRow& row : option_table())
    options += cat("--", row.name, " ", value_text(common, row), "\n");
  compare(options, "options", same_start);
  compare(hex(session_->plan_hash()), "plans",
          "their programs and options are equal, so it is their machines that differ: give all of "
          "them the same --cpu_isa");
}

std::string TrainingRun::on_first_rank(const std::string& what,
                                       const std::function<std::string()>& work) const {
  if (!device_.control) return work();
  // A letter in front says how it went.
  std::string result;
  while_others_wait(rank() == 0, what, [&] {
    try {
      result = cat("r", work());
    } catch (const UsageError& error) {
      result = cat("u", error.what());
    } catch (const UserError& error) {
      result = cat("erank 0 on ", host_name(), ": ", error.what());
    } catch (const Interrupted&) {
      result = "i";
    }
  });
  result = device_.control->exchange(what, result)[0];
  std::string text = result.substr(1);
  if (result[0] == 'i') throw Interrupted();
  if (result[0] == 'u') throw UsageError(text);
  if (result[0] == 'e') throw UserError(text);
  return text;
}

std::vector<std::string> TrainingRun::on_all_ranks(const std::string& what,
                                                   const std::function<std::string()>& work) const {
  if (!device_.control) return {work()};
  std::string result;
  while_others_wait(true, what, [&] {
    try {
      result = cat("r", work());
    } catch (const UserError& error) {
      result = cat("e", error.what());
    } catch (const Interrupted&) {
      result = "i";
    }
  });
  std::vector<std::string> all = device_.control->exchange(what, result);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r][0] == 'i') throw Interrupted();
    if (all[r][0] == 'e') throw UserError(cat("rank ", r, all[r].substr(1)));
    all[r] = all[r].substr(1);
  }
  return all;
}

// Files of one name on different hosts may hold different text.
void TrainingRun::check_same_text() const {
  auto describe = [&](const char* what, int64_t tokens, uint64_t hash) {
    if (tokens == 0 && hash == 0) return cat("no ", what, " text");
    if (tokens == 0) return cat("a stream of ", what, " text (files ", hex(hash), ")");
    return cat(what, " text of ", tokens, " tokens (hash ", hex(hash), ")");
  };
  auto all = on_all_ranks("comparison of the text", [&] {
    const TokenPart& held_out = data_.validation;
    return cat(host_name(), "\n",
               describe("training", data_.training_tokens(), data_.training_hash()), "\n",
               describe("validation", held_out.tokens.count(), held_out.hash));
  });
  auto first = split(all[0], '\n');
  for (size_t r = 1; r < all.size(); ++r) {
    auto other = split(all[r], '\n');
    for (size_t line = 1; line < first.size(); ++line) {
      if (other.at(line) == first[line]) continue;
      throw UserError(cat("ranks 0 on ", first[0], " and ", r, " on ", other[0],
                          " read different text under the same name: ", first[line], " and ",
                          other[line], "; give all hosts the same files"));
    }
  }
}

// Whether any rank was asked to stop: all must end at the same step.
bool TrainingRun::stop_requested() const {
  bool here = interrupted();
  return device_.control ? device_.control->any("agreement on whether to stop", here) : here;
}

CheckpointGroup TrainingRun::checkpoint_group() const {
  if (!device_.control) return {};
  CheckpointGroup group{rank(), world_size(), {}};
  group.long_work = [this](const std::function<void()>& work) {
    tessera::while_others_wait(*device_.control, true, "work on the checkpoint", work);
  };
  group.exchange = [this](const std::string& text) {
    return device_.control->exchange("checkpoint", text);
  };
  return group;
}

// What a server lists is asked for once.
std::vector<DataSource> TrainingRun::find_sources() const {
  if (!device_.control || !names_are_remote(config_)) return find_data_sources(config_);
  return data_sources_from_text(on_first_rank("list of the data's files",
                                              [&] { return to_text(find_data_sources(config_)); }));
}

// That of the run's own text, by one rank of a host.
void TrainingRun::make_tokenizer() const {
  if (data_.tokenizer || !data_need_tokenizer(config_)) return;
  auto make = [&] {
    try {
      make_own_tokenizer(config_, device_.pool->threads());
    } catch (const Interrupted&) {
      // The ranks agree on it below.
    }
  };
  if (!device_.control) {
    make();
  } else {
    while_others_wait(device_.first_on_host, "training of the tokenizer", make);
  }
  if (stop_requested()) throw Interrupted();
}

// Token caches are made by one rank of a host; the others find them.
void TrainingRun::prepare_data() {
  std::vector<DataSource> sources = find_sources();
  auto prepare = [&] {
    try {
      data_ =
          prepare_training_data(config_, std::move(sources), std::move(data_.tokenizer),
                                record_.model.vocab_size, config_.max_context_width, *device_.pool);
    } catch (const Interrupted&) {
      // The ranks agree on it below.
    }
  };
  if (device_.control) while_others_wait(device_.first_on_host, "preparation of the data", prepare);
  if (!device_.control || !device_.first_on_host) prepare();
  if (stop_requested()) throw Interrupted();
}

// It may take longer than an exchange between ranks may: so they meet every second meanwhile.
void TrainingRun::while_others_wait(bool chosen, const std::string& what,
                                    const std::function<void()>& work) const {
  tessera::while_others_wait(*device_.control, chosen, what, work);
}

}  // namespace tessera
