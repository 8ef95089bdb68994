#include "explain/savings.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/interruption.h"
#include "planning/plan_levers.h"

namespace tessera {
namespace {

struct Candidate {
  std::function<void(RunConfig&)> change;
  bool other_results = false;
};

// The rungs of every lever, of many the mildest and the strongest; of more ranks the mildest.
std::vector<Candidate> candidates(const RunConfig& config, const JobPlan& plan) {
  std::vector<Candidate> all;
  std::vector<Lever> levers = levers_that_save_memory(config, plan, {});
  for (Lever& lever : levers_that_save_time(config, plan)) levers.push_back(std::move(lever));
  for (const Lever& lever : levers) {
    constexpr size_t kFew = 3;
    const size_t rungs = lever.changes_world ? 1 : lever.rungs.size();
    for (size_t i = 0; i < rungs; ++i)
      if (rungs <= kFew || i == 0 || i + 1 == rungs) all.push_back({lever.rungs[i]});
  }
  if (!config.bf16 && !config.use_fp16)
    all.push_back({[](RunConfig& to) { to.bf16 = true; }, true});
  if (config.optimizer == "adamw")
    all.push_back({[](RunConfig& to) { to.optimizer = "lion"; }, true});
  return all;
}

}  // namespace

std::vector<Saving> savings(const RunConfig& config, const ModelConfig& model,
                            const PlanTarget& target, const JobPlan& plan) {
  std::vector<Saving> all;
  std::set<std::string> seen;
  for (const Candidate& candidate : candidates(config, plan)) {
    check_interruption();
    RunConfig changed = config;
    candidate.change(changed);
    changed.dump_pass.clear();
    const std::string options = changed_options(config, changed);
    if (options.empty() || !seen.insert(options).second) continue;
    try {
      const JobPlan other = job_plan(changed, *plan_session(changed, model, target));
      const double tokens = plan.tokens_a_rank() / other.tokens_a_rank();
      all.push_back({options, other.memory.near() - plan.memory.near(),
                     other.memory.far() - plan.memory.far(),
                     other.costs.all_flops() * tokens / plan.costs.all_flops() - 1,
                     candidate.other_results});
    } catch (const UserError&) {
      continue;  // these options do not go together
    }
  }
  std::erase_if(all, [](const Saving& s) { return s.near == 0 && s.far == 0; });
  std::ranges::stable_sort(all, {}, &Saving::near);
  return all;
}

}  // namespace tessera
