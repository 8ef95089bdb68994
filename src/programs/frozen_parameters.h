#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/build_model.h"
#include "options/run_config.h"

namespace tessera {

// What --freeze says: shell patterns over names of parameters, as fnmatch(3) has them (*, ? and
// [..]; a * matches dots too).

// Takes Parameter::trainable from every parameter that a pattern matches. UserError: a pattern that
// matches none, with names that there are; patterns that leave nothing to train.
void freeze_parameters(std::vector<Parameter>& parameters, std::span<const std::string> patterns);

// The same model, every time with its parameters so.
ModelBuilder with_frozen(ModelBuilder builder, std::vector<std::string> patterns);

// Elements of the parameters that are trained.
int64_t trainable_count(const std::vector<Parameter>& parameters);

// A run can resume from a checkpoint only if the same parameters are frozen, by whatever patterns:
// there are no moments of the others in it, and AdamW's correction of their bias counts the steps
// of all. UserError that names both --freeze and the first parameter that differs. `parameters` are
// those of this run.
void require_same_frozen(const std::vector<Parameter>& parameters, const RunConfig& run,
                         const RunConfig& saved, const std::string& checkpoint);

}  // namespace tessera
