#include "programs/frozen_parameters.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "options/option_table.h"

namespace tessera {
namespace {

bool matches(const std::string& pattern, const Parameter& parameter) {
  return ::fnmatch(pattern.c_str(), parameter.name.c_str(), 0) == 0;
}

// Layers have equal names but for their number: those of the first stand for all.
std::vector<std::string> names_without_further_layers(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& p : parameters) {
    if (!p.unit.starts_with("layers.") || p.unit == "layers.0") names.push_back(p.name);
  }
  return names;
}

}  // namespace

void freeze_parameters(std::vector<Parameter>& parameters, std::span<const std::string> patterns) {
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (Parameter& p : parameters) {
      if (!matches(pattern, p)) continue;
      p.trainable = false;
      any = true;
    }
    if (any) continue;
    std::vector<std::string> names, shown = names_without_further_layers(parameters);
    for (const Parameter& p : parameters) names.push_back(p.name);
    std::string close = pattern.size() <= 200 ? nearest(pattern, names) : "";
    throw UserError(cat("--freeze: no parameter of this model matches '", pattern.substr(0, 200),
                        "'", close.empty() ? "" : cat("; did you mean ", close, "?"),
                        "; its parameters (of layers those of the first): ", join(shown, ", ")));
  }
  if (std::ranges::none_of(parameters, &Parameter::trainable)) {
    throw UserError(cat("--freeze ", join(patterns, " "),
                        ": every parameter is frozen, nothing is left to train; to measure the "
                        "model as it is, give --eval_only 1 without --freeze"));
  }
}

ModelBuilder with_frozen(ModelBuilder builder, std::vector<std::string> patterns) {
  return [builder = std::move(builder), patterns = std::move(patterns)](
             int64_t batch, int64_t length, ModelHead head) {
    ModelGraph model = builder(batch, length, head);
    freeze_parameters(model.parameters, patterns);
    return model;
  };
}

int64_t trainable_count(const std::vector<Parameter>& parameters) {
  int64_t count = 0;
  for (const Parameter& p : parameters) count += p.trainable ? num_elements(p.shape) : 0;
  return count;
}

void require_same_frozen(const std::vector<Parameter>& parameters, const RunConfig& run,
                         const RunConfig& saved, const std::string& checkpoint) {
  const bool adapted = std::ranges::any_of(parameters, &Parameter::adapter);
  for (const Parameter& p : parameters) {
    bool trainable = (p.adapter || !adapted) &&
                     std::ranges::none_of(saved.freeze, [&](const std::string& pattern) {
                       return matches(pattern, p);
                     });
    if (trainable == p.trainable) continue;
    const OptionRow& freeze = *find_option("freeze");
    auto state = [](bool trained) { return trained ? "trained" : "frozen"; };
    throw UserError(cat("checkpoint '", checkpoint, "' was saved with --freeze ",
                        value_text(saved, freeze), ", this run has --freeze ",
                        value_text(run, freeze), ": ", p.name, " is ", state(trainable),
                        " there and ", state(p.trainable),
                        " here; resume with the --freeze of the checkpoint, or start anew from its "
                        "weights: tessera export, then --hf_pretrained_model_name_or_dir"));
  }
}

}  // namespace tessera
