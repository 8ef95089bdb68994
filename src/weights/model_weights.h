#pragma once
#include <vector>

#include "hub/parameter_source.h"
#include "hub/pretrained_weights.h"
#include "programs/programs.h"
#include "runtime/state.h"

namespace tessera {

// Between weight files and the state of a program.

// How transformers' files hold the parameters of a family. UserError for one that it does not have.
FamilyNames family_names(ModelType family);
std::vector<FileTensor> file_tensors(ModelType family, const std::vector<Parameter>& parameters);

// Where the weights of a rank lie in its state, which must outlive the targets: what
// copy_parameters() fills.
std::vector<ParameterTarget> weight_targets(const Programs& programs, State& state, int rank);
// The same for a program on one rank, which has every parameter whole; rounded where its slots are
// bf16.
std::vector<ParameterTarget> weight_targets(const std::vector<Parameter>& parameters,
                                            const std::vector<FlatUnit>& units, State& state);

}  // namespace tessera
