#include "weights/model_weights.h"

#include "models/hugging_face_tensor.h"
#include "models/model_family.h"
#include "programs/shard_pieces.h"

namespace tessera {
namespace {

std::function<void(int64_t, std::span<const float>)> into_slot(State& state,
                                                               const std::string& slot) {
  return [&state, slot](int64_t to, std::span<const float> values) {
    state.write_rounded(slot, to, values);
  };
}

}  // namespace

FamilyNames family_names(ModelType family) {
  const TensorNames& names = model_family(family).tensors;
  return {
      hugging_face_model_type(family), names.prefix, names.embedding, names.output, names.buffers,
      names.output_in_memory};
}

std::vector<FileTensor> file_tensors(ModelType family, const std::vector<Parameter>& parameters) {
  std::vector<FileTensor> tensors;
  for (const Parameter& p : parameters) {
    HuggingFaceTensor stored = hugging_face_tensor(family, p);
    tensors.push_back({p.name, stored.shape, stored.transposed});
  }
  return tensors;
}

std::vector<ParameterTarget> weight_targets(const Programs& programs, State& state, int rank) {
  std::vector<ParameterTarget> targets;
  for (const FlatUnit& unit : programs.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      ParameterTarget& target = targets.emplace_back();
      target.parameter = programs.parameters[static_cast<size_t>(unit.parameters[k])].name;
      for (const PieceRange& range : piece_ranges(programs, unit, k, rank))
        target.ranges.push_back({range.global, range.count, range.local});
      target.write = into_slot(state, weight_slot(unit));
    }
  }
  return targets;
}

std::vector<ParameterTarget> weight_targets(const std::vector<Parameter>& parameters,
                                            const std::vector<FlatUnit>& units, State& state) {
  std::vector<ParameterTarget> targets;
  for (const FlatUnit& unit : units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = parameters[static_cast<size_t>(unit.parameters[k])];
      targets.push_back({p.name,
                         {{0, num_elements(p.shape), unit.members[k].offset}},
                         into_slot(state, weight_slot(unit))});
    }
  }
  return targets;
}

}  // namespace tessera
