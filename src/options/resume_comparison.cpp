#include "options/resume_comparison.h"

#include <algorithm>

#include "base/text.h"
#include "options/option_record.h"
#include "options/option_table.h"

namespace tessera {
namespace {

// Options as they hold: dropout may come from a description of the model.
RunConfig effective(const RunRecord& record) {
  RunConfig config = with_absolute_paths(record.options);
  config.resid_pdrop = record.model.resid_pdrop;
  config.embd_pdrop = record.model.embd_pdrop;
  config.attn_pdrop = record.model.attn_pdrop;
  return config;
}

// What is known of the options of a checkpoint that was another program's.
bool is_of_optimizer(const OptionRow& row) {
  constexpr std::string_view kNames[] = {"beta1", "beta2", "momentum", "weight_decay", "decay_all"};
  return std::ranges::find(kNames, row.name) != std::end(kNames);
}

// How a step's windows are spread over ranks and micro-batches.
bool spreads_windows(const OptionRow& row) {
  return row.name == std::string_view("train_batch_size") ||
         row.name == std::string_view("gradient_accumulation_steps");
}

// Whether both read the same windows in a step, and drop the same of them.
bool same_windows(const RunRecord& saved, const RunRecord& now) {
  auto windows = [](const RunRecord& record) {
    return record.data_ranks.value_or(0) * record.options.train_batch_size *
           record.options.gradient_accumulation_steps;
  };
  return saved.data_ranks && now.data_ranks && !now.options.same_seed &&
         windows(saved) == windows(now);
}

std::vector<std::string> differences(const RunRecord& saved, const RunRecord& now, OnResume kind) {
  RunConfig before = effective(saved), after = effective(now);
  std::vector<std::string> changed;
  const bool spread_anew = same_windows(saved, now);
  for (const OptionRow& row : option_table()) {
    if (spread_anew && spreads_windows(row)) continue;
    if (row.on_resume != kind || (!saved.converted_from.empty() && !is_of_optimizer(row))) continue;
    std::string was = value_text(before, row), is = value_text(after, row);
    if (was != is) changed.push_back(cat("--", row.name, " was ", was, " and is ", is));
  }
  return changed;
}

}  // namespace

std::vector<std::string> changed_options(const RunRecord& saved, const RunRecord& now) {
  std::vector<std::string> changed = differences(saved, now, OnResume::kWarned);
  // Fingerprints are compared elsewhere, where there are any.
  std::string was = effective(saved).tokenizer, is = effective(now).tokenizer;
  if (!saved.tokenizer && saved.converted_from.empty() && was != is)
    changed.push_back(cat("--tokenizer was ", was, " and is ", is));
  if (saved.data_ranks && now.data_ranks && *saved.data_ranks != *now.data_ranks &&
      !same_windows(saved, now)) {
    changed.push_back(cat("the ranks that share a step's windows were ", *saved.data_ranks,
                          " and are ", *now.data_ranks));
  }
  return changed;
}

std::vector<std::string> ignored_options(const RunRecord& saved, const RunRecord& now) {
  if (!saved.converted_from.empty()) return {};  // it has no schedule
  const ScheduleState &there = saved.schedule, &here = now.schedule;
  std::vector<std::string> ignored;
  auto compare = [&](std::string_view option, const auto& mine, const auto& kept) {
    if (mine == kept) return;
    ignored.push_back(cat("--", option, " ", mine, ": the checkpoint has ", kept));
  };
  compare("lr", here.start_lr, there.start_lr);
  compare("lr_decay_style", name(here.decay_style), name(there.decay_style));
  if (there.decay_style == DecayStyle::kPlateau) compare("plateau", here.plateau, there.plateau);
  if (there.decay_style == DecayStyle::kStep) compare("step_lr_gamma", here.gamma, there.gamma);
  if (has_floor(there.decay_style)) {
    compare("min_lr", here.min_lr, there.min_lr);
    // As many steps as this share of the length is: the lengths are compared by themselves.
    double steps = now.options.warmup * static_cast<double>(there.end_iter);
    if (steps != there.warmup_iter)
      compare("warmup", now.options.warmup,
              there.warmup_iter / static_cast<double>(there.end_iter));
  }
  compare(now.options.lr_decay_iters ? "lr_decay_iters" : "max_steps as the length of the schedule",
          here.end_iter, there.end_iter);
  return ignored;
}

std::string changed_text(const RunRecord& saved, const RunRecord& now) {
  bool known = saved.training_text && now.training_text;
  if (known && *saved.training_text == *now.training_text) return "";
  std::string options = join(differences(saved, now, OnResume::kText), "; ");
  if (!known) return options;
  if (options.empty()) options = "the files of --dataset have changed";
  // Of a stream nobody has counted them.
  if (saved.training_text->tokens == 0 && now.training_text->tokens == 0) return options;
  std::string tokens = cat(saved.training_text->tokens, " training tokens there, ",
                           now.training_text->tokens, " in this run");
  if (saved.training_text->tokens == now.training_text->tokens)
    tokens = cat("as many training tokens, ", now.training_text->tokens, ", but others");
  return cat(options, ": ", tokens);
}

}  // namespace tessera
