#include "planning/plan_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <type_traits>

#include "options/option_table.h"
#include "planning/plan_levers.h"

namespace tessera {
namespace {

// Rung of every lever, 0: not pulled.
using Rungs = std::vector<size_t>;

// Jobs of the same model and device with other options: which of them fit, and what they cost.
class Search {
 public:
  Search(const RunConfig& config, const ModelConfig& model, const PlanTarget& target,
         const JobPlan& plan, const MemoryLimits& limits, std::vector<Lever> levers)
      : config_(config),
        model_(model),
        target_(target),
        base_(plan),
        limits_(limits),
        rates_(device_rates(config, target)),
        levers_(std::move(levers)) {}

  size_t levers() const { return levers_.size(); }
  size_t strongest(size_t lever) const { return levers_[lever].rungs.size(); }
  Rungs none() const { return Rungs(levers_.size(), 0); }

  bool fits(const Rungs& rungs) {
    const std::optional<JobPlan>& plan = estimate(rungs);
    return plan && plan->fits(limits_);
  }
  // The longest of the times of a step of as many tokens as the job's own, then all of them.
  std::pair<double, double> seconds(const Rungs& rungs) {
    return seconds(same_tokens(*estimate(rungs)));
  }
  // By more than rounding.
  bool is_cheaper(const Rungs& rungs, const Rungs& than) {
    auto [longest, sum] = seconds(rungs);
    auto [old_longest, old_sum] = seconds(than);
    constexpr double kLess = 0.999;
    return longest < kLess * old_longest ||
           (longest <= old_longest / kLess && sum < kLess * old_sum);
  }

  void found(const Rungs& rungs) { found_.insert(rungs); }

  // What was found, each planned as a whole now; at most so many.
  std::vector<PlanAlternative> planned(size_t most) {
    std::vector<Rungs> order(found_.begin(), found_.end());
    auto key = [&](const Rungs& rungs) { return std::pair(!is_free(rungs), seconds(rungs)); };
    std::stable_sort(order.begin(), order.end(),
                     [&](const Rungs& a, const Rungs& b) { return key(a) < key(b); });
    std::vector<PlanAlternative> alternatives;
    for (const Rungs& rungs : order) {
      if (alternatives.size() == most) break;
      RunConfig changed = apply(rungs);
      JobPlan plan = whole(changed, model_);
      if (plan.fits(limits_))
        alternatives.push_back({changed_options(config_, changed), plan, same_tokens(plan)});
    }
    return alternatives;
  }

 private:
  // Costs nothing, with the ranks that there are.
  bool is_free(const Rungs& rungs) {
    for (size_t i = 0; i < levers_.size(); ++i)
      if (rungs[i] > 0 && levers_[i].changes_world) return false;
    return seconds(rungs) <= seconds(none());
  }

  RunConfig apply(const Rungs& rungs) const {
    RunConfig changed = config_;
    for (size_t i = 0; i < levers_.size(); ++i)
      if (rungs[i] > 0) levers_[i].rungs[rungs[i] - 1](changed);
    changed.dump_pass.clear();
    return changed;
  }

  JobPlan whole(const RunConfig& config, const ModelConfig& model) const {
    return job_plan(config, *plan_session(config, model, target_));
  }

  // Nothing where the options do not go together.
  const std::optional<JobPlan>& estimate(const Rungs& rungs) {
    auto [entry, added] = estimates_.try_emplace(rungs);
    if (!added) return entry->second;
    RunConfig changed = apply(rungs);
    try {
      entry->second = of_few_layers(changed);
    } catch (const UserError&) {
    }
    return entry->second;
  }

  // Whether the options name single layers, which a model of few may not have.
  bool names_layers() const {
    const auto& targets = model_.lora.targets;
    return !config_.freeze.empty() ||
           std::ranges::any_of(targets, [](const std::string& t) { return t.find('.') != t.npos; });
  }

  // Layers are alike: what a model of many takes lies on the line through two of few.
  JobPlan of_few_layers(const RunConfig& config) const {
    constexpr int64_t kFew = 4, kMore = 8;
    if (model_.num_layers <= 2 * kMore || names_layers()) return whole(config, model_);
    ModelConfig few = model_, more = model_;
    few.num_layers = kFew;
    more.num_layers = kMore;
    JobPlan plan = whole(config, few);
    const JobPlan second = whole(config, more);
    double steps =
        static_cast<double>(model_.num_layers - kFew) / static_cast<double>(kMore - kFew);
    auto extend = [&](auto& of_few, auto of_more) {
      double slope = static_cast<double>(of_more) - static_cast<double>(of_few);
      of_few += static_cast<std::remove_reference_t<decltype(of_few)>>(slope * steps);
    };
    extend(plan.memory.parameters, second.memory.parameters);
    extend(plan.memory.compute_weights, second.memory.compute_weights);
    extend(plan.memory.optimizer, second.memory.optimizer);
    extend(plan.memory.gradients, second.memory.gradients);
    extend(plan.memory.arena, second.memory.arena);
    extend(plan.memory.far_arena, second.memory.far_arena);
    extend(plan.slots, second.slots);
    extend(plan.staging, second.staging);
    extend(plan.costs.flops, second.costs.flops);
    extend(plan.costs.recomputed, second.costs.recomputed);
    extend(plan.costs.network_bytes, second.costs.network_bytes);
    extend(plan.costs.peer_bytes, second.costs.peer_bytes);
    extend(plan.costs.link_bytes, second.costs.link_bytes);
    return plan;
  }

  StepCosts same_tokens(const JobPlan& plan) const {
    double scale = base_.tokens_a_rank() / plan.tokens_a_rank();
    StepCosts c = plan.costs;
    return {c.flops * scale, c.recomputed * scale, c.network_bytes * scale, c.peer_bytes * scale,
            c.link_bytes * scale};
  }
  std::pair<double, double> seconds(const StepCosts& costs) const {
    StepSeconds s = step_seconds(costs, rates_);
    return {s.longest(), s.sum()};
  }

  const RunConfig& config_;
  const ModelConfig& model_;
  const PlanTarget& target_;
  const JobPlan& base_;
  MemoryLimits limits_;
  DeviceRates rates_;
  std::vector<Lever> levers_;
  std::map<Rungs, std::optional<JobPlan>> estimates_;
  std::set<Rungs> found_;
};

// The mildest rung of each lever that suffices alone.
void find_single(Search& search) {
  for (size_t i = 0; i < search.levers(); ++i) {
    Rungs rungs = search.none();
    for (size_t r = 1; r <= search.strongest(i); ++r) {
      rungs[i] = r;
      if (!search.fits(rungs)) continue;
      search.found(rungs);
      break;
    }
  }
}

// Pulls the levers of `order` one after the other until the job fits, then lets go of what it does
// not take, the last first.
void find_together(Search& search, const std::vector<size_t>& order) {
  Rungs rungs = search.none();
  bool fits = false;
  for (size_t i : order) {
    for (size_t r = 1; r <= search.strongest(i) && !fits; ++r) {
      Rungs next = rungs;
      next[i] = r;
      fits = search.fits(next);
      rungs = next;
    }
  }
  if (!fits) return;
  for (size_t k = order.size(); k-- > 0;) {
    for (size_t r = 0; r < rungs[order[k]]; ++r) {
      Rungs milder = rungs;
      milder[order[k]] = r;
      if (!search.fits(milder)) continue;
      rungs = milder;
      break;
    }
  }
  search.found(rungs);
}

}  // namespace

std::vector<PlanAlternative> fitting_alternatives(const RunConfig& config, const ModelConfig& model,
                                                  const PlanTarget& target, const JobPlan& plan,
                                                  const MemoryLimits& limits, bool any_world) {
  std::vector<Lever> levers = levers_that_save_memory(config, plan, limits);
  if (!any_world) std::erase_if(levers, [](const Lever& lever) { return lever.changes_world; });
  std::vector<size_t> all, without_host, one_world;
  for (size_t i = 0; i < levers.size(); ++i) {
    all.push_back(i);
    if (!levers[i].uses_host) without_host.push_back(i);
    if (!levers[i].changes_world) one_world.push_back(i);
  }
  Search search(config, model, target, plan, limits, std::move(levers));
  find_single(search);
  for (const auto& order : {one_world, without_host, all}) find_together(search, order);
  constexpr size_t kMost = 5;
  return search.planned(kMost);
}

std::vector<PlanAlternative> cheaper_alternatives(const RunConfig& config, const ModelConfig& model,
                                                  const PlanTarget& target, const JobPlan& plan,
                                                  const MemoryLimits& limits) {
  Search search(config, model, target, plan, limits, levers_that_save_time(config, plan));
  Rungs together = search.none();
  for (size_t i = 0; i < search.levers(); ++i) {
    Rungs alone = search.none();
    for (size_t r = search.strongest(i); r > 0; --r) {
      alone[i] = r;
      if (search.fits(alone) && search.is_cheaper(alone, search.none())) {
        search.found(alone);
        break;
      }
    }
    for (size_t r = search.strongest(i); r > 0; --r) {
      Rungs next = together;
      next[i] = r;
      if (!search.fits(next) || !search.is_cheaper(next, together)) continue;
      together = next;
      break;
    }
  }
  if (together != search.none()) search.found(together);
  constexpr size_t kMost = 3;
  return search.planned(kMost);
}

}  // namespace tessera
